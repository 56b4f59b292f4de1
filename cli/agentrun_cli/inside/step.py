"""agentrun step: a command in a program whose output is remembered, so that it is not run twice."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from agentrun_cli.inside.command import FOR_GOOD, WRONG, Left, as_text, connect, write

USAGE = "NAME -- COMMAND…"
HELP = """In a program: remember what a command prints.

\b
notes=$(agentrun step search -- curl -s "$url")

If this item finished the step NAME before a crash, a retry or a pause, the output of that time is printed and COMMAND
is not run. Otherwise COMMAND is run; if it exits with 0, its output is printed once it is on disk. If not, nothing is
remembered, and the exit code is COMMAND's.
"""
_LONG_TEXT_BYTES = 24 * 1024 * 1024


def main(words: list[str]) -> int:
    name, command = _split(words)
    with connect() as runner:
        found = runner.call({"type": "step_get", "name": name})
        if found["found"]:
            write(unpack(json.loads(found["output"])))
            return 0
        began = time.monotonic()
        output, code = _run(command)
        if code == 0:
            seconds = round(time.monotonic() - began, 3)
            step = {"type": "step_put", "name": name, "n": found["n"], "output": pack(output), "seconds": seconds}
            runner.call(step)
        write(output)
        return code


def _split(words: list[str]) -> tuple[str, list[str]]:
    if "--" not in words:
        raise Left(WRONG, "write the command after `--`: agentrun step NAME -- COMMAND…")
    at = words.index("--")
    names, command = words[:at], words[at + 1 :]
    if len(names) != 1 or not names[0]:
        raise Left(WRONG, f"write one name before `--`; found {len(names)}: agentrun step NAME -- COMMAND…")
    if not command:
        raise Left(WRONG, "there is no command after `--`: agentrun step NAME -- COMMAND…")
    return as_text(names[0]), command


def pack(output: bytes) -> str:
    """JSON from which `unpack` makes the same bytes: text, where it is text."""
    try:
        text = json.dumps(output.decode(), ensure_ascii=False)
        # Inside a message it is escaped once more; text full of control characters would grow sevenfold.
        if len(text) < _LONG_TEXT_BYTES and len(json.dumps(text)) < _LONG_TEXT_BYTES:
            return text
    except UnicodeDecodeError:
        pass
    from base64 import b64encode

    return json.dumps({"base64": b64encode(output).decode()})


def unpack(value: Any) -> bytes:
    """The bytes to print for a remembered value; what `pack` did not write is printed as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        from base64 import b64decode

        return b64decode(value["base64"])
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _run(command: list[str]) -> tuple[bytes, int]:
    """What the command printed, and its exit code as a shell reports it."""
    from agentrun.executors.programs.protocol import CANNOT_RUN, NOT_FOUND, OUTPUT_LIMIT_BYTES

    reading, writing = os.pipe()
    try:
        # Not subprocess, which takes longer to import than all of this to run. Python ignores SIGPIPE; others do not.
        pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
    except (OSError, ValueError) as error:
        os.close(reading)
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        why = getattr(error, "strerror", None) or error
        raise Left(code, f'"{command[0]}" cannot be started: {why}') from None
    finally:
        os.close(writing)
    output = bytearray()
    while len(output) <= OUTPUT_LIMIT_BYTES and (chunk := os.read(reading, 1 << 20)):
        output += chunk
    if len(output) > OUTPUT_LIMIT_BYTES:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        most = OUTPUT_LIMIT_BYTES // 1024 // 1024
        raise Left(FOR_GOOD, f"its output is over {most} MiB; write it to a file in AGENTRUN_ITEM_DIR")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return bytes(output), code if code >= 0 else 128 - code
