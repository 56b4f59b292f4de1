"""An async agent's messages, from its threads and from calls that it cancels, do not lose its attempt."""

from __future__ import annotations

import pytest

from identity.place import Place

AGENTS = {
    "a thread beside the loop": """
async def agent(item, ctx):
    def report():
        for n in range(20):
            ctx.progress(f"in a thread {n}")
    reporting = asyncio.create_task(asyncio.to_thread(report))
    for n in range(20):
        await ctx.step(f"step {n}", str)
        ctx.progress(f"on the loop {n}")
    await reporting
    return item.text
""",
    "a call that is cancelled before it begins": """
async def agent(item, ctx):
    for turns in range(4):
        step = asyncio.ensure_future(ctx.step(f"given up {turns}", str))
        for _ in range(turns):
            await asyncio.sleep(0)
        step.cancel()
        await asyncio.wait([step])
    ctx.progress("still there")
    await ctx.step("kept", str)
    return item.text
""",
    "a call that takes too long": """
async def agent(item, ctx):
    for seconds in (0, 0.0001, 0.001):
        try:
            await asyncio.wait_for(ctx.step(f"after {seconds}", str), seconds)
        except TimeoutError:
            pass
    await ctx.step("kept", str)
    return item.text
""",
}


@pytest.mark.parametrize("agent", AGENTS)
def test_every_item_is_done_at_its_first_attempt(place: Place, agent: str) -> None:
    place.lines(6)
    place.write("agent.py", f"import asyncio\n{AGENTS[agent]}")
    place.job(agent="agent.py:agent", run="concurrency = 3\nretries = 0")
    ended = place("start", "work.toml")
    assert ended.returncode == 0, ended.stderr
    assert place.outputs() == {f"item {n}": f"item {n}" for n in range(6)}
