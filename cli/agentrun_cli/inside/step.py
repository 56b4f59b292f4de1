"""agentrun step: remember the output of part of an item, so that it is not done twice."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from agentrun_cli.inside.command import FOR_GOOD, WRONG, Left, as_text, open_caller, write

USAGE = "NAME -- COMMAND…"
HELP = """In a program: remember what a command prints.

If this item has already finished the step NAME (before a crash, a retry or a pause), the remembered output is printed
and COMMAND is not run. Otherwise COMMAND is run. If it exits with 0, its output is printed once it is on disk. If
not, nothing is remembered, and the exit code is COMMAND's.
"""
OUTPUT_LIMIT_BYTES = 16 * 1024 * 1024
_LONG_TEXT_BYTES = 24 * 1024 * 1024
CANNOT_RUN, NOT_FOUND = 126, 127


def main(words: list[str]) -> int:
    name, command = _split(words)
    with open_caller() as caller:
        found = caller.call({"type": "step_get", "name": name})
        if found["found"]:
            write(unpack(json.loads(found["output"])))
            return 0
        began = time.monotonic()
        output, code = _run(command)
        if code == 0:
            seconds = round(time.monotonic() - began, 3)
            step = {"type": "step_put", "name": name, "n": found["n"], "output": pack(output), "seconds": seconds}
            caller.call(step)
        write(output)
        return code


def _split(words: list[str]) -> tuple[str, list[str]]:
    if "--" not in words:
        raise Left(WRONG, "put the command after `--`: agentrun step NAME -- COMMAND…")
    at = words.index("--")
    names, command = words[:at], words[at + 1 :]
    if len(names) != 1 or not names[0]:
        raise Left(WRONG, f"give one name before `--`, not {len(names)}: agentrun step NAME -- COMMAND…")
    if not command:
        raise Left(WRONG, "there is no command after `--`: agentrun step NAME -- COMMAND…")
    return as_text(names[0]), command


def pack(output: bytes) -> str:
    """JSON from which `unpack` makes the same bytes: text, where it is text."""
    try:
        text = json.dumps(output.decode(), ensure_ascii=False)
        # Inside a message it is escaped once more; text made of control characters would grow sevenfold.
        if len(text) < _LONG_TEXT_BYTES and len(json.dumps(text)) < _LONG_TEXT_BYTES:
            return text
    except UnicodeDecodeError:
        pass
    from base64 import b64encode

    return json.dumps({"base64": b64encode(output).decode()})


def unpack(value: Any) -> bytes:
    """The remembered bytes; a value that an agent in another language remembered is printed as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        from base64 import b64decode

        return b64decode(value["base64"])
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _run(command: list[str]) -> tuple[bytes, int]:
    """What the command printed, and its exit code as a shell reports it."""
    reading, writing = os.pipe()
    try:
        # Not subprocess: importing it takes longer than all of this. Python ignores SIGPIPE; other programs do not.
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
