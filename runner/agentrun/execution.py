"""Executing a launch: the agent's executor and the guardian around it, and the signals that stop it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, BinaryIO

from agentrun.agents import Agent
from agentrun.errors import BusyError
from agentrun.events import Watcher, ignore
from agentrun.executors.guardian import Guardian, end_launch
from agentrun.executors.open import open_executor
from agentrun.executors.prints import capture_prints
from agentrun.job import Job
from agentrun.launch import Launch
from agentrun.recovery import Options
from agentrun.store.port import Store

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MARGIN_SECONDS = 5.0
_AT_ONCE_SECONDS = 3.0


async def execute(
    job: Job,
    agent: Agent,
    store: Store,
    *,
    options: Options | None = None,
    watcher: Watcher = ignore,
    kept: dict[str, Any] | None = None,
    job_json: bytes | None = None,
    items: Iterable[Any] | None = None,
    stdin: BinaryIO | None = None,
    environ: Mapping[str, str] | None = None,
    began: Callable[[Launch], None] | None = None,
    is_guest: bool = False,
) -> dict[str, Any]:
    """One launch, from the lock to the summary. `began` is given the launch, to stop it by.

    As a guest in a user's own process, it leaves alone what else that has started.
    """
    options = options or Options()
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
        try:
            nothing_to_do = await _prepare(launch, wait_seconds=options.wait_seconds)
        finally:
            if store.left_mark:
                # Its guardian has done this, unless that was killed as well. Our own release will forget it.
                end_launch(store.left_mark)
        if nothing_to_do is not None:
            return nothing_to_do
        guardian = Guardian.start(store.lock_fd, store.mark)
        watching = asyncio.ensure_future(guardian.watch())
        try:
            executor = open_executor(job, agent, guardian=guardian, environ=environ or {}, folder=store.folder)
            with capture_prints():
                try:
                    return await launch.work(executor)
                finally:
                    await executor.close()
        finally:
            watching.cancel()
            guardian.close(spare_own=is_guest)
    finally:
        launch.close()


async def _prepare(launch: Launch, *, wait_seconds: float) -> dict[str, Any] | None:
    """Wait for the lock without holding up the loop, which may be the user's own."""
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            return launch.prepare()
        except BusyError:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(0.05)


@contextmanager
def stop_on_signals(job: Job, launch: Callable[[], Launch | None], *, exits: bool) -> Iterator[list[int]]:
    """Hand signals to the launch while the block runs; the list holds those that came.

    With `exits`, a launch that does not stop in time ends the process: an agent that holds up the loop cannot keep
    it alive. What is on disk can be resumed at every moment.
    """
    caught: list[int] = []
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        current = launch()
        if current is not None:
            current.request_stop(number)

    def handle(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        loop.call_soon_threadsafe(stop, number)
        if exits:
            patience = _AT_ONCE_SECONDS if len(caught) > 1 else job.grace_seconds + _MARGIN_SECONDS
            timer = threading.Timer(patience, os._exit, [128 + number])
            timer.daemon = True
            timer.start()

    # What was ignored when we were started stays so: `nohup`, or a job in the background of a script.
    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            # Once it has stopped it only says so and exits: one more signal must not change the code.
            signal.signal(number, signal.SIG_IGN if exits and caught else handler)
