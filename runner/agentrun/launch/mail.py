"""The mail of a launch: what people post is processed when it begins, and while it works.

Records are committed first, and the messages removed after that. What becomes of each is decided in `runs.intake`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Protocol

from agentrun.errors import AgentrunError
from agentrun.events import Warned, Watcher
from agentrun.launch.committer import Checkpointing
from agentrun.launch.slots import Slots
from agentrun.launch.stopping import StopReason
from agentrun.runs.intake import Dropped, Taken, look_up, take
from agentrun.runs.run import Run
from agentrun.runs.units import Unit
from agentrun.store.port import Store


class Note(Protocol):
    """Adds an event to the job's history."""

    def __call__(self, event: str, **details: Any) -> None: ...


class Mail:
    """The messages of one launch."""

    def __init__(
        self, run: Run, store: Store, checkpointing: Checkpointing, slots: Slots, *, watcher: Watcher, note: Note
    ) -> None:
        self._run = run
        self._store = store
        self._checkpointing = checkpointing
        self._slots = slots
        self._watcher = watcher
        self._note = note
        self._processing = asyncio.Lock()
        self._is_watched = False

    async def during(self, round_of_slots: Awaitable[None]) -> None:
        """Run a round of the slots: what is posted meanwhile is processed; what comes later is for the next round, or
        the next launch."""
        self._is_watched = True
        await round_of_slots
        self._is_watched = False
        await self.process()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(self._store.look_seconds)
            if not self._is_watched:
                continue
            try:
                await self.process()
            except AgentrunError as error:
                self._slots.stop(StopReason(error.exit_code, error.message, error=error))
                return

    async def process(self) -> None:
        """Process what came since the launch began."""
        async with self._processing:
            if self._checkpointing.has_failed or not (posted := await self._checkpointing.ask(self._store.inbox)):
                return
            newest, steps = await self._checkpointing.ask(partial(look_up, self._run, self._store, posted))
            is_busy = self._slots.busy.__contains__
            decided = take(self._run, posted, newest=newest, steps=steps, is_launch=False, is_busy=is_busy)
            taken = {one.name: one.row for one in decided if isinstance(one, Taken)}
            self._slots.claim(taken.values())
            ours = await self._checkpointing.ask(partial(self._store.claim, taken))
            self._slots.unclaim(row for name, row in taken.items() if name not in ours)
            decided = [one for one in decided if isinstance(one, Dropped) or one.name in ours]
            await self.commit(decided, are_counted=False)

    async def commit(self, decided: Sequence[Taken | Dropped], *, are_counted: bool) -> None:
        """Commit what applies, report what does not, and remove the messages."""
        taken = [one for one in decided if isinstance(one, Taken)]
        units = [Unit(one.row, None, record, are_counted) for one in taken for record in one.records]
        if units:
            await self._checkpointing.commit(*units)
        for one in decided:
            if isinstance(one, Dropped):
                self._note("dropped", message=one.name, key=one.key, reason=one.reason)
                if not one.is_known:
                    what = f"{one.key}: what was posted about it" if one.key else one.name
                    self._watcher(Warned(f"{what} does not apply: {one.reason}"))
        if names := [one.name for one in decided if one.name]:
            await self._checkpointing.ask(partial(self._store.drop, names))
