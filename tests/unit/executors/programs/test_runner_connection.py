"""A program takes only the reply to its own last message for an answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from agentrun.executors.programs import runner_connection
from agentrun.executors.programs.protocol import CHANNEL_VARIABLE
from agentrun.executors.programs.runner_connection import CallError, RunnerConnection
from agentrun.system.guardian import ATTEMPT_VARIABLE

ATTEMPT = "/state:a1b2"


class FakeRunner:
    """Greets a program, and answers each of its messages as it is told to."""

    def __init__(self, path: Path, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._answer = answer
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self.heard: list[dict[str, Any]] = []
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        program, _ = self._listening.accept()
        with program, program.makefile("rb") as lines:
            lines.readline()
            program.sendall(b"{}\n")
            for line in lines:
                self.heard.append(json.loads(line))
                if self.heard[-1]["no"] > 0:
                    program.sendall(json.dumps(self._answer(self.heard[-1])).encode() + b"\n")

    def close(self) -> None:
        """After the program has closed its end."""
        self._thread.join()
        self._listening.close()


@pytest.fixture
def no_linger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runner_connection, "LINGER_SECONDS", 0.0)
    yield


def call(tmp_path: Path, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> tuple[object, list[dict[str, Any]]]:
    """What a call gives or raises, and what the runner heard."""
    runner = FakeRunner(tmp_path / "s", answer)
    try:
        with RunnerConnection({CHANNEL_VARIABLE: str(tmp_path / "s"), ATTEMPT_VARIABLE: ATTEMPT}) as connection:
            try:
                got: object = connection.call({"kind": "step"})
            except CallError as error:
                got = error
    finally:
        runner.close()
    return got, runner.heard


def test_the_reply_to_its_message_is_the_answer(tmp_path: Path) -> None:
    got, heard = call(tmp_path, lambda said: {"id": said["id"], "no": said["no"], "value": 7})
    assert got == {"value": 7}
    assert heard == [{"kind": "step", "id": "a1b2", "no": 1}]


@pytest.mark.usefixtures("no_linger")
@pytest.mark.parametrize(
    "wrong", [{"id": "c3d4"}, {"no": 2}, {"id": None}], ids=["another's", "not the last", "nobody's"]
)
def test_a_reply_to_another_message_is_no_answer_and_the_runner_is_told(tmp_path: Path, wrong: dict[str, Any]) -> None:
    got, heard = call(tmp_path, lambda said: {"id": said["id"], "no": said["no"], "value": 7, **wrong})
    assert isinstance(got, CallError), f"the program took {got} for its answer"
    assert heard[-1] == {"no": -1}
