"""The terminal: data goes to standard output, everything else to standard error.

Users' data is never markup or control codes: it goes through `clean` before it is shown.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Literal, TextIO

Colour = Literal["red", "green", "yellow", "blue", "dim", "bold"]
_CODES: dict[Colour, str] = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
_NEWLINES = re.compile(r"[ \t]*[\r\n\x0b\x0c\x85\u2028\u2029]+[ \t]*")
# C0 and C1, and what changes the direction or hides text: marks, embeddings, isolates, zero-width, the BOM, tags.
_CONTROLS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_HIDDEN = re.compile(f"[{_CONTROLS}]")
_ASCII = str.maketrans({"→": "->", "…": "...", "\u00d7": "x"})


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError:
        return Path("/")  # the folder is gone; `main` reports it


HERE = _here()
"""The folder the user is in. A launch changes to the job's folder, but prints paths relative to this one."""


def clean(text: object, *, limit: int = 500) -> str:
    """One line that a terminal shows as it is: no escape sequences, controls or lone surrogates."""
    line = _HIDDEN.sub("", _NEWLINES.sub(" ", _ESCAPES.sub("", str(text)))).replace("\t", " ")
    line = line.encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def clean_text(text: str) -> str:
    """Like `clean`, for text of several lines, such as a traceback."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return _HIDDEN.sub("", text).encode("utf-8", "backslashreplace").decode()


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
    try:
        _write(sys.__stdout__, line)
    except BrokenPipeError:
        raise ReaderGone from None


def put_json(value: Any) -> None:
    import orjson

    put(json_for(sys.__stdout__, orjson.dumps(value, default=str).decode()))


def put_bytes(data: bytes) -> None:
    """Print bytes unchanged, without flushing: there may be a million lines."""
    try:
        sys.stdout.buffer.write(data)
    except BrokenPipeError:
        raise ReaderGone from None


def put_json_lines(data: bytes) -> None:
    """Print whole lines of JSON, without flushing."""
    put_bytes(json_for(sys.stdout, data.decode()).encode() if sys.stdout.isatty() else data)


def json_for(stream: TextIO | None, text: str) -> str:
    """JSON for a stream; for a terminal, the same value with control characters escaped."""
    if stream is None or not stream.isatty():
        return text
    import json

    return _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def say(line: str = "") -> None:
    """Print a line for people. If standard error is closed, the line is lost and the run continues."""
    try:
        # Not sys.stderr: while agents run, it is a stand-in that captures their prints.
        _write(sys.__stderr__, line)
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


def is_terminal(stream: TextIO | None) -> bool:
    """Whether it is a terminal that understands escape codes."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def coloured(text: str, colour: Colour | None, stream: TextIO | None = None) -> str:
    stream = stream if stream is not None else sys.__stderr__
    if colour is None or os.environ.get("NO_COLOR") or not is_terminal(stream):
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ago(seconds: float) -> str:
    from agentrun.values.units import format_duration

    return "just now" if seconds < 1 else f"{format_duration(round(seconds))} ago"
