"""What all programs share: the description of their attempt, their folders, and the outcomes of what they print."""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import re
import threading
from typing import Any

import orjson
from msgspec.structs import replace

from agentrun.agents.attempt import Attempt, Outcome
from agentrun.agents.context import idempotency_key
from agentrun.agents.exceptions import failure_from, outcome_without_start
from agentrun.agents.failure import Failure
from agentrun.errors import Fail
from agentrun.executors.programs.protocol import CANNOT_RUN, NOT_FOUND, OUTPUT_LIMIT_BYTES
from agentrun.item import Item
from agentrun.system.disk import disk_error, make_folder
from agentrun.values.json import NotJson, encode

_BEYOND_64_BITS = re.compile(rb"[0-9]{19}")


def variables(attempt: Attempt) -> dict[str, str]:
    """The environment variables that describe an attempt to its program."""
    item = attempt.item
    found = {
        "AGENTRUN_ITEM_KEY": item.key,
        "AGENTRUN_ITEM_INDEX": str(item.index),
        "AGENTRUN_ATTEMPT": str(attempt.number),
        "AGENTRUN_IDEMPOTENCY_KEY": idempotency_key(attempt.series, item.key, attempt.generation),
    }
    return {**run_variables(attempt), **_without_nul(found)}


def run_variables(attempt: Attempt) -> dict[str, str]:
    """The variables that are the same for all items of a run."""
    found = {"AGENTRUN_RUN_ID": attempt.run_id}
    for name, value in attempt.params.items():
        text = value if isinstance(value, str) else encode(value, name=name).decode()
        found["AGENTRUN_PARAM_" + re.sub(r"[^A-Z0-9_]", "_", name.upper())] = text
    return _without_nul(found)


def _without_nul(found: dict[str, str]) -> dict[str, str]:
    for name, text in found.items():
        if "\0" in text:
            raise ValueError(f"{name} would hold a NUL, which no environment variable can")
    return found


def describe_item(item: Item) -> dict[str, Any]:
    """The item as JSON, as programs get it."""
    described = {"index": item.index, "key": item.key}
    if item.path is not None:
        return {**described, "path": str(item.path)}
    if item.line is not None:
        return {**described, "text": item.line}
    return {**described, "data": item.data}


def make_folders(work: str) -> tuple[str, str]:
    """Make the item's scratch and the folder for its files; what an earlier attempt left in them stays."""
    scratch, out = f"{work}/dir", f"{work}/out"
    try:
        for path in (work, scratch, out):
            try:
                make_folder(path)
            except FileExistsError:
                pass
    except FileNotFoundError:
        make_folder(os.path.dirname(work))
        return make_folders(work)
    except OSError as error:
        raise disk_error(work, error) from error
    return scratch, out


class Broom:
    """Removes the folders that programs left empty, which most do, in a thread of its own: the disk takes its time.

    Folders that remain, or that a launch left when it died, are removed when a run ends or the next launch starts.
    """

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def sweep(self, work: str) -> bool:
        """Remove the item's folders; False if they hold something, and stay."""
        try:
            if os.listdir(f"{work}/dir") or os.listdir(f"{work}/out"):
                return False
        except OSError:
            return False
        if self._thread is None:
            thread = threading.Thread(target=self._remove, name="agentrun-broom", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads can be started
                return False
            self._thread = thread
        self._works.put(work)
        return True

    def _remove(self) -> None:
        while (work := self._works.get()) is not None:
            try:
                for path in (f"{work}/dir", f"{work}/out", work):
                    os.rmdir(path)
            except OSError:
                pass

    async def close(self) -> None:
        if self._thread is not None:
            self._works.put(None)
            await asyncio.to_thread(self._thread.join)


def write_json(value: Any) -> bytes:
    """JSON text of a value that came from us or from JSON; lone surrogates and big integers are written, too."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):
        import json

        return json.dumps(value).encode()


def read_json(data: bytes | bytearray) -> Any:
    """The value of a JSON text; ValueError if it is not JSON."""
    value = orjson.loads(data)
    if _BEYOND_64_BITS.search(data):  # which orjson would silently turn into a float
        import json

        value = json.loads(data)
    return value


def parse_json(text: str) -> Outcome:
    """The outcome of a program whose output must be JSON."""
    try:
        return Outcome("done", encode(read_json(text.encode())))
    except NotJson as error:
        return Outcome("failed", failure=failure_from(error))
    except ValueError as error:
        found = f"it begins with {text[:60]!r}" if text.strip() else "there is none"
        message = f"exit 0, but its output is not JSON: {error}; {found}"
        return Outcome("failed", failure=Failure("program", message, exit_code=0))


def too_long() -> Outcome:
    message = f"its output is over {OUTPUT_LIMIT_BYTES // 1024 // 1024} MiB; write it to a file, and print the name"
    return Outcome("failed", failure=Failure("output", message))


def timed_out(seconds: float | None) -> Outcome:
    return Outcome("failed", failure=Failure("timeout", f"timed out after {seconds:g} s"))


def fail(message: str) -> Outcome:
    """The outcome of an item that fails for good."""
    return Outcome("failed", failure=replace(failure_from(Fail(message)), traceback=""))


def cannot_start(error: OSError, program: str) -> Outcome:
    if (outcome := outcome_without_start(error, f'"{program}"')) is not None:
        return outcome
    why = os.strerror(error.errno) if error.errno else str(error)
    message = f'"{program}" cannot be started: {why}'
    if error.errno == errno.E2BIG:
        return fail(f"{message}; read the item from standard input, where it is as JSON, instead of an argument")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        message += " (or the interpreter named in its first line does not exist)"
        return Outcome("failed", failure=Failure("program", message, exit_code=NOT_FOUND))
    if error.errno in (errno.EACCES, errno.EPERM, errno.ENOEXEC):
        return Outcome("failed", failure=Failure("program", message, exit_code=CANNOT_RUN))
    return Outcome("lost", failure=Failure("lost", message))
