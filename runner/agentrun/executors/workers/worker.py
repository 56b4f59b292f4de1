"""A worker process: makes its agent once, and runs one attempt after the other.

It speaks with the runner over a socket, in frames: one byte for the kind, eight for the length, the body.
Kinds: JSON; JSON with what orjson does not take (lone surrogates, integers beyond 64 bits); bytes as they are.
After the runner's first frame, which says what to load:

    runner → {"type": "attempt", …}
    worker → {"type": "ready"}                    once, when the agent is loaded; the clock starts here
    worker → {"type": "progress", …} …            messages of the channel, each answered by one frame
    worker → {"type": "outcome", "kind": …, …}    followed by the output, as bytes

At the end of input it lets the agent close, and exits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from agentrun.agents.attempt import Attempt, Outcome
from agentrun.agents.context import Context
from agentrun.agents.exceptions import outcome_from
from agentrun.agents.loading import load_in_worker
from agentrun.executors.calling import close_agent, perform
from agentrun.executors.prints import open_log
from agentrun.executors.workers.wire import Wire
from agentrun.item import Item


def describe_attempt(attempt: Attempt) -> dict[str, Any]:
    """By reference: the item's place or content, never the agent."""
    item = attempt.item
    return {
        "type": "attempt",
        "index": item.index,
        "key": item.key,
        "data": item.data,
        "path": None if item.path is None else str(item.path),
        "line": item.line,
        "generation": attempt.generation,
        "launch": attempt.launch,
        "number": attempt.number,
        "run_id": attempt.run_id,
        "params": dict(attempt.params),
        "carry": attempt.carry,
        "timeout_seconds": attempt.timeout_seconds,
        "log_path": str(attempt.log_path),
        "folder": attempt.folder,
    }


def attempt_from(message: dict[str, Any]) -> Attempt:
    path = None if message["path"] is None else Path(message["path"])
    item = Item(message["index"], message["key"], message["data"], path, message["line"])
    return Attempt(
        item=item,
        generation=message["generation"],
        launch=message["launch"],
        number=message["number"],
        run_id=message["run_id"],
        params=message["params"],
        carry=message["carry"],
        timeout_seconds=message["timeout_seconds"],
        log_path=Path(message["log_path"]),
        folder=message["folder"],
    )


class Worker:
    def __init__(self, wire: Wire, hello: dict[str, Any]) -> None:
        self._wire = wire
        self._hello = hello
        self._target: Any = None
        self._null = os.open(os.devnull, os.O_RDWR)

    def serve(self) -> None:
        while (message := self._next()) is not None:
            if not self._attempt(attempt_from(message)):
                return
        if self._hello["is_class"] and self._target is not None:
            import asyncio

            asyncio.run(close_agent(self._target))

    def _next(self) -> dict[str, Any] | None:
        try:
            message: dict[str, Any] = self._wire.read()
        except EOFError:
            return None
        self._wire.begin()
        return message

    def _attempt(self, attempt: Attempt) -> bool:
        """False if the agent could not be loaded."""
        # On the descriptors, so that what C code and the agent's own children print is caught too.
        self._print_to(open_log(attempt.log_path), close=True)
        loaded = self._target is not None
        try:
            if not loaded:
                self._target = self._load()
                loaded = True
                self._wire.write({"type": "ready"})
            wants_ctx, carries = self._hello["wants_ctx"], self._hello["carry"]
            context = Context(attempt, self._wire, carries=carries) if wants_ctx else None
            outcome = perform(self._target, attempt.item, context, self._wire)
        except BaseException as error:
            outcome = outcome_from(error)
        _flush()
        self._print_to(self._null)
        self._wire.finish(describe_outcome(outcome, ends=not loaded), outcome.output)
        return loaded

    def _load(self) -> Any:
        hello = self._hello
        target = load_in_worker(hello["reference"], Path(hello["base"]), as_main=hello["is_main"])
        return target() if hello["is_class"] else target

    def _print_to(self, fd: int, *, close: bool = False) -> None:
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        if close:
            os.close(fd)


def describe_outcome(outcome: Outcome, *, ends: bool) -> dict[str, Any]:
    """`ends`: the agent could not be loaded, and this worker is of no use."""
    failure = None if outcome.failure is None else outcome.failure.as_json()
    return {"type": "outcome", "kind": outcome.kind, "failure": failure, "made_files": outcome.made_files, "ends": ends}


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    ctypes = sys.modules.get("ctypes")  # not imported only for this
    if ctypes is not None:
        ctypes.CDLL(None).fflush(None)


def main(fd: int) -> None:
    import faulthandler

    os.set_inheritable(fd, False)
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    wire = Wire(fd)
    try:
        hello = wire.read()
    except EOFError:
        return
    sys.path += [entry for entry in hello["sys_path"] if entry not in sys.path]
    sys.argv = [hello["reference"]]
    Worker(wire, hello).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
