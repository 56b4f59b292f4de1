"""The real command at servers on loopback that say how fast it may go. Counts only: no test asserts a time."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Run
from llm.limited import serve_limited
from waiting import PATIENCE_SECONDS, eventually

AGENT = """\
import json, os
from urllib.request import Request, urlopen

def ask(item, ctx):
    body = json.dumps({"key": item.key, "tokens": 100}).encode()
    with urlopen(Request(os.environ["SERVER"], body)) as answer:
        json.load(answer)
    ctx.usage(input_tokens=90, output_tokens=10)
    return item.text
"""


ITEMS, PER_SECOND = 50, 10.0
"""So slow a server refuses much of the first wave on the busiest machine, too."""
Make = Callable[..., None]


@pytest.fixture
def make_job(tmp_path: Path) -> Make:
    """Makes a job of so many items, with these lines under [run]."""

    def make(items: int, run: str) -> None:
        (tmp_path / "agent.py").write_text(AGENT)
        (tmp_path / "items.txt").write_text("".join(f"{number}\n" for number in range(items)))
        head = 'name = "n"\nagent = "agent.py:ask"\nisolation = "thread"\n[items]\nlines = "items.txt"\n'
        (tmp_path / "job.toml").write_text(f"{head}[run]\n{run}\n")

    return make


@pytest.mark.parametrize("retry_after", [None, "1"], ids=["silent", "asks"])
def test_a_server_that_refuses_slows_the_run_down_and_no_item_fails(
    agentrun: Run, make_job: Make, retry_after: str | None
) -> None:
    make_job(ITEMS, "retries = 0")
    with serve_limited(PER_SECOND, seconds=0.02, retry_after=retry_after) as server:
        ended = agentrun("start", "-j", "32", "--json", SERVER=server.url)
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["counts"]["done"] == ITEMS
        assert Counter(call.key for call in server.accepted) == {str(number): 1 for number in range(ITEMS)}
        # A wave of them tells how fast it may go. Whoever just tries again is refused many hundred times.
        assert 1 <= server.refused <= 100
        # Nobody refuses what is already there.
        server.empty()
        assert agentrun("start", SERVER=server.url).returncode == 0 and server.calls == []


def test_without_it_refusals_use_up_the_retries(agentrun: Run, make_job: Make) -> None:
    make_job(ITEMS, "retries = 0\nadapt = false")
    with serve_limited(PER_SECOND, seconds=0.02) as server:
        ended = agentrun("start", "-j", "32", SERVER=server.url)
    assert ended.returncode in (1, 4) and "429" in ended.stderr and server.refused > 0


def test_tokens_hold_across_a_kill(agentrun: Run, begin: Callable[..., subprocess.Popen[str]], make_job: Make) -> None:
    per_second, burst, each, items, width = 200.0, 1200.0, 100, 36, 4
    make_job(items, f'tokens = "12k/min"\nconcurrency = {width}')
    began = time.monotonic()
    with serve_limited() as server:
        process = begin("start", SERVER=server.url)
        eventually(lambda: len(server.calls) >= burst / each + 3, "the burst is used up", alive=process)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=PATIENCE_SECONDS)
        before, resumed = len(server.calls), time.monotonic()
        ended = agentrun("resume", "n", SERVER=server.url)
        assert ended.returncode == 0, ended.stderr
    asked = Counter(call.key for call in server.calls)
    assert before < items <= len(server.calls) <= items + width and len(asked) == items
    # From before the first launch to each call, whatever delays us or the server: one burst, and the limit's pace.
    for number, call in enumerate(server.calls):
        assert number * each <= burst + per_second * (call.at - began), f"call {number} came too early"
    # And the burst was the first launch's.
    for number, call in enumerate(server.calls[before:]):
        assert number * each <= per_second * (call.at - resumed), f"call {number} after the kill came too early"
