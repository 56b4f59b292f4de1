"""The terminal: data goes to standard output, everything else to standard error.

Users' data is never markup or control codes: it goes through `clean` before it is shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

from agentrun.values.text import HIDDEN
from agentrun.values.text import clean as clean
from agentrun.values.text import clean_text as clean_text

Colour = Literal["red", "green", "yellow", "blue", "dim", "bold"]
_CODES: dict[Colour, str] = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
_ASCII = str.maketrans({"→": "->", "…": "...", "\u00d7": "x", "━": "#", "─": "-", "·": "|"})
_is_plain = False


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError:
        return Path("/")  # the folder is gone; `main` reports it


HERE = _here()
"""The folder the user is in. A launch changes to the job's folder, but prints paths relative to this one."""


def shown_path(path: Path | str) -> str:
    """A path, relative to the user's folder where that is short."""
    path = Path(path)
    if not path.is_absolute():
        return clean(path)
    relative = os.path.relpath(path, HERE)
    return clean(path if relative.startswith(os.path.join("..", "..", "..")) else relative)


def prepare_streams() -> None:
    """Make printing safe for any text, whatever the encoding."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


class ReaderGone(Exception):
    """Standard output was closed. Not an OSError, because typer handles those itself."""


def put(line: str) -> None:
    """Print a line of data."""
    with _output_errors():
        _write(sys.__stdout__, line)


def put_json(value: Any) -> None:
    import orjson

    put(json_for(sys.__stdout__, orjson.dumps(value, default=str).decode()))


def put_line(line: str) -> None:
    """Print a line of data, without flushing."""
    if sys.stdout is not None:
        put_bytes(f"{fitting(line, sys.stdout)}\n".encode(sys.stdout.encoding, "backslashreplace"))


def put_bytes(data: bytes) -> None:
    """Print bytes unchanged, without flushing: there may be a million lines."""
    with _output_errors():
        if sys.stdout is not None:
            sys.stdout.buffer.write(data)


def flush_data() -> None:
    """Print what was not flushed yet."""
    with _output_errors():
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()


@contextmanager
def _output_errors() -> Iterator[None]:
    """Where standard output cannot be written: ReaderGone, or a DiskError, as when the disk is full."""
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        from agentrun.errors import DiskError

        what = f"standard output: {os.strerror(error.errno or 0)}; nothing finished is lost"
        raise DiskError(what, errno=error.errno) from error


def put_json_lines(data: bytes) -> None:
    """Print whole lines of JSON, without flushing."""
    is_shown = sys.stdout is not None and sys.stdout.isatty()
    put_bytes(json_for(sys.stdout, data.decode()).encode() if is_shown else data)


def json_for(stream: TextIO | None, text: str) -> str:
    """JSON for a stream; for a terminal, the same value with control characters escaped."""
    if stream is None or not stream.isatty():
        return text
    import json

    return HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def say(line: str = "", stream: TextIO | None = None) -> None:
    """Print a line for people. If standard error is closed, the line is lost and the run continues."""
    try:
        # Not sys.stderr: while agents run, it is a stand-in that captures their prints.
        _write(stream if stream is not None else sys.__stderr__, line)
    except (OSError, ValueError):
        pass


def _write(stream: TextIO | None, line: str) -> None:
    if stream is not None:
        stream.write(fitting(line, stream) + "\n")
        stream.flush()


def fitting(text: str, stream: TextIO) -> str:
    """The text with ASCII substitutes for our own symbols, where the stream cannot encode them."""
    if (stream.encoding or "").lower().replace("-", "").startswith("utf"):
        return text
    return text.translate(_ASCII)


def be_plain() -> None:
    """Print no control codes from now on, also on a terminal."""
    global _is_plain
    _is_plain = True


def is_terminal(stream: TextIO | None) -> bool:
    """Whether it is a terminal that understands escape codes, and its user wants them."""
    if _is_plain or os.environ.get("ACCESSIBLE"):
        return False
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def coloured(text: str, colour: Colour | None, stream: TextIO | None = None) -> str:
    if colour is None or _is_plain or os.environ.get("NO_COLOR"):
        return text
    is_forced = os.environ.get("CLICOLOR_FORCE", "") not in ("", "0")
    if is_forced or is_terminal(stream if stream is not None else sys.__stderr__):
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"
    return text


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ago(seconds: float) -> str:
    from agentrun.values.units import format_duration

    return "just now" if seconds < 1 else f"{format_duration(round(seconds))} ago"
