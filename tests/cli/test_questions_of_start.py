"""What `start` asks: about results of an older agent, and before --fresh gives something up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.terminal import Terminal

Run = Callable[..., subprocess.CompletedProcess[str]]
OLDER = "3 results are by an older agent; run them again? [y/N]"


@contextmanager
def terminal(*words: str, cwd: Path) -> Iterator[Terminal]:
    opened = Terminal(*words, cwd=cwd)
    try:
        yield opened
    finally:
        opened.close()


def ran(job: Path) -> int:
    return len((job / "ran.log").read_text().splitlines())


def edit_agent(job: Path) -> None:
    (job / "agent.py").write_text((job / "agent.py").read_text() + "\n# another version\n")


def test_on_a_terminal_results_of_an_older_agent_run_again_after_a_yes_alone(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "work").returncode == 0
    edit_agent(job)
    with terminal("start", "work", cwd=job.parent) as asked:
        assert "nothing to run, 3 results kept" in asked.until(OLDER)
        asked.type("")
        assert asked.end()[0] == 0
    with terminal("start", "work", cwd=job.parent) as asked:
        asked.until(OLDER)
        asked.interrupt()
        code, said = asked.end()
        assert code == -2 and "Traceback" not in said
    assert ran(job) == 3
    with terminal("start", "work", cwd=job.parent) as asked:
        asked.until(OLDER)
        asked.type("y")
        code, said = asked.end()
        assert code == 0 and "rerun 3" in said and "done: 3 of 3" in said
    assert ran(job) == 6
    with terminal("start", "work", cwd=job.parent) as asked:
        code, said = asked.end()
        assert code == 0 and "older agent" not in said


def test_nothing_is_asked_where_something_else_is_to_run(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "work").returncode == 0
    edit_agent(job)
    (job / "items" / "d.txt").write_text("text d")
    with terminal("start", "work", cwd=job.parent) as asked:
        code, said = asked.end()
    assert code == 0 and "--rerun old-agent" in said and "[y/N]" not in said and ran(job) == 4


def test_fresh_names_an_unfinished_run_and_asks_only_where_somebody_can_answer(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "work", "--limit", "2").returncode == 4
    planned = json.loads(agentrun("start", "work", "--fresh", "--plan", "--json").stdout)
    assert planned["gives_up"]["finished"] == 2
    with terminal("start", "work", "--fresh", cwd=job.parent) as asked:
        asked.until("start over? [y/N]")
        asked.type("n")
        assert asked.end()[0] == 2
    assert ran(job) == 2
    started = agentrun("start", "work", "--fresh")
    assert started.returncode == 0 and ran(job) == 5
    assert "work: --fresh gives up the unfinished run of " in started.stderr
    assert "with 2 finished items\n" in started.stderr and "--yes" not in started.stderr


def test_fresh_names_edits_and_messages_and_asks_nothing_where_there_are_none(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "work").returncode == 0
    assert agentrun("start", "work", "--fresh").returncode == 0
    assert agentrun("edit", "work", "items/a.txt", "--output", '"by hand"').returncode == 0
    assert agentrun("redo", "work", "items/b.txt").returncode == 0
    refused = agentrun("start", "work", "--fresh")
    assert refused.returncode == 2 and "gives up 1 posted edit, 1 posted redo\n" in refused.stderr
    assert "nothing was started" in refused.stderr and "add --yes" in refused.stderr
    assert agentrun("start", "work").returncode == 0
    refused = agentrun("start", "work", "--fresh")
    assert refused.returncode == 2 and "gives up 1 output edited by hand\n" in refused.stderr
    assert (
        "--fresh gives up 1 output edited by hand; it asks first"
        in agentrun("start", "work", "--fresh", "--plan").stdout
    )
    assert agentrun("start", "work", "--fresh", "--yes").returncode == 0
    assert "by hand" not in (job / "work.results.jsonl").read_text()
