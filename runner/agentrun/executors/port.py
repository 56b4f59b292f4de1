"""The executor port: the runner gives it one attempt of one item, and it runs that, wherever that is.

The channel's words and messages are in `agents/attempt.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.checkpoint.checkpoint import EngineUse
from agentrun.system.guardian import Guardian


class Executor(Protocol):
    """Runs attempts, at most `concurrency` at a time; all methods are called on the event loop.

    `run` never raises for what an agent does: that is an Outcome. When it returns, nothing of the attempt is alive
    any more. A timeout is the executor's to enforce, and gives `failed` with a `timeout` failure. Cancelling the task
    that awaits `run` ends the attempt, and raises CancelledError when the attempt is gone.
    """

    async def start(self) -> None: ...

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome: ...

    async def rest(self) -> None:
        """Nothing is run for a long time: end workers and programs that wait for an item. More may be run later."""
        ...

    async def close(self) -> None:
        """End what is left, and let agents close. Called once, even after a failed start."""
        ...


@dataclass(frozen=True, slots=True)
class Joined:
    """What a launch shares with an executor whose attempts run on other machines."""

    use: EngineUse
    """Kept with the run: what must be ended before another attempt begins, if this launch dies."""
    commit: Callable[[], Awaitable[None]]
    """Return when a checkpoint with `use` as it is now is on disk."""
    changed: Callable[[], None]
    """To be called when `width` has changed."""
    warn: Callable[[str], None]


class Elastic(ABC):
    """An executor on a cluster, whose machines come and go. It is an Executor, too."""

    @property
    @abstractmethod
    def most(self) -> int:
        """How many attempts it may be given at a time at most."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many attempts it could take at the moment, those in flight included."""

    @property
    @abstractmethod
    def is_alone(self) -> bool:
        """Whether nothing of an earlier launch can be alive any more."""

    @property
    @abstractmethod
    def places_left(self) -> list[str]:
        """Where something of this launch may still be alive, although everything has ended that could be ended."""

    @abstractmethod
    async def connect(self) -> None:
        """Called once, after `join`, and before anything is written: what is wrong with the cluster is told here."""

    @abstractmethod
    def where(self, slot: int) -> str:
        """Where the attempt of this slot of the launch runs; empty if it does not run yet."""

    @abstractmethod
    def join(self, joined: Joined) -> None:
        """Called once, before `start`."""

    @abstractmethod
    def hold(self) -> None:
        """Begin nothing from here on: attempts that have not begun end as cancelled."""

    @abstractmethod
    def resume(self) -> None:
        """Undo `hold`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a launch gives its executor, besides the job and the agent."""

    guardian: Guardian | None
    environ: Mapping[str, str]
    """Added to the runner's own environment in workers and programs; agents in the runner's process see only
    `os.environ`."""
    folder: Path | None = None
    """The job's folder, for the socket of its programs; without one the socket is in a temporary folder."""
