"""What an attempt prints goes to its log, and to no other file."""

from __future__ import annotations

import os
from pathlib import Path

from agentrun.executors.prints import LogSink


def test_a_log_that_the_agent_closed_is_opened_again_and_its_own_file_left_alone(tmp_path: Path) -> None:
    own, log = tmp_path / "agents-own", tmp_path / ".slot-0.log"
    own.write_bytes(b"the agent's own")
    sink = LogSink(log)
    sink.write(b"one ")
    opened = os.open(own, os.O_RDWR)
    (number,) = (int(name) for name in os.listdir("/dev/fd") if _is_at(int(name), log))
    os.dup2(opened, number)
    sink.write(b"two")
    sink.close()
    assert log.read_bytes() == b"one two" and own.read_bytes() == b"the agent's own"
    assert os.path.samestat(os.fstat(number), own.stat()), "a number was closed that was not ours"
    for one in (opened, number):
        os.close(one)


def _is_at(number: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except OSError:
        return False
