"""The context: what an agent that asks for `ctx` is given."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from inspect import isawaitable
from json.encoder import encode_basestring_ascii as _quote
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from agentrun.errors import Parked
from agentrun.values.json import NotJson, decode, encode

if TYPE_CHECKING:
    from agentrun.agents.attempt import Attempt
    from agentrun.item import Item


CARRY_LIMIT_BYTES = 64 * 1024
NAMESPACE = "6f0a3c5e-2b8d-5d0e-9a53-5f8f6b1c7d24"
_NAMESPACE_BYTES = bytes.fromhex(NAMESPACE.replace("-", ""))


def idempotency_key(run_id: str, key: str, generation: int, name: str = "") -> str:
    """The same UUID in every attempt and launch of a run; another for another item, generation or name."""
    # A JSON array, so that no two lists of parts read the same; as json.dumps writes it, in a third of the time.
    text = f"[{_quote(run_id)}, {_quote(key)}, {generation}, {_quote(name)}]".encode()
    digest = sha1(_NAMESPACE_BYTES + text, usedforsecurity=False).hexdigest()
    # What uuid.uuid5 makes of them, without the objects: every program is told one.
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


class Link(Protocol):
    """The attempt's end of the channel, as the agent's kind can use it."""

    @property
    def awaits(self) -> bool:
        """Whether `call` gives an awaitable: the agent is on the event loop."""
        ...

    def log(self, text: str) -> None:
        """Into the attempt's log, in order with what it prints."""

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message whose answer does not matter."""

    def call(self, message: dict[str, Any]) -> Any:
        """The answer; for an agent on the event loop, an awaitable of it."""


class Context:
    """One attempt, seen from inside. After the attempt it refuses to be used."""

    def __init__(self, attempt: Attempt, link: Link, *, carries: bool) -> None:
        self._attempt = attempt
        self._link: Link | None = link
        self._carries = carries
        self._carry_before = encode(attempt.carry, name="ctx.carry") if carries else b""
        self._carry: Any = None
        self._carry_used = False
        self.made_files = False
        """The item's own folder was used."""

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
        return idempotency_key(self.run_id, self.item.key, self._attempt.generation, name)

    def log(self, *values: object) -> None:
        """A line in the item's log."""
        self._open_link().log(" ".join(map(str, values)) + "\n")

    def progress(self, text: str) -> None:
        """What this item is at, for people who watch."""
        self._open_link().tell({"type": "progress", "text": str(text)})

    # ---- steps

    def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of `function(*args, **kwargs)`, remembered.

        It is on disk before it is returned. When the item is run again, after a crash, a failure or a pause, what is
        remembered under this name is returned and the function is not called; the n-th step of a name is matched with
        the n-th. In an async agent: `await ctx.step(…)`, with a plain or an async function.
        """
        if self._open_link().awaits:
            return self._step_on_loop(name, function, args, kwargs)
        known = self._call({"type": "step_get", "name": name})
        if known["found"]:
            return decode(known["output"].encode())
        began = time.monotonic()
        value = function(*args, **kwargs)
        if isawaitable(value):
            if hasattr(value, "close"):
                value.close()
            raise TypeError(f"step {name!r} was given an async function; make the agent async, and await the step")
        text = encode(value, name=f"step {name!r}").decode()
        self._call(_step_put(name, known["n"], text, began))
        return decode(text.encode())

    async def _step_on_loop(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        known = _checked(await self._open_link().call({"type": "step_get", "name": name}))
        if known["found"]:
            return decode(known["output"].encode())
        began = time.monotonic()
        value = function(*args, **kwargs)
        if isawaitable(value):
            value = await value
        text = encode(value, name=f"step {name!r}").decode()
        _checked(await self._open_link().call(_step_put(name, known["n"], text, began)))
        # As it will be remembered: a tuple is a list from the first time on.
        return decode(text.encode())

    # ---- people

    def ask(self, question: str, /, **details: Any) -> Any:
        """An `Answer` to the question; until a person has given it, the item is parked and others go on.

        Where there is none yet this raises `Parked`, which is no Exception: let it pass. When the answer is there the
        item is run again, and its finished steps are remembered. In an async agent: `await ctx.ask(…)`.
        """
        message = {"type": "ask", "question": question, "details": decode(encode(details, name="ctx.ask"))}
        link = self._open_link()
        if not link.awaits:
            return _answered(link.call(message), question)

        async def answer() -> Answer:
            return _answered(await link.call(message), question)

        return answer()

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
        """Say what this attempt used: a response of a model's SDK as it is, or numbers, or a cost in US dollars.

        It counts for the item and the run, also if the attempt fails. There is no need to await it.
        """
        from agentrun.money.providers import read_usage
        from agentrun.money.usage import check_usage

        numbers = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cache_read_tokens": cache_read_tokens,
            "cache_write_tokens": cache_write_tokens,
            "requests": requests,
        }
        given: dict[str, Any] = numbers if response is None else read_usage(response)
        said = {"model": model, "provider": provider, "cost": cost}
        given |= {name: value for name, value in said.items() if value is not None}
        self._open_link().tell({"type": "usage", **check_usage(given)})
        return _Told()

    # ---- files

    @property
    def dir(self) -> Path:
        """A scratch folder of the item: there in every attempt and launch, until the item is done."""
        return self._made("dir")

    @property
    def out(self) -> Path:
        """What is left in this folder when the item is done is part of its output, as files beside the results."""
        return self._made("out")

    def _made(self, name: str) -> Path:
        self._open_link()
        self.made_files = True
        path = Path(self._attempt.work, name)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    # ---- the carry

    @property
    def carry(self) -> Any:
        """What the items before left; changed in place or set, it goes on with this item's checkpoint."""
        self._check_carries()
        if not self._carry_used:
            # A copy: what a failed attempt did to it must not be seen by the next one.
            self._carry, self._carry_used = decode(self._carry_before), True
        return self._carry

    @carry.setter
    def carry(self, value: Any) -> None:
        self._check_carries()
        self._carry, self._carry_used = value, True

    def carry_message(self) -> dict[str, Any] | None:
        """What to send before a settled attempt's outcome, if the carry was changed. Raises NotJson."""
        if not self._carry_used:
            return None
        text = encode(self._carry, name="ctx.carry")
        if len(text) > CARRY_LIMIT_BYTES:
            raise NotJson("ctx.carry", f"is {len(text):,} bytes of JSON; it may be {CARRY_LIMIT_BYTES:,} at most")
        return None if text == self._carry_before else {"type": "carry", "value": decode(text)}

    def close(self) -> None:
        """The attempt is over: what still runs of it may not speak for it any more."""
        self._link = None

    def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        return _checked(self._open_link().call(message))

    def _open_link(self) -> Link:
        if self._link is None:
            raise RuntimeError(f"this attempt (item {self.item.key!r}, attempt {self.attempt}) is over")
        return self._link

    def _check_carries(self) -> None:
        if not self._carries:
            raise AttributeError("ctx.carry needs `carry = true` in the job (and concurrency 1)")


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


def _answered(said: dict[str, Any], question: str) -> Answer:
    if _checked(said).get("park"):
        raise Parked(question)
    return Answer(**said["answer"])


def _step_put(name: str, n: int, output: str, began: float) -> dict[str, Any]:
    return {"type": "step_put", "name": name, "n": n, "output": output, "seconds": time.monotonic() - began}


class _Told:
    """Awaiting it is allowed and does nothing; not awaiting it is no mistake, as it would be with a coroutine."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


@dataclass(frozen=True, slots=True)
class Answer:
    """True if the person said yes. `answer["draft"]` is that detail of the question, as the person edited it."""

    yes: bool
    text: str = ""
    """What was said in words."""
    by: str = ""
    at: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.yes

    def __getitem__(self, name: str) -> Any:
        return self.details[name]
