"""agentrun skip."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.made import Made

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    run = Made(tmp_path, [*"abcdef"])
    run.commit(
        run.entry("a"),
        run.failed("b", "line 17: it is no good"),
        run.failed("c", "timed out"),
        run.waiting("d"),
        run.entry("e", "skipped"),
    )
    return run


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["b", "--index", "3", "f"], ["b", "f", "d"]),
        (["--failed"], ["b", "c"]),
        (["--failed", "--cause", "timed out"], ["c"]),
        (["--cause", "it is no good"], ["b"]),
    ],
)
def test_items_are_to_be_settled_with_a_reason(
    made: Made, agentrun: Run, arguments: list[str], keys: list[str]
) -> None:
    ended = agentrun("skip", "drafts", *arguments, "--reason", "not needed", "--by", "Grace")
    assert ended.returncode == 0, ended.stderr
    assert "to be skipped; to continue: agentrun resume drafts" in ended.stderr
    messages = made.posted()
    assert [message["key"] for message in messages] == keys
    assert {(one["kind"], one["reason"], one["by"], one["gen"]) for one in messages} == {
        ("skip", "not needed", "Grace", 0)
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which items?"),
        (["b", "--failed"], "which items?"),
        (["b", "a"], "a is done; it has a result"),
        (["e"], "e is skipped; nothing to do"),
        (["--cause", "quota"], "no items have failed with quota"),
    ],
)
def test_what_cannot_be_skipped_is_an_error_and_posts_nothing(
    made: Made, agentrun: Run, arguments: list[str], words: str
) -> None:
    ended = agentrun("skip", "drafts", *arguments)
    assert ended.returncode == 2 and words in ended.stderr, ended.stderr
    assert made.posted() == []


def test_skipping_the_last_that_kept_a_run_from_completing_completes_it(tmp_path: Path, agentrun: Run) -> None:
    (tmp_path / "agent.py").write_text(
        "import agentrun\n\n\ndef run(item):\n"
        "    if item.text == 'poison':\n        raise agentrun.Fail('no')\n    return item.text\n"
    )
    (tmp_path / "items.txt").write_text("fine\npoison\n")
    started = agentrun("start", "agent.py:run", "--items", "items.txt", "--as", "lines", "--name", "j")
    assert started.returncode == 1, started.stderr
    ended = agentrun("skip", "j", "--failed", "--reason", "poison")
    assert ended.returncode == 0 and "done: 1 of 2, 1 skipped" in ended.stderr, ended.stderr
    assert (tmp_path / "j.results.jsonl").read_text() == '{"index":0,"key":"fine","output":"fine"}\n'
