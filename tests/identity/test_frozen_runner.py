"""A runner that was frozen longer than the timeout takes the answers that have arrived meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from identity.place import Place
from waiting import PATIENCE_SECONDS, eventually

COUNT = 3
TIMEOUT_SECONDS = 8.0
WAITS = """
def finish(key):
    while not os.path.exists("go"):
        time.sleep(0.005)
    with open("finished", "a") as file:
        print(key, file=file)

def note(key):
    with open("attempts", "a") as file:
        print(key, file=file)
"""
FUNCTION = f"""
import os, time
{WAITS}
def agent(item):
    note(item.key)
    finish(item.key)
    return item.key * 50_000
"""
SERVER = f"""
import json, os, sys, time
{WAITS}
for line in sys.stdin:
    item = json.loads(line)
    note(item["key"])
    finish(item["key"])
    print(json.dumps({{"type": "done", "id": item.get("id"), "output": item["key"] * 50_000}}), flush=True)
"""
PROGRAM = f"""
import json, os, sys, time
{WAITS}
item = json.load(sys.stdin)
note(item["key"])
sys.stdout.write(item["key"] * 5_000)
sys.stdout.flush()
finish(item["key"])
"""
ASYNC = f"""
import asyncio, os
{WAITS}
async def agent(item):
    reader, writer = await asyncio.open_unix_connection("server.sock")
    writer.write(item.key.encode() + b"\\n")
    note(item.key)  # only now: the request has left the process that will be frozen
    answer = await reader.read()
    writer.close()
    return answer.decode()
"""


@contextmanager
def model(place: Place) -> Iterator[None]:
    """A server that answers when it may, as an async agent's model would."""
    listening = socket.socket(socket.AF_UNIX)
    before = os.getcwd()
    os.chdir(place.folder)
    try:
        listening.bind("server.sock")
    finally:
        os.chdir(before)
    listening.listen()

    def answer(connection: socket.socket) -> None:
        with connection:
            key = connection.makefile().readline().strip()
            eventually((place.folder / "go").exists, "the answer may be given")
            connection.sendall(key.encode() * 50)
        with (place.folder / "finished").open("a") as file:
            print(key, file=file)

    def serve() -> None:
        for _ in range(COUNT):
            try:
                connection, _ = listening.accept()
            except OSError:
                return  # nobody asked
            threading.Thread(target=answer, args=[connection], daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listening:
        try:
            yield
        finally:
            # Wakes the thread, which would otherwise wait on a number that is another file's by then.
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("kind", ["worker", "async", "program", "serve"])
def test_frozen_past_the_timeout_no_item_is_attempted_twice(place: Place, kind: str) -> None:
    place.lines(COUNT)
    run = f'concurrency = {COUNT}\ntimeout = "{TIMEOUT_SECONDS:g}s"\nretries = 1'
    place.write("agent.py", {"worker": FUNCTION, "async": ASYNC, "program": PROGRAM, "serve": SERVER}[kind])
    if kind in ("program", "serve"):
        place.job(command=[sys.executable, "agent.py"], serve=kind == "serve", run=run)
    else:
        place.job(agent="agent.py:agent", run=run)
    with model(place):
        runner = place.begin("start", "work.toml")
        eventually(lambda: len(place.said("attempts")) == COUNT, "all items are at work", alive=runner)
        os.killpg(runner.pid, signal.SIGSTOP)
        frozen_at = time.monotonic()
        (place.folder / "go").touch()
        eventually(lambda: len(place.said("finished")) == COUNT, "all agents have answered")
        eventually(lambda: time.monotonic() > frozen_at + TIMEOUT_SECONDS + 0.5, "the timeout is over")
        os.killpg(runner.pid, signal.SIGCONT)
        _, said = runner.communicate(timeout=PATIENCE_SECONDS)
    assert runner.returncode == 0, said
    assert sorted(place.said("attempts")) == sorted(f"item {n}" for n in range(COUNT))
    assert all(key in output for key, output in place.outputs().items())


def test_frozen_past_the_timeout_an_agent_that_is_still_at_work_has_its_whole_time_once_more(place: Place) -> None:
    place.lines(COUNT)
    # Frozen with the runner, as in a machine that is paused: it answers a little after both continue.
    place.write("agent.py", FUNCTION.replace("    return", "    time.sleep(0.4)\n    return"))
    place.job(agent="agent.py:agent", run=f'concurrency = {COUNT}\ntimeout = "{TIMEOUT_SECONDS:g}s"\nretries = 1')
    runner = place.begin("start", "work.toml")
    eventually(lambda: len(place.said("attempts")) == COUNT, "all items are at work", alive=runner)
    os.killpg(runner.pid, signal.SIGSTOP)
    frozen_at = time.monotonic()
    eventually(lambda: time.monotonic() > frozen_at + TIMEOUT_SECONDS + 0.6, "the timeout is over")
    os.killpg(runner.pid, signal.SIGCONT)
    (place.folder / "go").touch()
    _, said = runner.communicate(timeout=PATIENCE_SECONDS)
    assert runner.returncode == 0, said
    assert sorted(place.said("attempts")) == sorted(f"item {n}" for n in range(COUNT))


def test_frozen_past_the_grace_period_what_has_arrived_counts(place: Place) -> None:
    place.lines(COUNT)
    place.write("agent.py", FUNCTION)
    place.job(agent="agent.py:agent", run=f'concurrency = {COUNT}\ngrace = "1s"')
    runner = place.begin("start", "work.toml")
    eventually(lambda: len(place.said("attempts")) == COUNT, "all items are at work", alive=runner)
    os.killpg(runner.pid, signal.SIGTERM)
    assert runner.stderr is not None
    assert any("stopped by SIGTERM" in line for line in runner.stderr)
    os.killpg(runner.pid, signal.SIGSTOP)
    frozen_at = time.monotonic()
    (place.folder / "go").touch()
    eventually(lambda: len(place.said("finished")) == COUNT, "all agents have answered")
    # Beyond the time after which the process would be ended in any case, too.
    eventually(lambda: time.monotonic() > frozen_at + 6.8, "the grace period is over")
    os.killpg(runner.pid, signal.SIGCONT)
    _, said = runner.communicate(timeout=PATIENCE_SECONDS)
    assert runner.returncode in (0, 143), said
    if runner.returncode:
        ended = place("resume", "work.toml")
        assert ended.returncode == 0, ended.stderr
    assert sorted(place.said("attempts")) == sorted(f"item {n}" for n in range(COUNT))
