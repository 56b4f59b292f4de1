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
    assert "to be skipped; go on with: agentrun resume drafts" in ended.stderr
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
        (["--cause", "quota"], "no item has failed for quota"),
    ],
)
def test_what_cannot_be_skipped_is_an_error_and_posts_nothing(
    made: Made, agentrun: Run, arguments: list[str], words: str
) -> None:
    ended = agentrun("skip", "drafts", *arguments)
    assert ended.returncode == 2 and words in ended.stderr, ended.stderr
    assert made.posted() == []
