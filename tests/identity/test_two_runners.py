"""Two runners of one job, because somebody removed the lock: one of them stops, and nothing that is done is lost."""

from __future__ import annotations

import pytest

from identity.place import Place
from waiting import eventually

ITEMS = 8
AGENT = """\
import os, pathlib, time

def work(item):
    here = pathlib.Path(__file__).parent
    who = os.environ["WHO"]
    with open(here / "ran.log", "a") as log:
        log.write(f"{who} {item.key}\\n")
    while not (here / f"{who}-{item.index}").exists():
        time.sleep(0.005)
    return f"{item.text}, whoever did it"
"""


@pytest.mark.parametrize("done_by_the_second", [1, 2])
def test_a_runner_whose_lock_was_removed_stops_and_takes_nothing_back(place: Place, done_by_the_second: int) -> None:
    place.lines(ITEMS)
    place.write("agent.py", AGENT)
    place.job(agent="agent.py:work", run="concurrency = 1")

    def let(who: str, *items: int) -> None:
        for index in items:
            (place.folder / f"{who}-{index}").touch()

    first = place.begin("start", "work.toml", WHO="first")
    let("first", 0)
    eventually(lambda: "first item 1" in place.said("ran.log"), "the first has done one item", alive=first)
    (place.folder / ".agentrun" / "work" / "lock").unlink()
    # With the same output it would be stopped by that, too.
    second = place.begin("start", "work.toml", "-o", "second.jsonl", WHO="second")
    let("second", *range(1, 1 + done_by_the_second))
    reached = 1 + done_by_the_second
    eventually(lambda: f"second item {reached}" in place.said("ran.log"), "the second has done some", alive=second)
    acknowledged = place.state()["seq"], place.state()["last_completed"]
    assert acknowledged[1] == done_by_the_second

    let("first", *range(1, ITEMS))
    _, said = first.communicate()
    assert first.returncode == 75, said
    assert "lock: was removed, or another runner took the job" in said and "Traceback" not in said
    assert (place.state()["seq"], place.state()["last_completed"]) == acknowledged, "something was taken back"

    second.kill()
    second.communicate()
    let("third", *range(ITEMS))
    ended = place("resume", "work.toml", WHO="third")
    assert ended.returncode == 0, ended.stderr
    assert place.outputs("second.jsonl") == {f"item {n}": f"item {n}, whoever did it" for n in range(ITEMS)}
    again = [line for line in place.said("ran.log") if line.startswith("third")]
    assert again == [f"third item {n}" for n in range(reached, ITEMS)], "a finished item was run again"


def test_a_second_runner_with_the_same_output_runs_nothing(place: Place) -> None:
    place.lines(ITEMS)
    place.write("agent.py", AGENT)
    place.job(agent="agent.py:work", run="concurrency = 1")
    first = place.begin("start", "work.toml", WHO="first")
    eventually(lambda: "first item 0" in place.said("ran.log"), "the first is at work", alive=first)
    (place.folder / ".agentrun" / "work" / "lock").unlink()
    ended = place("start", "work.toml", WHO="second")
    assert ended.returncode == 75, ended.stderr
    assert "another runner has this job, although its lock was removed" in ended.stderr
    assert place.said("ran.log") == ["first item 0"]
