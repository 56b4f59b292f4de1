"""Limits of the night and the pilot, by the real command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.terminal import Terminal

Run = Callable[..., subprocess.CompletedProcess[str]]
AGENT = """\
import asyncio
import pathlib
import time

def quick(item, ctx):
    ctx.usage(cost=0.01, input_tokens=10)
    return item.text

def slow(item):
    time.sleep(0.05)
    return item.text

def loop(item, ctx):
    while True:
        with open(f"calls-{item.text}", "a") as calls:
            calls.write("x")
        ctx.usage(cost=0.1)
        if item.text != "2":
            return item.text
        time.sleep(0.05)

async def loop_async(item, ctx):
    while True:
        with open(f"calls-{item.text}", "a") as calls:
            calls.write("x")
        ctx.usage(cost=0.1)
        if item.text != "2":
            return item.text
        await asyncio.sleep(0.05)
"""
PROGRAM = """\
#!/bin/sh
while :; do
    printf x >>"calls-$1"
    agentrun usage --cost 0.1
    [ "$1" = 2 ] || { echo "$1"; exit 0; }
    sleep 0.05
done
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "prog.sh").write_text(PROGRAM)
    (tmp_path / "prog.sh").chmod(0o755)
    (tmp_path / "items.txt").write_text("".join(f"{number}\n" for number in range(1, 101)))
    (tmp_path / "few.txt").write_text("1\n2\n3\n")
    return tmp_path


def test_a_launch_is_over_after_its_time_and_says_how_to_continue(agentrun: Run, place: Path) -> None:
    run = ("start", "agent.py:slow", "--items", "items.txt", "--as", "lines", "--name", "n")
    ended = agentrun(*run, "--max-time", "1s", "--json")
    assert ended.returncode == 4, ended.stderr
    assert "no new items after" in ended.stderr and "the time limit of 1s is reached" in ended.stderr
    assert "to resume:    agentrun resume n\n" in ended.stderr
    assert json.loads(ended.stdout)["stopped_by"] == "max_time"
    assert json.loads(agentrun("status", "n", "--json").stdout)["stopped"]["by"] == "max_time"
    # For that launch alone.
    assert agentrun("resume", "n", "-q").returncode == 0
    for flag in ("--until", "--max-time"):
        refused = agentrun(*run, flag, "soon")
        assert refused.returncode == 2 and f'{flag} is "soon"; write a' in refused.stderr


@pytest.mark.parametrize(
    "how",
    [
        ("agent.py:loop",),
        ("agent.py:loop", "--isolation", "thread"),
        ("agent.py:loop_async",),
        ("--", "./prog.sh", "{}"),
    ],
    ids=["process", "thread", "async", "program"],
)
def test_an_item_that_loops_for_ever_costs_its_cap_plus_one_call(
    agentrun: Run, place: Path, how: tuple[str, ...]
) -> None:
    flags = ("--items", "few.txt", "--as", "lines", "--name", "n", "--item-budget", "0.5")
    at = how.index("--") if "--" in how else len(how)
    ended = agentrun("start", *how[:at], *flags, *how[at:])
    assert ended.returncode == 1, ended.stderr
    assert len((place / "calls-2").read_text()) <= 7
    status = json.loads(agentrun("status", "n", "--json").stdout)
    assert (status["counts"]["done"], status["counts"]["failed"], status["cost"]) == (2, 1, 0.8)
    assert "it used more than the $0.50 of item_budget" in agentrun("failures", "n").stdout


def test_a_pilot_estimates_the_rest_and_resume_continues(agentrun: Run, place: Path) -> None:
    run = ("start", "--pilot", "agent.py:quick", "--items", "items.txt", "--as", "lines", "--name", "n")
    ended = agentrun(*run)
    assert ended.returncode == 4, ended.stderr
    assert "the pilot of 20 is over; 80 others are pending" in ended.stderr
    assert "estimate:     80 more items, 1 at a time" in ended.stderr
    assert "cost:       $0.80\n" in ended.stderr and "rare expensive items may be missing" in ended.stderr
    assert "the rest:     agentrun resume n\n" in ended.stderr
    resumed = agentrun("resume", "n")
    assert resumed.returncode == 0 and "kept 20, to run 80" in resumed.stderr


def test_with_yes_the_rest_runs_at_once_and_json_is_one_object(agentrun: Run, place: Path) -> None:
    run = ("start", "agent.py:quick", "--items", "items.txt", "--as", "lines", "--name", "n", "--pilot", "10")
    ended = agentrun(*run, "--yes", "--json")
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["counts"]["done"], summary["launches"]) == (100, 2)


def test_on_a_terminal_it_asks(agentrun: Run, place: Path) -> None:
    run = ("start", "agent.py:quick", "--items", "items.txt", "--as", "lines", "--name", "n", "--pilot")
    asked = Terminal(*run, cwd=place)
    try:
        asked.until("continue? [y/N]")
        asked.type("n")
        assert asked.end()[0] == 4
    finally:
        asked.close()
    asked = Terminal(*run, cwd=place)
    try:
        asked.until("continue? [y/N]")
        asked.type("y")
        code, said = asked.end()
        assert code == 0 and "done: 100 of 100" in said
    finally:
        asked.close()


def test_a_budget_that_is_too_low_does_not_continue_whatever_was_answered(agentrun: Run, place: Path) -> None:
    run = ("start", "agent.py:quick", "--items", "items.txt", "--as", "lines", "--name", "n", "--pilot", "--yes")
    ended = agentrun(*run, "--budget", "0.5")
    assert ended.returncode == 4 and "the budget is too low for the rest" in ended.stderr
    assert "agentrun resume n --budget 1\n" in ended.stderr


def test_try_draws_a_sample_by_its_seed(agentrun: Run, place: Path) -> None:
    run = ("try", "agent.py:slow", "--items", "items.txt", "--as", "lines", "--sample", "4")
    first, again, other = agentrun(*run), agentrun(*run, "--seed", "0"), agentrun(*run, "--seed", "1")
    drawn = [json.loads(line)["index"] for line in first.stdout.splitlines()]
    assert [at // 25 for at in drawn] == [0, 1, 2, 3]
    assert first.stdout == again.stdout != other.stdout
    for flags, said in (
        (("--index", "3"), "--sample and --index are both given"),
        (("-n", "5"), "--sample and -n are both given"),
    ):
        refused = agentrun(*run, *flags)
        assert refused.returncode == 2 and said in refused.stderr
    alone = agentrun("try", "agent.py:slow", "--items", "items.txt", "--as", "lines", "--seed", "1")
    assert alone.returncode == 2 and "add --sample" in alone.stderr
