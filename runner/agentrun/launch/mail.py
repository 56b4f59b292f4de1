"""The mail of a launch: what people post is taken in when it begins, and while it works.

Records are committed first, and the messages removed after. What becomes of each is decided in `intake`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from agentrun.errors import AgentrunError
from agentrun.events import Warned, Watcher
from agentrun.launch.committer import Committer
from agentrun.launch.slots import Slots, StopReason
from agentrun.runs.intake import Dropped, Taken, look_up, take
from agentrun.runs.run import Run
from agentrun.runs.units import Unit
from agentrun.store.port import Store

LOOK_SECONDS = 1.0


class Note(Protocol):
    """A line in the log of launches."""

    def __call__(self, event: str, **details: Any) -> None: ...


class Mail:
    def __init__(
        self, run: Run, store: Store, committer: Committer, slots: Slots, *, watcher: Watcher, note: Note
    ) -> None:
        self._run = run
        self._store = store
        self._committer = committer
        self._slots = slots
        self._watcher = watcher
        self._note = note
        self._taking = asyncio.Lock()
        self.is_watched = False
        """Between two rounds of the slots nothing is taken in but by `take_in`."""

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self.is_watched:
                continue
            try:
                await self.take_in()
            except AgentrunError as error:
                self._slots.stop(StopReason(error.exit_code, error.message, error=error))
                return

    async def take_in(self) -> None:
        """What came since the launch began."""
        async with self._taking:
            if self._committer.has_failed or not (posted := await self._committer.do(self._store.inbox)):
                return
            newest, steps = await self._committer.do(partial(look_up, self._run, self._store, posted))
            busy = self._slots.rows_in_flight
            decided = take(self._run, posted, newest=newest, steps=steps, is_launch=False, is_busy=busy.__contains__)
            # Not to be begun, nor taken in again, before that is on disk.
            busy.update(one.row for one in decided if isinstance(one, Taken))
            await self.commit(decided, are_counted=False)

    async def commit(self, decided: Sequence[Taken | Dropped], *, are_counted: bool) -> None:
        """Commit what applies, tell what does not, and remove the messages."""
        units = [
            Unit(one.row, None, entry, are_counted)
            for one in decided
            if isinstance(one, Taken)
            for entry in one.entries
        ]
        if units:
            await self._committer.commit_all(units)
        for one in decided:
            if isinstance(one, Dropped):
                self._note("dropped", message=one.name, key=one.key, reason=one.reason)
                if not one.is_known:
                    what = f"{one.key}: what was posted about it" if one.key else one.name
                    self._watcher(Warned(f"{what} does not apply: {one.reason}"))
        if names := [one.name for one in decided if one.name]:
            await self._committer.do(partial(self._store.drop, names))
