"""A run taken for another: the clock set back and forward, a runner killed at the very end."""

from __future__ import annotations

import json

from identity.place import Place
from needs import require_program
from waiting import eventually

NOTING = """
def agent(item):
    with open("calls.log", "a") as log:
        log.write(item.text + "\\n")
    return [item.text, TODAY]
"""
SLOW_TO_CLOSE = """
import asyncio

class Agent:
    async def __call__(self, item):
        with open("calls.log", "a") as log:
            log.write(item.text + "\\n")
        return item.text

    async def aclose(self):
        await asyncio.sleep(600)
"""


def at(place: Place, days: int, *words: str) -> str:
    """Call the command with the clock moved by so many days; what it printed."""
    clock = ("faketime", "-f", f"{days:+d}d") if days else ()
    ended = place(*words, wrapper=clock)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def start(place: Place, days: int, version: str) -> None:
    """A run of all items, whose outputs have `version` in them."""
    place.write("agent.py", NOTING.replace("TODAY", repr(version)))
    at(place, days, "start", "work.toml", "--fresh")


def test_the_newest_run_is_the_last_one_whatever_the_clock_said(place: Place) -> None:
    require_program("faketime")
    place.lines(2)
    place.job(agent="agent.py:agent")
    versions = ["today", "a month ago", "two months ago", "three months ago", "in the year after this one"]
    for days, version in zip((0, -30, -60, -90, 300), versions, strict=True):
        start(place, days, version)
    start(place, 0, "after all")
    shown = json.loads(at(place, 0, "status", "work", "--json"))
    newest = [json.loads(line) for line in at(place, 0, "results", "work").splitlines()]
    assert [one["output"][1] for one in newest] == ["after all"] * 2, shown
    # Its records are there: an edit of one result keeps the others as they are.
    for days in (0, -200, 0):
        at(place, days, "edit", "work", "item 0", "--output", '"by hand"')
        at(place, days, "start", "work.toml")
        assert place.outputs() == {"item 0": "by hand", "item 1": ["item 1", "after all"]}


def test_the_clock_set_back_and_forward_within_a_run_changes_nothing(place: Place) -> None:
    require_program("faketime")
    place.lines(8)
    place.write("agent.py", NOTING.replace("TODAY", '"now"'))
    place.job(agent="agent.py:agent")
    for days in (0, -30, 300, -300):
        clock = ("faketime", "-f", f"{days:+d}d") if days else ()
        ended = place("start", "work.toml", "--limit", "2", wrapper=clock)
        assert ended.returncode == (4 if days != -300 else 0), ended.stderr
    assert sorted(place.said("calls.log")) == [f"item {n}" for n in range(8)]
    assert place.outputs() == {f"item {n}": [f"item {n}", "now"] for n in range(8)}
    assert place("start", "work.toml").stderr.startswith("work: nothing to run, 8 results kept")


def test_killed_between_the_end_of_the_run_and_its_exit_it_pays_for_nothing_twice(place: Place) -> None:
    place.lines(5)
    place.write("agent.py", SLOW_TO_CLOSE)
    place.job(agent="agent.py:Agent", run="concurrency = 2")
    process = place.begin("start", "work.toml")
    state, results = place.folder / ".agentrun/work/state.json", place.folder / "work.results.jsonl"
    eventually(lambda: results.exists() and not state.exists(), "the run is finished", alive=process)
    process.kill()
    process.wait()
    assert place("start", "work.toml").returncode == 0
    assert sorted(place.said("calls.log")) == [f"item {n}" for n in range(5)]
    assert place.outputs() == {f"item {n}": f"item {n}" for n in range(5)}
