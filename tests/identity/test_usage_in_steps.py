"""What was used in a step is in the step's record, also if the runner is killed right after it."""

from __future__ import annotations

import json
import signal

import pytest

from identity.place import Place

AGENT = """
import os, signal

async def pay(ctx):
    ctx.usage(cost=0.25)
    with open("paid", "a") as file:
        print("paid", file=file)
    return "notes"

async def agent(item, ctx):
    notes = await ctx.step("search", pay, ctx)
    if not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return notes
"""


@pytest.mark.parametrize("budget", ["budget = 5.0", ""])
def test_killed_after_a_step_its_usage_is_not_lost(place: Place, budget: str) -> None:
    place.lines(2)
    place.write("agent.py", AGENT)
    place.job(agent="agent.py:agent", run=budget)
    runner = place.begin("start", "work.toml")
    runner.communicate()
    assert runner.returncode == -signal.SIGKILL
    ended = place("resume", "work.toml", "--json")
    assert ended.returncode == 0, ended.stderr
    assert place.said("paid") == ["paid", "paid"]
    usage = json.loads(ended.stdout)["usage"]
    # Under a budget, what the killed attempt may have spent besides is charged as lost.
    assert usage["cost"] - usage.get("lost", 0) == 0.5
