"""A shell in which the commands of a story are run, as a reader would type them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from cli.terminal import Terminal
from waiting import PATIENCE_SECONDS, eventually

_END = "-- end of this command --"
PROMPT = "[q]uit: "


def reader_environment(home: Path, **more: str) -> dict[str, str]:
    """What a newcomer has: `agentrun` and `python` on the PATH, a home of their own, and no settings of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTRUN_", "OPENAI_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "HOME": str(home), "USER": "grace", "LOGNAME": "grace", "PYTHONUTF8": "1", **more}


class Shell:
    """One bash for a whole story, so that `cd`, `export` and `$?` mean what they say."""

    def __init__(self, cwd: Path, environ: dict[str, str], *, within: Sequence[str] = ()) -> None:
        """`within` are words that stand before every program, such as those that give the machine another name."""
        self._within = list(within)
        self._process = subprocess.Popen(
            [*within, "bash", "--noprofile", "--norc"],
            cwd=cwd,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._code = 0

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, command: str) -> tuple[str, int]:
        """What a command prints, and its exit code."""
        assert self._process.stdin is not None and self._process.stdout is not None
        # `$?` is that of the reader's last command; the newline ends an output that does not end with one.
        script = f"(exit {self._code})\n{{ {command}\n}} </dev/null 2>&1\nprintf '\\n{_END}%s\\n' \"$?\"\n"
        self._process.stdin.write(script)
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.startswith(_END):
                self._code = int(line[len(_END) :])
                return "".join(printed).removesuffix("\n"), self._code
            printed.append(line)
        raise AssertionError(f"the shell ended at: {command}\n{''.join(printed)}")

    def run_and_kill(self, command: str, is_time: Callable[[Any], bool]) -> str:
        """Start a command, and kill it once its checkpoint is so; what bash would show."""
        words, cwd, environ = self._words(command)
        started = subprocess.Popen(
            [*self._within, *words],
            cwd=cwd,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

        def is_there() -> bool:
            try:
                if any(cwd.glob(".agentrun/*/store.json")):
                    found = subprocess.run([words[0], "status", "--json"], cwd=cwd, env=environ, capture_output=True)
                    return any(map(is_time, json.loads(found.stdout or "[]")))
                return any(is_time(json.loads(path.read_bytes())) for path in cwd.glob("**/.agentrun/*/state.json"))
            except FileNotFoundError:  # a folder that is searched was removed meanwhile
                return False

        eventually(is_there, f"the time to kill {command}", alive=started)
        started.send_signal(signal.SIGKILL)
        printed, _ = started.communicate()
        self._code = 137
        return f"{printed}Killed\n"

    def run_and_interrupt(self, command: str, words: str) -> tuple[str, int]:
        """Start a command, and type Ctrl-C once it has printed these words."""
        started_words, cwd, environ = self._words(command)
        with tempfile.TemporaryFile("w+") as printed:
            started = subprocess.Popen(started_words, cwd=cwd, env=environ, stdout=printed, stderr=subprocess.STDOUT)
            try:
                eventually(lambda: words in _text(printed), f"{words!r} by {command}", alive=started)
                started.send_signal(signal.SIGINT)
                self._code = started.wait(PATIENCE_SECONDS)
            finally:
                started.kill()
            return _text(printed), self._code

    def run_and_type(self, command: str, answers: list[str]) -> tuple[str, int]:
        """Run a command on a terminal, and type an answer each time it asks."""
        words, cwd, environ = self._words(command)
        # As wide as the longest line of a page.
        terminal = Terminal(*words[1:], cwd=cwd, **{**environ, "TERM": "xterm", "COLUMNS": "120"})
        try:
            for answer in answers:
                terminal.until(PROMPT)
                terminal.type(answer)
            self._code, _ = terminal.end()
        finally:
            terminal.close()
        return terminal.screen.replace("\r\n", "\n"), self._code

    def _words(self, command: str) -> tuple[list[str], Path, dict[str, str]]:
        """The words of a simple command, its folder, and its environment with what stands before the words."""
        code = self._code
        cwd = Path(self.run("pwd")[0].strip())
        environ = dict(
            line.split("=", 1) for line in self.run("env -0 | tr '\\n\\0' ' \\n'")[0].splitlines() if "=" in line
        )
        self._code = code
        words = shlex.split(command)
        while re.match(r"\w+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            environ[name] = value
        return words, cwd, environ


def _text(file: TextIO) -> str:
    file.seek(0)
    return file.read()


def shape(text: str) -> str:
    """What is printed, without what differs from one day to the next."""
    text = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z?", "TIME", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\d\b", "DATE", text)
    text = re.sub(r"\b\d\d:\d\d(:\d\d)?\b", "CLOCK", text)
    text = re.sub(r"\b\d{8}T\d{6}-[0-9a-f]+", "RUN", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "HASH", text)
    text = re.sub(r"just now|\b[\d.]+ ?(ms|s|m|h|d) ago", "AGO", text)
    # Columns are as wide as what is in them.
    text = re.sub(r" +(?=\S)", lambda found: " " if found.start() else found[0], text)
    text = re.sub(r"\b[\d.]+(ms|s)\b", "SPAN", text)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip("\n")


def is_shown(expected: str, printed: str, varies: list[str]) -> bool:
    """Whether a page shows what is printed; `…` stands for anything."""
    pattern = re.escape(shape(expected))
    for number in varies:
        pattern = re.sub(rf"(?<![\w.]){re.escape(re.escape(number))}(?!\w)", r"[\\d.,]+", pattern)
    pattern = pattern.replace("…", "(?s:.*)")
    return re.fullmatch(pattern, shape(printed)) is not None
