"""A child that an agent forks is never taken for its worker, nor for the runner."""

from __future__ import annotations

import pytest

from identity.place import Place

COUNT = 30
CHILDREN = {
    "raises": "raise ValueError('in the child')",
    "returns": "return 'of the child'",
    "exits": "raise SystemExit(3)",
    "reports progress and returns": "ctx.progress('of the child')",
    "makes a step": "return ctx.step('a', str)",
    "reports its usage": "ctx.usage(cost=5)",
}
AGENT = """
import os, warnings
warnings.simplefilter("ignore")

class Agent:
    def __call__(self, item, ctx):
        if item.index % 7 == 3:
            child = os.fork()
            if child == 0:
                {child}
                return "of the child"
            os.waitpid(child, 0)
        with open("attempts", "a") as file:
            print(item.key, file=file)
        return item.key

    def close(self):
        with open("closed", "a") as file:
            print("closed", file=file)
"""


@pytest.mark.parametrize("isolation", ["process", "thread"])
@pytest.mark.parametrize("child", CHILDREN)
def test_a_forked_child_that_comes_back_from_the_agent_is_no_answer(place: Place, isolation: str, child: str) -> None:
    place.lines(COUNT)
    place.write("agent.py", AGENT.format(child=CHILDREN[child]))
    place.job(agent="agent.py:Agent", isolation=isolation, run='concurrency = 2\ntimeout = "20s"\nretries = 0')
    ended = place("start", "work.toml", "--json")
    assert ended.returncode == 0, ended.stderr
    assert place.outputs() == {f"item {n}": f"item {n}" for n in range(COUNT)}
    assert sorted(place.said("attempts")) == sorted(f"item {n}" for n in range(COUNT))
    assert len(place.said("closed")) <= 2
    assert '"cost": 5' not in ended.stdout and '"cost":5' not in ended.stdout


ASYNC_AGENT = """
import asyncio, os, warnings
warnings.simplefilter("ignore")

def note(what):
    with open("notes", "a") as file:
        print(os.getpid(), what, file=file)

async def agent(item, ctx):
    note(f"begins {{item.key}}")
    child = None
    if item.index % 7 == 3:
        child = os.fork()
        if child == 0:
            note("is forked")
            {child}
    for _ in range(5):
        await asyncio.sleep(0)
    note(f"ends {{item.key}}")
    if child:
        os.waitpid(child, 0)
    return item.key
"""


@pytest.mark.parametrize(
    "child",
    [
        "return 'of the child'",
        "raise ValueError('in the child')",
        "await asyncio.sleep(0)",
        "ctx.usage(cost=5)",
        "await ctx.step('a', str)",
        "raise SystemExit(3)",
    ],
)
def test_a_forked_child_does_not_go_on_as_a_second_runner(place: Place, child: str) -> None:
    place.lines(COUNT)
    place.write("agent.py", ASYNC_AGENT.format(child=child))
    place.job(agent="agent.py:agent", run='concurrency = 4\ntimeout = "20s"\nretries = 0')
    ended = place("start", "work.toml")
    assert ended.returncode == 0, ended.stderr
    assert place.outputs() == {f"item {n}": f"item {n}" for n in range(COUNT)}
    notes = [line.split(" ", 1) for line in place.said("notes")]
    runner = notes[0][0]
    forked = [what for pid, what in notes if pid != runner]
    assert forked == ["is forked"] * len(range(3, COUNT, 7))
    ends = [what for pid, what in notes if what.startswith("ends")]
    assert sorted(ends) == sorted(f"ends item {n}" for n in range(COUNT))
