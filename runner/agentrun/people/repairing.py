"""Repair: a job whose state cannot be loaded, for every kind of front end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agentrun.store.salvage import Damage as Damage
from agentrun.store.salvage import Salvage as Salvage
from agentrun.system.guardian import end_launch
from agentrun.views.finding import KnownJob


@contextmanager
def repairing(known: KnownJob, *, wait_seconds: float = 1.0) -> Iterator[Salvage]:
    """The repair of a job's state, with its lock held; BusyError if a runner is at work."""
    salvage = known.store.salvage()
    lease = known.store.lock(wait_seconds=wait_seconds)
    try:
        if lease.left_mark:
            # Our release forgets it, and the next launch would overlap what is left of the one that died.
            end_launch(lease.left_mark)
        yield salvage
    finally:
        lease.release()
