"""An agent in the runner's process closes a file twice: what is ours never goes into its file."""

from __future__ import annotations

import os

import pytest

from identity.place import Place
from needs import require

ITEMS = 30
AT = 20
"""By then the journal is open."""
OWN = "the agent's own"
AGENT = """\
import os, pathlib

here = pathlib.Path(__file__).parent
own = here / "own"

def close_twice(target):
    '''The number was the agent's, then the runner's, which the second close takes away; then the agent's once more.'''
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if path == str(target):
            mine = os.open(own, os.O_RDWR)
            os.dup2(mine, int(name))
            os.close(mine)

async def work(item):
    with open(here / "ran.log", "a") as log:
        log.write(item.key + "\\n")
    if item.index == %d and not own.exists():
        own.write_text(%r)
        close_twice(here / ".agentrun" / "work" / os.environ["TARGET"])
    return item.text * 300
"""


def prepare(place: Place) -> None:
    require(os.path.exists("/proc/self/fd"), "descriptors cannot be listed", remedy="run it where /proc is mounted")
    place.lines(ITEMS)
    place.write("agent.py", AGENT % (AT, OWN))
    place.job(agent="agent.py:work", run="concurrency = 1")


def check_complete(place: Place) -> None:
    assert place.outputs() == {f"item {n}": f"item {n}" * 300 for n in range(ITEMS)}
    assert (place.folder / "own").read_text() == OWN, "something of ours is in the agent's file"


@pytest.mark.parametrize("target", ["journal-1.jsonl", "lock", "."])
def test_the_launch_stops_writes_nothing_into_the_agents_file_and_the_next_one_completes(
    place: Place, target: str
) -> None:
    prepare(place)
    ended = place("start", "work.toml", TARGET=target)
    assert (place.folder / "own").read_text() == OWN, "something of ours is in the agent's file"
    assert ended.returncode == 74, ended.stderr
    assert "closed by other code in this process" in ended.stderr and "Traceback" not in ended.stderr
    done = place.state()["last_completed"] + 1
    assert done >= AT
    before = len(place.said("ran.log"))
    ended = place("resume", "work.toml", TARGET=target)
    assert ended.returncode == 0, ended.stderr
    assert place.said("ran.log")[before:] == [f"item {n}" for n in range(done, ITEMS)]
    check_complete(place)


def test_the_log_of_launches_goes_on_in_its_own_file(place: Place) -> None:
    prepare(place)
    ended = place("start", "work.toml", TARGET="log.jsonl")
    assert ended.returncode == 0, ended.stderr
    check_complete(place)
    log = (place.folder / ".agentrun" / "work" / "log.jsonl").read_text()
    assert log.count('"checkpoint"') >= ITEMS


IN_A_WORKER = """\
import os, pathlib

here = pathlib.Path(__file__).parent
own = here / "own"

def work(item):
    if item.index == 3 and not own.exists():
        own.write_text(%r)
        mine = os.open(own, os.O_RDWR)
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    os.dup2(mine, int(name))
            except OSError:
                pass
    return item.text * 300
"""


def test_a_worker_does_not_answer_in_the_agents_file(place: Place) -> None:
    prepare(place)
    place.write("agent.py", IN_A_WORKER % OWN)
    ended = place("start", "work.toml")
    assert ended.returncode == 0, ended.stderr
    check_complete(place)
