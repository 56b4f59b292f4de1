"""try: a few items in the foreground, without state."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_few_items_are_run_without_state_and_their_outputs_are_data(agentrun: Run, job: Path) -> None:
    (job / "agent.py").write_text(
        "def upper(item, ctx):\n    print('seen')\n    ctx.log('noted')\n    return item.text.upper()\n"
    )
    ended = agentrun("try", "work", "-n", "2")
    assert ended.returncode == 0
    assert [json.loads(line)["output"] for line in ended.stdout.splitlines()] == ["TEXT A", "TEXT B"]
    assert ended.stderr.splitlines() == ["seen", "noted"] * 2
    assert not (job / ".agentrun").exists()


def test_items_are_named_by_key_path_or_index(agentrun: Run, job: Path) -> None:
    ended = agentrun("try", "work", "items/b.txt", "work/items/c.txt", "--index", "0")
    assert [json.loads(line)["key"] for line in ended.stdout.splitlines()] == [f"items/{name}.txt" for name in "bca"]
    nobody = agentrun("try", "work", "items/z.txt")
    assert nobody.returncode == 2 and "has no item items/z.txt" in nobody.stderr
    assert agentrun("try", "work", "--index", "9").returncode == 2


def test_a_failure_shows_the_users_traceback_and_the_next_item_is_run(agentrun: Run, job: Path) -> None:
    (job / "items" / "a.txt").write_text("bad")
    ended = agentrun("try", "work")
    assert ended.returncode == 1 and len(ended.stdout.splitlines()) == 2
    assert re.search(r'agent.py", line \d+, in upper', ended.stderr)
    assert "runner/agentrun" not in ended.stderr
    assert "failed  items/a.txt: Fail: it is bad: bad" in ended.stderr


def test_breakpoint_works_in_the_main_thread(agentrun: Run, job: Path) -> None:
    (job / "agent.py").write_text("def upper(item):\n    word = item.text\n    breakpoint()\n    return word\n")
    ended = agentrun("try", "work", "-n", "1", stdin="p 'it is ' + word\nc\n")
    assert ended.returncode == 0 and "it is text a" in ended.stderr
    assert json.loads(ended.stdout)["output"] == "text a"


def test_async_agents_classes_and_programs_are_tried_too(agentrun: Run, job: Path) -> None:
    (job / "agent.py").write_text(
        "class Agent:\n"
        "    count = 0\n"
        "    async def __call__(self, item, ctx):\n"
        "        self.count += 1\n"
        "        ctx.carry = (ctx.carry or 0) + self.count\n"
        "        return ctx.carry\n"
        "    async def aclose(self):\n"
        "        print('closed')\n"
    )
    ended = agentrun("try", "agent.py:Agent", "--items", "items/*.txt", "--carry", cwd=job)
    assert [json.loads(line)["output"] for line in ended.stdout.splitlines()] == [1, 3, 6]
    assert ended.stderr == "closed\n"
    program = agentrun("try", "-n", "1", "--items", "-", "--", "sh", "-c", "cat; echo told >&2", stdin="one\ntwo\n")
    assert json.loads(json.loads(program.stdout)["output"]) == {"index": 0, "key": "one", "text": "one"}
    assert program.stderr == "told\n"
