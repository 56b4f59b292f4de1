"""The context: what an agent with a parameter `ctx` is given."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from inspect import isawaitable
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from agentrun.agents.messages import (
    Answer,
    Answered,
    Ask,
    Carry,
    KnownStep,
    Park,
    Progress,
    Refused,
    Reply,
    StepGet,
    StepPut,
    Used,
    Warn,
)
from agentrun.errors import Parked
from agentrun.system.disk import make_folders
from agentrun.system.forks import refuse_in_child
from agentrun.values.json import NotJson, decode, encode

if TYPE_CHECKING:
    from agentrun.agents.attempt import AgentEnd, Attempt
    from agentrun.item import Item


__all__ = ["Answer", "Context", "current", "idempotency_key"]
CARRY_LIMIT_BYTES = 64 * 1024
PLACED_LIMIT_BYTES = 512
"""The longest name of a step together with its place; a longer place is shortened to a digest."""
NAMESPACE = UUID("6f0a3c5e-2b8d-5d0e-9a53-5f8f6b1c7d24")
_R = TypeVar("_R", bound=Reply)


def idempotency_key(series: str, key: str, generation: int, name: str = "") -> str:
    """The same UUID in every attempt, launch and run of a series; another for another item, generation or name."""
    # A JSON array, so that no two lists of parts read the same.
    return str(uuid5(NAMESPACE, json.dumps([series, key, generation, name])))


class LazyContext(Struct):
    """The context of an attempt, made when somebody asks for it: most agents never do."""

    attempt: Attempt
    end: AgentEnd
    carries: bool
    context: Context | None = None
    is_open: bool = True

    def open(self) -> Context:
        with _making:
            if self.context is None:
                self.context = Context(self.attempt, self.end, carries=self.carries)
                if not self.is_open:
                    self.context.close()
            return self.context

    def close(self) -> None:
        """The attempt is over."""
        self.is_open = False
        if self.context is not None:
            self.context.close()


CURRENT: ContextVar[LazyContext] = ContextVar("agentrun_context")
"""Set around each call of an agent."""
_making = Lock()


def current() -> Context:
    """The context of the attempt that is calling, for functions that are not handed `ctx`: tools, nodes, callbacks.

    It is found wherever `contextvars` reach: in tasks, in `asyncio.to_thread`, in the threads of frameworks.
    RuntimeError outside an attempt.
    """
    found = CURRENT.get(None)
    if found is None:
        raise RuntimeError("agentrun.current() was called outside an attempt: no item is being run here")
    return found.open()


_place: ContextVar[Callable[[], str]] = ContextVar("agentrun_place", default=str)


def place() -> str:
    """Within which remembered call this runs, with a mark at its end; empty in the agent itself.

    A call that is remembered is not made again, and neither are the steps and questions within it: those of two calls
    must not be counted together, or after a crash one would get what the other was told.
    """
    return _place.get()()


@contextmanager
def within(found: Callable[[], str]) -> Iterator[None]:
    """Let `place` answer with this within the block."""
    before = _place.set(found)
    try:
        yield
    finally:
        _place.reset(before)


def digest_of(value: Any) -> str:
    """A digest of a value's `repr`: the same in every process for plain values."""
    return blake2b(repr(value).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


class Context:
    """One attempt, seen from inside. It refuses to be used once the attempt is over, and in a forked child."""

    def __init__(self, attempt: Attempt, end: AgentEnd, *, carries: bool) -> None:
        self._attempt = attempt
        self._end: AgentEnd | None = end
        self._pid = os.getpid()
        self._carries = carries
        self._carry_before = encode(attempt.carry, name="ctx.carry") if carries else b""
        self._carry: Any = None
        self._carry_used = False
        self._asked: Counter[str] = Counter()
        """How often a question was asked in its place."""
        self.made_files = False
        """Whether the item's own folder was used."""

    @property
    def item(self) -> Item:
        return self._attempt.item

    @property
    def params(self) -> Mapping[str, Any]:
        return MappingProxyType(dict(self._attempt.params))

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._attempt.number

    @property
    def run_id(self) -> str:
        return self._attempt.run_id

    def key(self, name: str = "") -> str:
        """An idempotency key for a side effect of this item: the same in every attempt and launch."""
        return idempotency_key(self._attempt.series, self.item.key, self._attempt.generation, name)

    def log(self, *values: object) -> None:
        """Write a line to the item's log."""
        self._open_end().log(" ".join(map(str, values)) + "\n")

    def progress(self, text: str) -> None:
        """Say what this item is doing now, for people who watch."""
        self._open_end().send(Progress(str(text)))

    def warn(self, text: str) -> None:
        """Tell everybody who watches the run, and the item's log. The same text is shown once per launch."""
        self._open_end().send(Warn(str(text)))

    # ---- steps

    def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of `function(*args, **kwargs)`, remembered.

        The result is on disk before it is returned. When the item is run again, after a crash, a failure or a pause,
        the remembered result is returned and the function is not called; the n-th step of a name is matched with the
        n-th of that name, in the agent or within the same node or tool call. In an async agent: `await ctx.step(…)`,
        with a plain or an async function.
        """
        end = self._open_end()
        if end.awaits:
            return self._step_on_loop(name, function, *args, **kwargs)
        message = _step_get(name)
        known = expect(KnownStep, end.call(message))
        if known.output is not None:
            return decode(known.output.encode())
        began = time.monotonic()
        value = function(*args, **kwargs)
        if isawaitable(value):
            if hasattr(value, "close"):
                value.close()
            raise TypeError(f"step {name!r} was given an async function; make the agent async, and await the step")
        text = encode(value, name=f"step {name!r}").decode()
        expect(Reply, self._open_end().call(StepPut(message.name, known.n, text, time.monotonic() - began)))
        return decode(text.encode())

    async def _step_on_loop(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        message = _step_get(name)
        known = expect(KnownStep, await self._open_end().call(message))
        if known.output is not None:
            return decode(known.output.encode())
        began = time.monotonic()
        value = function(*args, **kwargs)
        if isawaitable(value):
            value = await value
        text = encode(value, name=f"step {name!r}").decode()
        expect(Reply, await self._open_end().call(StepPut(message.name, known.n, text, time.monotonic() - began)))
        # In its remembered form: a tuple is a list from the first time on.
        return decode(text.encode())

    # ---- people

    def ask(self, question: str, /, **details: Any) -> Any:
        """A person's `Answer` to the question; until it is given, the item is parked and the others continue.

        Without an answer this raises `Parked`, which is not an Exception: let it pass. When the answer is given the
        item is run again, and its finished steps are remembered. In an async agent: `await ctx.ask(…)`.
        """
        message = Ask(question, decode(encode(details, name="ctx.ask")), self._question_key(question))
        end = self._open_end()
        if not end.awaits:
            return answer_in(end.call(message), question)

        async def answer() -> Answer:
            return answer_in(await end.call(message), question)

        return answer()

    def _question_key(self, question: str) -> str:
        """What the answer is matched by within a remembered call; empty in the agent itself."""
        if not (where := place()):
            return ""
        key = _placed(where, f"question {digest_of(question)}")
        self._asked[key] += 1
        return key if self._asked[key] == 1 else f"{key}~{self._asked[key]}"

    # ---- money

    def usage(
        self,
        response: Any = None,
        *,
        model: str | None = None,
        provider: str | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        requests: int = 1,
        cost: float | None = None,
    ) -> Awaitable[None]:
        """Report what this attempt used: the response of a model's SDK as it is, or numbers, or a cost in US dollars.

        It counts for the item and the run, even if the attempt fails. There is no need to await it.
        """
        from agentrun.money.providers import read_usage
        from agentrun.money.usage import Reported

        if response is None:
            reported = Reported(
                model=model,
                provider=provider,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cache_read_tokens=cache_read_tokens,
                cache_write_tokens=cache_write_tokens,
                requests=requests,
                cost=cost,
            )
        else:
            named = {"model": model, "provider": provider, "cost": cost}
            known = {name: value for name, value in named.items() if value is not None}
            reported = replace(read_usage(response), **known)
            if cost is not None:
                reported = replace(reported, estimated=False)
        self._open_end().send(Used(reported))
        return _Sent()

    # ---- files

    @property
    def dir(self) -> Path:
        """The item's scratch folder: the same in every attempt and launch, until the item is done."""
        return self._made("dir")

    @property
    def out(self) -> Path:
        """The folder for the item's files: what it holds when the item is done is kept beside the results."""
        return self._made("out")

    def _made(self, name: str) -> Path:
        self._open_end()
        self.made_files = True
        path = Path(self._attempt.work, name)
        make_folders(path)
        return path

    # ---- the carry

    @property
    def carry(self) -> Any:
        """The value that the items before left; changed in place or set, it is kept with this item's checkpoint."""
        self._check_carries()
        if not self._carry_used:
            # A copy: the next attempt must not see what a failed one changed in it.
            self._carry, self._carry_used = decode(self._carry_before), True
        return self._carry

    @carry.setter
    def carry(self, value: Any) -> None:
        self._check_carries()
        self._carry, self._carry_used = value, True

    def carry_message(self) -> Carry | None:
        """The message to send before the outcome of a settled attempt, if the carry was changed. Raises NotJson."""
        if not self._carry_used:
            return None
        text = encode(self._carry, name="ctx.carry")
        if len(text) > CARRY_LIMIT_BYTES:
            raise NotJson("ctx.carry", f"is {len(text):,} bytes of JSON; at most {CARRY_LIMIT_BYTES:,} are allowed")
        return None if text == self._carry_before else Carry(decode(text))

    def close(self) -> None:
        """Refuse everything from now on: the attempt is over, whatever of it still runs."""
        self._end = None

    def _open_end(self) -> AgentEnd:
        """The agent end of the attempt's channel; RuntimeError once the attempt is over."""
        if self._end is None:
            raise RuntimeError(f"this attempt (item {self.item.key!r}, attempt {self.attempt}) is over")
        refuse_in_child(self._pid)
        return self._end

    def _check_carries(self) -> None:
        if not self._carries:
            raise AttributeError("ctx.carry needs `carry = true` in the job (and concurrency 1)")
        refuse_in_child(self._pid)


def _step_get(name: str) -> StepGet:
    """The message that begins a step; within a remembered call, its name alone identifies it."""
    return StepGet(_placed(where, name), "") if (where := place()) else StepGet(name)


def _placed(where: str, name: str) -> str:
    full = f"{where}{name}"
    return full if len(full.encode("utf-8", "replace")) <= PLACED_LIMIT_BYTES else f"{digest_of(where)}/{name}"


def end_of(context: Context) -> AgentEnd:
    """The agent end of the attempt's channel; RuntimeError once the attempt is over."""
    return context._open_end()


def expect(kind: type[_R], reply: Reply) -> _R:
    """The reply, which must be of this kind; RuntimeError with the runner's words if it refused."""
    if isinstance(reply, Refused):
        raise RuntimeError(reply.error)
    assert isinstance(reply, kind), reply
    return reply


def answer_in(reply: Reply, question: str) -> Answer:
    """The person's answer; raises Parked if there is none yet."""
    if isinstance(reply, Park):
        raise Parked(question)
    return expect(Answered, reply).answer


class _Sent:
    """Awaiting it is allowed and does nothing; not awaiting it is no mistake, as it would be with a coroutine."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield
