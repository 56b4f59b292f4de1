"""Programs left behind: two seconds after the runner's death none is alive, and no new attempt begins before that."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from crash.command_line import Place, place
from crash.harness import Long, again_and_again, seeded
from waiting import PATIENCE_SECONDS, eventually, happens_before_exit

KINDS = ("async", "process", "thread", "command")

# Its first attempt leaves a child, and a grandchild with a session of its own whose parent has gone; then it hangs.
# Every later attempt says which of them it still finds alive. As a program it is run by its first line.
AGENT = f"""#!{sys.executable} -SE
import os, subprocess, sys, time

DAEMON = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3).pid)"

def is_alive(pid):
    try:
        with open(f"/proc/{{pid}}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False

def left():
    try:
        with open("left.log") as file:
            return [int(line) for line in file]
    except FileNotFoundError:
        return []

def attempt():
    overlaps = [pid for pid in left() if is_alive(pid)]
    if overlaps:
        with open("overlaps.log", "a") as file:
            print(overlaps, file=file)
    if left():
        return 1
    child = subprocess.Popen(["sleep", "600"])
    daemon = subprocess.run([sys.executable, "-SEc", DAEMON], stdout=subprocess.PIPE, check=True).stdout
    with open("left.tmp", "w") as file:
        file.write(f"{{child.pid}}\\n{{int(daemon)}}\\n")
    os.rename("left.tmp", "left.log")
    return 0

def sync_agent(item):
    if not attempt():
        time.sleep(600)
    return 1

async def async_agent(item):
    if not attempt():
        import asyncio
        await asyncio.sleep(600)
    return 1

if __name__ == "__main__":
    if not attempt():
        time.sleep(600)
    print(1)
"""


def guardians(job: Place) -> set[int]:
    def is_guardian(pid: int) -> bool:
        try:
            return b"guardian.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    return {pid for pid in job.survivors() if is_guardian(pid)}


def leave_behind(rng: random.Random, *, kind: str, how: str) -> int:
    """`how`: the runner is killed; the guardian before it; both at once; or the attempt's time is over."""
    run = {"timeout": "2s" if how == "timeout" else "5m", "retries": 1}
    with place(kind=kind, total=1, agent=AGENT, run=run) as job:
        first = job.start()
        left = job.base / "left.log"
        assert happens_before_exit(first, left.exists, "it has left something"), job.said
        pids = {int(line) for line in left.read_text().split()}
        if how == "timeout":
            # The second attempt looks for what the first has left.
            assert first.wait(timeout=PATIENCE_SECONDS) == 0, job.said
            assert not pids & job.survivors()
        else:
            time.sleep(rng.choice([0.0, rng.uniform(0, 0.1)]))
            if how != "killed":
                (guardian,) = guardians(job)
                os.kill(guardian, signal.SIGKILL)
            if how == "guardian first":
                eventually(lambda: guardians(job) - {guardian}, "another guardian")
            first.kill()
            second = job.start()
            if how != "both at once":
                eventually(lambda: not job.survivors(launch=1), "all of them have ended")
            assert second.wait(timeout=PATIENCE_SECONDS) == 0, job.said
            first.wait()
        eventually(lambda: not job.survivors(), "nothing is alive at the end")
        overlaps = job.base / "overlaps.log"
        assert not overlaps.exists(), f"an attempt began while these were alive: {overlaps.read_text()}"
        job.check_words()
    return 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["killed", "guardian first", "both at once"])
def test_after_the_runners_death_nothing_of_it_is_left(kind: str, how: str) -> None:
    for number in range(2):
        with seeded(f"left {kind} {how} {number}") as rng:
            leave_behind(rng, kind=kind, how=how)


@pytest.mark.parametrize("kind", ["process", "command"])
def test_after_a_timeout_nothing_of_the_attempt_is_left(kind: str) -> None:
    for number in range(3):
        with seeded(f"timeout {kind} {number}") as rng:
            leave_behind(rng, kind=kind, how="timeout")


def _one(rng: random.Random) -> int:
    how = rng.choice(["killed", "guardian first", "both at once", "timeout"])
    return leave_behind(rng, kind=rng.choice(("process", "command") if how == "timeout" else KINDS), how=how)


LONG: dict[str, Long] = {"programs left behind": again_and_again(_one)}
