"""A terminal that keeps its screen, as people see it: tmux."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from cli.conftest import environment
from needs import require_program


class Tmux:
    """A program in a window of 80 columns and 24 lines; `folder` holds the socket."""

    def __init__(self, folder: Path, *program: str) -> None:
        require_program("tmux")
        self._socket = str(folder / "tmux")
        self._tell("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "-c", str(folder), *program)

    def __enter__(self) -> Tmux:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell("kill-server")

    def type(self, text: str) -> None:
        self._tell("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._tell("send-keys", *keys)

    def enter(self, line: str) -> None:
        self.type(line)
        self.press("Enter")

    def resize(self, columns: int, lines: int) -> None:
        self._tell("resize-window", "-x", str(columns), "-y", str(lines))

    def shown(self) -> list[str]:
        return self._tell("capture-pane", "-p").splitlines()

    def everything(self) -> list[str]:
        """With what was moved off the top."""
        return self._tell("capture-pane", "-p", "-S", "-").splitlines()

    def _tell(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, *words]
        return subprocess.run(command, env=environment(TERM="xterm"), capture_output=True, text=True, check=True).stdout
