"""Costs and counts that nothing can hold: a clear error for their item, and never a run that hangs or dies."""

from __future__ import annotations

import json
import sys

import pytest

from identity.place import Place

PYTHON = {
    "1e308 dollars": "cost=1e308",
    "infinite": "cost=float('inf')",
    "not a number": "cost=float('nan')",
    "a Decimal that is not a number": "cost=__import__('decimal').Decimal('NaN')",
    "negative": "cost=-1",
    "10**400 dollars": "cost=10**400",
    "10**400 tokens": "input_tokens=10**400",
    "10**5000 tokens": "input_tokens=10**5000",
    "negative tokens": "output_tokens=-5",
}
AGENT = """
import asyncio

{asynchronous}def agent(item, ctx):
    if item.index == 1:
        for _ in range({times}):
            ctx.usage({usage})
    else:
        ctx.usage(cost=0.01)
    return item.key
"""


@pytest.mark.parametrize("isolation", ["loop", "thread", "process"])
def test_a_cost_that_makes_no_sense_fails_its_item_alone(place: Place, isolation: str) -> None:
    place.write("items.jsonl", "".join(json.dumps({"id": name}) + "\n" for name in ["good", *PYTHON]))
    usages = "{" + ", ".join(f"{name!r}: lambda: dict({usage})" for name, usage in PYTHON.items()) + "}"
    usage = f"**{usages}[item.key]()"
    agent = AGENT.replace("item.index == 1", "item.index")
    place.write("agent.py", agent.format(asynchronous="async " * (isolation == "loop"), usage=usage, times=1))
    place.job(
        agent="agent.py:agent",
        items='jsonl = "items.jsonl"\nkey = "id"',
        run='concurrency = 3\nretries = 0\ntimeout = "10s"\nstop_after_failures = 0',
        **({} if isolation == "loop" else {"isolation": isolation}),
    )
    ended = place("start", "work.toml")
    assert ended.returncode == 1, ended.stderr
    assert [line["key"] for line in place.results("work.results.partial.jsonl")] == ["good"]
    lines = place("failures", "work", "--json").stdout.splitlines()
    found = {json.loads(line)["key"]: line for line in lines}
    assert set(found) == set(PYTHON)
    for name, failure in found.items():
        assert "usage: " in failure and "at most 2**53" in failure, (name, failure)


@pytest.mark.parametrize("isolation", ["loop", "process"])
@pytest.mark.parametrize("usage", ["input_tokens=2**53, output_tokens=2**53, cost=0", "cost=2**53"])
def test_sums_that_no_record_can_hold_fail_their_item_alone(place: Place, isolation: str, usage: str) -> None:
    place.lines(3)
    place.write("agent.py", AGENT.format(asynchronous="async " * (isolation == "loop"), usage=usage, times=2000))
    place.job(agent="agent.py:agent", run='retries = 0\ntimeout = "20s"')
    ended = place("start", "work.toml")
    assert ended.returncode == 1, ended.stderr
    assert [line["key"] for line in place.results("work.results.partial.jsonl")] == ["item 0", "item 2"]
    assert "over 2**53" in place("failures", "work").stdout


LINES = ['{"cost": 1e308}', '{"cost": -1}', '{"input_tokens": 1000000000000000000000}', '{"input_tokens": 1e30}']
SERVER = """
import json, sys

for line in sys.stdin:
    item = json.loads(line)
    id = json.dumps(item.get("id"))
    usage = item["text"]
    print('{"type": "usage", "id": ' + id + ", " + usage.removeprefix("{"), flush=True)
    reply = json.loads(sys.stdin.readline())
    print('{"type": "done", "id": ' + id + ', "output": ' + json.dumps(reply.get("error")) + "}", flush=True)
"""


def test_a_serving_program_is_told_what_is_wrong_with_its_usage(place: Place) -> None:
    place.write("items.txt", "".join(f"{line}\n" for line in LINES))
    place.write("server.py", SERVER)
    place.job(command=[sys.executable, "server.py"], serve=True, run='retries = 0\ntimeout = "20s"')
    ended = place("start", "work.toml")
    assert ended.returncode == 0, ended.stderr
    assert all("usage: " in error for error in place.outputs().values())


def test_a_program_is_told_what_is_wrong_with_its_usage(place: Place) -> None:
    words = ["1e308", "inf", "nan", "-1"]
    place.write("items.txt", "".join(f"{word}\n" for word in words))
    place.write("tell.sh", '#!/bin/sh\nagentrun usage --cost="$1" 2>&1 && echo accepted\nexit 0\n', mode=0o755)
    place.job(command=["./tell.sh", "{}"], run='retries = 0\ntimeout = "20s"')
    ended = place("start", "work.toml")
    assert ended.returncode == 0, ended.stderr
    assert not [output for output in place.outputs().values() if "accepted" in output]
