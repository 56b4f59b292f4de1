"""Executing a launch: the agent's executor and the guardian around it, and the signals that stop it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

from agentrun.agents.agent import Agent
from agentrun.checkpoint.summary import Summary
from agentrun.errors import AgentrunError, BusyError, LaterError
from agentrun.events import Ended, Waiting, Watcher, Watchers, ignore
from agentrun.executors.choice import open_executor
from agentrun.executors.prints import capture_prints
from agentrun.job.fields import Layer
from agentrun.job.job import Job
from agentrun.job.options import Options
from agentrun.launch.checks import check_before_import as check_before_import
from agentrun.launch.launch import Launch as Launch
from agentrun.launch.prepare import nothing_to_resume as nothing_to_resume
from agentrun.launch.preview import plan_launch as plan_launch
from agentrun.launch.signals import stop_on_signals as stop_on_signals
from agentrun.store.port import Store as Store
from agentrun.system.forks import ending_children_of
from agentrun.system.guardian import Guardian, end_launch
from agentrun.system.shortage import lacking

LOCK_SAID_AFTER_SECONDS = 0.5
"""A runner that was killed gives its lock back within this time, when what it started is gone: not worth a line."""


async def execute(
    job: Job,
    agent: Agent,
    store: Store,
    *,
    options: Options | None = None,
    watcher: Watcher = ignore,
    kept: Layer | None = None,
    job_json: bytes | None = None,
    items: Iterable[Any] | None = None,
    stdin: BinaryIO | None = None,
    environ: Mapping[str, str] | None = None,
    began: Callable[[Launch], None] | None = None,
    terminal: int | None = None,
    is_guest: bool = False,
) -> Summary:
    """One launch, from the lock to the summary. `began` is given the launch, to stop it by.

    `terminal` is the descriptor that the watcher draws on: what is below its cursor is erased if the runner dies.

    As a guest in a user's own process, it leaves alone what else that has started.
    """
    options = options or Options()
    watcher = watcher if watcher is ignore else Watchers([watcher])
    launch = Launch(
        job,
        store,
        agent=agent.fingerprint,
        options=replace(options, wait_seconds=0.0),
        watcher=watcher,
        kept=kept,
        job_json=job_json,
        items=items,
        stdin=stdin,
    )
    if began is not None:
        began(launch)
    try:
        wait = options.wait_seconds
        summary = await _run(
            launch, job, agent, environ or {}, watcher, wait_seconds=wait, terminal=terminal, is_guest=is_guest
        )
    except AgentrunError as error:
        watcher(Ended(error.exit_code, error.message))
        raise
    except (OSError, RuntimeError) as error:
        if (lack := lacking(error)) is None:
            raise
        later = LaterError(f"{job.name}: {lack}, then resume")
        watcher(Ended(later.exit_code, later.message))
        raise later from error
    watcher(Ended(summary.exit_code, summary.reason))
    return summary


async def _run(
    launch: Launch,
    job: Job,
    agent: Agent,
    environ: Mapping[str, str],
    watcher: Watcher,
    *,
    wait_seconds: float,
    terminal: int | None,
    is_guest: bool,
) -> Summary:
    try:
        try:
            nothing_to_do = await _prepare(launch, watcher, wait_seconds=wait_seconds)
        finally:
            if launch.is_locked and launch.lease.left_mark:
                # Its guardian has done this, unless that was killed as well. Our own release will forget it.
                end_launch(launch.lease.left_mark)
        if nothing_to_do is not None:
            return nothing_to_do
        guardian = Guardian.start(launch.lease.fd, launch.lease.mark, terminal=terminal)
        watching = asyncio.ensure_future(guardian.watch())
        try:
            executor = open_executor(job, agent, guardian=guardian, environ=environ, folder=launch.workspace.folder)
            with capture_prints(), ending_children_of(asyncio.get_running_loop()):
                try:
                    return await launch.work(executor)
                finally:
                    await executor.close()
        finally:
            watching.cancel()
            guardian.close(spare_own=is_guest)
    finally:
        launch.close()


async def _prepare(launch: Launch, watcher: Watcher, *, wait_seconds: float) -> Summary | None:
    """Wait for the lock without holding up the loop, which may be the user's own."""
    began, is_said = time.monotonic(), wait_seconds <= LOCK_SAID_AFTER_SECONDS
    while True:
        try:
            return launch.prepare()
        except BusyError as error:
            waited = time.monotonic() - began
            if waited >= wait_seconds:
                raise
            if not is_said and waited >= LOCK_SAID_AFTER_SECONDS:
                watcher(Waiting(error.holder, wait_seconds))
                is_said = True
            await asyncio.sleep(0.05)
