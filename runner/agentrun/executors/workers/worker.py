"""A worker process: it loads its agent once, and runs one attempt after the other.

It exchanges frames with the runner over a socket. The runner's first frame is the AgentReference; then:

    runner → {"type": "attempt", …}                       an Attempt, whose parts make its id
    worker → {"type": "ready", "id": …}                   once, when the agent is loaded; the attempt's time starts here
    worker → {"type": "progress", "id": …, "no": 1, …}    messages of the channel; each is answered by one frame, which
                                                          repeats `id` and `no`
    worker → {"type": "outcome", "id": …, "no": 2, …}     Ended, with the output as bytes in the same frame

With `ends` the worker exits: the agent could not be loaded, or the process has used up its descriptors or threads. At
the end of its input it lets the agent close, and exits. Whatever else it reads ends it at once; a child that the agent
forked has no part in any of this.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from msgspec.structs import replace

from agentrun.agents.attempt import Attempt
from agentrun.agents.context import LazyContext
from agentrun.agents.exceptions import outcome_from, user_traceback
from agentrun.agents.loading import AgentReference
from agentrun.executors.calling import close_agent, perform
from agentrun.executors.prints import open_log
from agentrun.executors.workers.frames import WorkerEnd, leave
from agentrun.system.forks import ending_children
from agentrun.system.shortage import SHORTAGE


class Worker:
    """What a worker process does, from its first attempt to its last."""

    def __init__(self, end: WorkerEnd, agent: AgentReference) -> None:
        self._end = end
        self._agent = agent
        self._target: Any = None
        self._null = os.open(os.devnull, os.O_RDWR)

    def run(self) -> None:
        while (attempt := self._next()) is not None:
            if not self._attempt(attempt):
                return
        if self._agent.is_class and self._target is not None:
            import asyncio

            asyncio.run(close_agent(self._target))

    def _next(self) -> Attempt | None:
        try:
            frame = self._end.read()
        except EOFError:
            return None
        if frame.get("type") != "attempt":
            leave("the runner sent something that is no attempt")
        attempt = Attempt.from_json(frame)
        self._end.open(attempt)
        return attempt

    def _attempt(self, attempt: Attempt) -> bool:
        """Run it; False if the agent could not be loaded, or this process has nothing left for another attempt."""
        # On the descriptors, to catch what C code and the agent's own children print, too.
        self._print_to(open_log(attempt.log_path), close=True)
        loaded = self._target is not None
        try:
            if not loaded:
                self._target = self._agent.load()
                loaded = True
                self._end.ready()
            wants_ctx, carries = self._agent.wants_ctx, self._agent.carries
            context = LazyContext(attempt, self._end, carries)
            outcome = perform(self._target, attempt.item, context, self._end, wants_ctx=wants_ctx)
        except BaseException as error:
            outcome = outcome_from(error)
        goes_on = loaded
        if outcome.failure is not None and outcome.failure.code == SHORTAGE:
            # This process has descriptors and threads of its own: the lack is the item's, but not the next one's.
            outcome.failure, goes_on = replace(outcome.failure, code=""), False
        _flush()
        self._print_to(self._null)
        self._end.close(outcome, ends=not goes_on)
        return goes_on

    def _print_to(self, fd: int, *, close: bool = False) -> None:
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        if close:
            os.close(fd)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    ctypes = sys.modules.get("ctypes")  # not worth an import of its own
    if ctypes is not None:
        ctypes.CDLL(None).fflush(None)


def main(fd: int) -> None:
    import faulthandler

    os.set_inheritable(fd, False)
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    end = WorkerEnd(fd)
    try:
        agent = AgentReference.from_json(end.read())
    except EOFError:
        return
    sys.path += [entry for entry in agent.sys_path if entry not in sys.path]
    sys.argv = [agent.reference]
    # Also those that are forked while the agent is loaded or closed.
    with ending_children(user_traceback):
        Worker(end, agent).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
