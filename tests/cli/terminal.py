"""A command that a person talks to: standard input, output and error are one terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

from cli.conftest import COMMAND, environment
from waiting import PATIENCE_SECONDS


class Terminal:
    """`until` waits for words on the screen; `type` is a line and Enter."""

    def __init__(self, *arguments: str, cwd: Path, **environ: str) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=cwd,
            env=environment(**{"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "100", **environ}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._read_to = 0
        self.screen = ""

    def until(self, words: str) -> str:
        """What appeared since the last call, up to and with `words`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (at := self.screen.find(words, self._read_to)) < 0:
            assert time.monotonic() < deadline and self._read(), f"{words!r} did not appear in:\n{self.screen}"
        begin, self._read_to = self._read_to, at + len(words)
        return self.screen[begin : self._read_to]

    def type(self, line: str) -> None:
        os.write(self._ours, line.encode() + b"\n")

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what appeared since the last call."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._read():
            assert time.monotonic() < deadline, f"it did not end:\n{self.screen}"
        return self._process.wait(timeout=PATIENCE_SECONDS), self.screen[self._read_to :]

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._ours)

    def _read(self) -> bool:
        """False once nobody writes there any more."""
        if not select.select([self._ours], [], [], 0.1)[0]:
            return True
        try:
            piece = os.read(self._ours, 65536)
        except OSError:
            return False
        self.screen += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)
