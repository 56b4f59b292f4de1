"""A launch and the cluster that its attempts run on: what its checkpoints say of it, and how wide it is."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from agentrun.checkpoint.checkpoint import EngineUse
from agentrun.executors.port import Elastic, Executor, Joined
from agentrun.launch.committer import Checkpointing
from agentrun.launch.slots import Slots
from agentrun.runs.run import Run

StopsWithin = Callable[[float], Awaitable[bool]]
"""Wait so long; True as soon as the launch stops."""


def join_cluster(
    run: Run, executor: Elastic, slots: Slots, checkpointing: Checkpointing, *, warn: Callable[[str], None]
) -> None:
    """Before the launch's first commit, which names the mark of the run: no host is started without it."""
    assert run.job.engine is not None
    lease_seconds = run.job.engine.lease_seconds
    use = run.context.engine or EngineUse(mark=secrets.token_hex(8), lease_seconds=lease_seconds)
    run.context.engine = use
    growing: set[asyncio.Future[None]] = set()
    has_changed = False

    def changed() -> None:
        nonlocal has_changed
        slots.set_capacity(executor.width)
        # The checkpoint that names further items lets them begin. One at a time: hosts come in crowds.
        has_changed = slots.has_room and bool(growing)
        if slots.has_room and not growing:
            growing.add(commit := checkpointing.commit())
            commit.add_done_callback(landed)

    def landed(commit: asyncio.Future[None]) -> None:
        # A commit that failed ends the launch by way of those that wait for it.
        growing.discard(commit)
        if not commit.cancelled() and commit.exception() is None and has_changed:
            # What came while that one was being written is in none yet.
            changed()

    run.where = executor.where
    slots.set_capacity(executor.width)
    executor.join(Joined(use, checkpointing.commit, changed, warn))


async def leave_cluster(run: Run, *, warn: Callable[[str], None], stops_within: StopsWithin) -> None:
    """A launch on this machine alone, after one on a cluster that died: nothing begins before all leases have ended."""
    use = run.context.engine
    if use is not None and use.hosts:
        seconds = use.longest_seconds
        warn(f"the last launch ran on a cluster; waiting {seconds:g} s, until nothing of it can be running there")
        if await stops_within(seconds):
            return
    run.context.engine = None


def note_clean_stop(run: Run, executor: Executor) -> None:
    """Nothing is in flight any more: the next launch need look for it only where this one could not."""
    if run.context.engine is not None and isinstance(executor, Elastic) and executor.is_alone:
        run.context.engine.hosts = executor.places_left
