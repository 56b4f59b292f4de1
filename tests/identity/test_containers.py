"""A runner in another container taken for none, and one that is gone for one at work: a pid means nothing there."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from identity.place import Place
from needs import give_up, require_linux, require_program, require_root
from waiting import eventually

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def sleeping(place: Place) -> None:
    place.lines(2)
    place.write("agent.py", "import time\ndef agent(item):\n    open('begun', 'w')\n    time.sleep(600)\n")
    place.job(agent="agent.py:agent", run='grace = "0s"')


def status(place: Place) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(place("status", "work", "--json").stdout)
    return shown


def is_held(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def require_containers() -> None:
    require_linux()
    require_root()
    require_program("unshare")
    if subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode:
        give_up("there are no pid namespaces here", remedy="run it as root of a machine or a privileged container")


def begun(place: Place, *, wrapper: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    runner = place.begin("start", "work.toml", wrapper=wrapper)
    eventually((place.folder / "begun").exists, "an item is begun", alive=runner)
    return runner


def test_a_runner_in_another_container_is_seen_and_its_end_too(place: Place) -> None:
    require_containers()
    sleeping(place)
    runner = begun(place, wrapper=CONTAINER)
    assert status(place)["status"] == "running"
    assert "in another container" in place("status", "work").stdout
    # Its pid means another process here, which is left alone.
    stop = place("stop", "work", "--no-wait")
    assert stop.returncode == 2 and "stop it there" in stop.stderr, stop
    busy = place("start", "work.toml", "--if-free")
    assert busy.returncode == 0 and status(place)["launches"] == 1
    os.killpg(runner.pid, signal.SIGKILL)
    eventually(lambda: status(place)["status"] == "interrupted", "it is gone, and status says so")


def test_from_another_container_the_runner_is_seen(place: Place) -> None:
    require_containers()
    sleeping(place)
    runner = begun(place)
    inside = place.begin("status", "work", "--json", wrapper=CONTAINER)
    shown, _ = inside.communicate()
    assert json.loads(shown)["status"] == "running"
    runner.send_signal(signal.SIGTERM)
    runner.communicate()


def test_a_runner_whose_container_is_gone_is_not_at_work(place: Place) -> None:
    sleeping(place)
    runner = begun(place)
    lock = place.folder / ".agentrun/work/lock"
    holder = json.loads(lock.read_text())
    # As a container has it, whose host name and pids are its own.
    lock.write_text(json.dumps({**holder, "pid": 7, "host": "3f2a9c1e7b44", "pid_namespace": "pid:[1]"}))
    assert status(place)["status"] == "running"
    os.killpg(runner.pid, signal.SIGKILL)
    eventually(lambda: status(place)["status"] == "interrupted", "the lock is free, and status says so")


def test_a_pid_that_is_another_process_by_now_is_not_the_runner(place: Place, tmp_path: Path) -> None:
    sleeping(place)
    runner = begun(place)
    lock = place.folder / ".agentrun/work/lock"
    os.killpg(runner.pid, signal.SIGKILL)
    # Status is interrupted before that: the guardian holds the lock until it has ended what is left.
    eventually(lambda: not is_held(lock), "the guardian is gone, too")
    assert status(place)["status"] == "interrupted"
    # An old version wrote no start of the process; its pid belongs to somebody else now.
    lock.write_text(json.dumps({"pid": os.getpid(), "host": os.uname().nodename, "since": "2026-01-01T00:00:00Z"}))
    assert status(place)["status"] == "interrupted"
