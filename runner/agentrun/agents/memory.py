"""An item's memory, for code that runs somebody else's agent within an attempt.

`ctx.step` and `ctx.ask` go by order: the n-th step of a name, the n-th question of the same words. A framework has
names of its own for its calls, such as the id that a model gave a tool call, and may make them side by side, in any
order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from agentrun.agents.context import Answer, Context, answer_in, digest_of, end_of, expect, within
from agentrun.agents.messages import Ask, EntriesGet, EntryAdd, KnownEntries, KnownStep, Reply, StepGet, StepPut
from agentrun.values.json import decode, encode

__all__ = ["ItemMemory", "SideBySide", "digest_of"]
_T = TypeVar("_T")


class ItemMemory:
    """What the item of an attempt remembers. For async agents: everything is awaited."""

    def __init__(self, ctx: Context) -> None:
        if not end_of(ctx).awaits:
            raise TypeError("the agents of frameworks run on the event loop; make the agent async, and await this")
        self._ctx = ctx
        self._failed: dict[str, list[int]] = {}
        """By name: the occurrences whose calls failed. Whoever calls again does the same step, not the next one."""

    async def step(
        self,
        name: str,
        call: Callable[[], Awaitable[Any]],
        *,
        request: Any,
        view: Callable[[Any], str] | None = None,
    ) -> Any:
        """The result of `call`, in its JSON form, remembered under the name.

        The result is on disk before it is returned. A later attempt gets the remembered result without a call.
        `request` is the input of the call, as any value with a stable `repr`. If a later attempt has another request,
        the item's log says so. `view` describes the result to people in a few words.
        """
        if failed := self._failed.pop(name, None):
            n, self._failed[name] = failed[0], failed[1:]
        else:
            known = expect(KnownStep, await end_of(self._ctx).call(StepGet(name, digest_of(request))))
            if known.output is not None:
                return decode(known.output.encode())
            n = known.n
        began = time.monotonic()
        try:
            with within(lambda: f"{name}~{n + 1}/" if n else f"{name}/"):
                value = await call()
        except BaseException:
            self._failed.setdefault(name, []).append(n)
            raise
        text = encode(value, name=f"step {name!r}").decode()
        shown = view(value) if view is not None else ""
        put = StepPut(name, n, text, time.monotonic() - began, shown)
        expect(Reply, await end_of(self._ctx).call(put))
        return decode(text.encode())

    async def entries(self, name: str) -> list[Any]:
        """Everything that attempts of this item added under the name, oldest first."""
        known = expect(KnownEntries, await end_of(self._ctx).call(EntriesGet(name)))
        return [decode(entry.encode()) for entry in known.entries]

    async def add(self, name: str, entry: Any, *, view: str) -> None:
        """Add an entry; it is on disk when this returns, and so is every one that was added before it."""
        text = encode(entry, name=f"entry of {name!r}").decode()
        expect(Reply, await end_of(self._ctx).call(EntryAdd(name, text, view)))

    async def ask(self, question: str, details: Mapping[str, Any], *, key: str) -> Answer:
        """A person's answer to the question with this key, whatever its words are; raises Parked until it is given."""
        message = Ask(question, decode(encode(dict(details), name=f"the question {question!r}")), key)
        return answer_in(await end_of(self._ctx).call(message), question)


class SideBySide:
    """Calls of one run that a framework makes side by side.

    When one of them fails, or asks a person, the framework cancels the others in the middle of what they do, or leaves
    their threads alone; the next attempt would do it once more. So a call that fails waits here until the others have
    ended and are remembered.
    """

    def __init__(self) -> None:
        self._going: set[asyncio.Future[None]] = set()

    async def make(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """The result of the call; what it raises is raised when no other is being made any more."""
        going: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._going.add(going)
        try:
            return await call()
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._end(going)
            while self._going:
                await asyncio.wait(self._going)
            raise
        finally:
            self._end(going)

    def _end(self, going: asyncio.Future[None]) -> None:
        self._going.discard(going)
        if not going.done():
            going.set_result(None)
