"""Capturing what attempts print in the runner's own process.

`capture_prints` replaces standard output and error for a launch's lifetime. What an attempt writes goes to its log;
everything else goes where it always went. `logging` handlers are redirected too, whenever they were made.
"""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, TextIO

from agentrun.system.disk import Held, first_moved, open_file, open_to_read

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")  # colours, window titles


def open_log(path: Path | str) -> int:
    """Open an attempt's log, emptied. Every writer appends, so that the runner can trim it meanwhile."""
    return open_file(path, _APPEND | os.O_TRUNC)


def empty_log(path: Path) -> None:
    """Empty the log for the next attempt of a program that has it open. Most programs write nothing."""
    try:
        if os.lstat(path).st_size:
            os.close(open_log(path))
    except FileNotFoundError:
        os.close(open_log(path))


def last_line(path: Path) -> str:
    """The last line of a log that is not blank, without control characters; empty if there is none."""
    try:
        with open_to_read(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    for line in reversed(text.splitlines()):
        clean = "".join(c for c in _ESCAPES.sub("", line) if c.isprintable()).strip()
        if clean:
            return clean[:500]
    return ""


class LogSink:
    """The log of one attempt. Most attempts print nothing: the file is opened by the first write."""

    _used: ClassVar[set[Path]] = set()
    """Logs that an earlier attempt wrote to."""

    __slots__ = ("_held", "_lock", "_path", "is_open")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: Held | None = None
        self.is_open = True
        self._lock = threading.Lock()
        if self._used and path in self._used:
            self._used.discard(path)
            os.close(open_log(path))

    def write(self, data: bytes) -> None:
        with self._lock:
            if not self.is_open:  # a thread of an attempt that is over
                return
            try:
                if self._held is None:
                    self._held = Held(open_log(self._path), str(self._path))
                    self._used.add(self._path)
                elif first_moved(self._held) is not None:
                    # The agent has closed our descriptor; its number may be the agent's own file by now.
                    self._held.close()
                    self._held = Held(open_file(self._path, _APPEND), str(self._path))
                os.write(self._held.fd, data)
            except OSError:
                # The next checkpoint reports a full disk; an agent's print must not fail because of it.
                pass

    def close(self) -> None:
        """Nothing is written from now on; prints of its context are dropped."""
        if self in _live:
            _live.remove(self)
        with self._lock:
            self.is_open = False
            if self._held is not None:
                self._held.close()
                self._held = None


_sink: ContextVar[LogSink | None] = ContextVar("agentrun_log", default=None)
_live: list[LogSink] = []
_installed_by: threading.Thread | None = None


def capture_to(sink: LogSink) -> None:
    """Send the prints of this context, and of its copies, to the sink."""
    _sink.set(sink)
    _live.append(sink)


def release_from(sink: LogSink) -> None:
    """Undo `capture_to`; closing the sink does, too."""
    if sink in _live:
        _live.remove(sink)
    _sink.set(None)


@contextmanager
def capturing_to(sink: LogSink) -> Iterator[None]:
    capture_to(sink)
    try:
        yield
    finally:
        release_from(sink)


def _current_sink() -> LogSink | None:
    sink = _sink.get()
    if sink is None and _live and threading.current_thread() is not _installed_by:
        # A thread that an agent started has an empty context. The log of an attempt in flight is a better place
        # than the middle of the progress bar.
        sink = _live[-1]
    return sink


class _Bytes(io.RawIOBase):
    def __init__(self, original: Any) -> None:
        self._original = original

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        sink = _current_sink()
        if sink is None:
            return int(self._original.write(data))
        sink.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        if _current_sink() is None:
            self._original.flush()


class _Stream(io.TextIOBase):
    """Standard output or error. Everything it does not define is the original's."""

    def __init__(self, original: TextIO) -> None:
        self.original = original

    def write(self, text: str) -> int:
        sink = _current_sink()
        if sink is None:
            return self.original.write(text)
        sink.write(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if _current_sink() is None:
            self.original.flush()

    def isatty(self) -> bool:
        return _current_sink() is None and self.original.isatty()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.original.fileno()

    def close(self) -> None:
        """Nothing: an agent must not close it."""

    @property
    def buffer(self) -> Any:
        return _Bytes(self.original.buffer)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.original.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.original.errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


@contextmanager
def capture_prints() -> Iterator[None]:
    global _installed_by
    before = sys.stdout, sys.stderr, _installed_by
    stdout, stderr = _Stream(sys.stdout), _Stream(sys.stderr)
    sys.stdout, sys.stderr, _installed_by = stdout, stderr, threading.current_thread()
    moved = [(handler, handler.setStream(stream)) for handler, stream in _handlers_on(stdout, stderr)]
    try:
        yield
    finally:
        for handler, original in moved:
            handler.setStream(original)
        if sys.stdout is stdout:
            sys.stdout = before[0]
        if sys.stderr is stderr:
            sys.stderr = before[1]
        _installed_by = before[2]


def _handlers_on(*streams: _Stream) -> Iterator[tuple[Any, _Stream]]:
    """The logging handlers, made before the streams were replaced, that still write to the originals."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    for logger in [logging.root, *logging.root.manager.loggerDict.values()]:
        for handler in getattr(logger, "handlers", ()):
            for stream in streams:
                if getattr(handler, "stream", None) is stream.original and hasattr(handler, "setStream"):
                    yield handler, stream
