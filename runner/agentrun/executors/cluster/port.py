"""The engine port: what a cluster must offer, so that attempts can run on its machines.

| word | meaning |
|---|---|
| engine | somebody else's cluster, such as Dask or Ray. It schedules slots, and knows nothing of items |
| slot | the right to run one attempt at a time on a worker of the engine |
| host | a process of ours beside such a worker: it runs attempts with the executors of its own machine |
| tube | carries bytes between the runner and one host, both ways |
| place | where processes can see each other: one machine, or one container on it |

A slot that the engine runs twice, or moves, is an empty slot: the items are the runner's alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Broken(Exception):
    """The way to a host is broken. Whether the host is alive is not known."""


class Tube(Protocol):
    """A stream of bytes to one host, in order, each way."""

    @property
    def where(self) -> str:
        """The worker beside which the host runs, in the engine's own words."""
        ...

    @property
    def slots(self) -> int:
        """How many slots the engine gives the host at the moment."""
        ...

    async def send(self, data: bytes) -> None:
        """Broken if it cannot be sent."""
        ...

    async def receive(self) -> bytes:
        """The next bytes; empty once the host has ended *and nothing of it is alive*; Broken if that is unknown."""
        ...

    async def close(self) -> None:
        """Give the slots back to the engine. The host ends, but may be alive when this returns."""
        ...


@dataclass(frozen=True, slots=True)
class HostSpec:
    """What an engine needs to start a host; no secret is in it, since engines log what they are given."""

    mark: str
    """In the environment of everything that the host starts: the same in all launches of a run."""
    lease_seconds: float

    def as_json(self) -> dict[str, Any]:
        return {"mark": self.mark, "lease_seconds": self.lease_seconds}


class Engine(Protocol):
    """A cluster. All methods are called on the event loop."""

    @property
    def name(self) -> str:
        """For messages: `dask://larch:8786`."""
        ...

    async def connect(self) -> None:
        """LaterError if it does not answer, UsageError if what was asked is wrong."""
        ...

    def caution(self, *, has_secrets: bool) -> str:
        """What people should know about the way to it, once it is connected; empty if there is nothing."""
        ...

    async def everywhere(self, function: Callable[..., Any], *args: Any) -> Mapping[str, Any]:
        """Call a function of this package on each worker; by worker, what it returned or the exception."""
        ...

    def tubes(self, wanted: int, spec: HostSpec, changed: Callable[[], None]) -> AsyncIterator[Tube]:
        """Hosts as the engine gives slots, with up to `wanted` slots in all at any time; slots that end are asked for
        again. `changed` is called when the slots of a tube change."""
        ...

    async def describe(self) -> str:
        """What it has, for people who wait for a slot: `2 workers, 8 slots`. Any error means that it is gone."""
        ...

    async def close(self) -> None:
        """Also after a failed `connect`. A cluster that this object started is ended."""
        ...
