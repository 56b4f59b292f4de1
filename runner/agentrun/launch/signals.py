"""The signals that stop a launch."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from agentrun.job.job import Job
from agentrun.launch.launch import Launch
from agentrun.system.deadlines import call_after

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MARGIN_SECONDS = 5.0
_AT_ONCE_SECONDS = 3.0


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
            call_after(patience, partial(os._exit, 128 + number))

    # What was ignored when we were started stays so: `nohup`, or a job in the background of a script.
    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            # Once it has stopped it only says so and exits: one more signal must not change the code.
            signal.signal(number, signal.SIG_IGN if exits and caught else handler)
