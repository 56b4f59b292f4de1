"""agentrun redo."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.store.folder.store import FolderStore
from cli.made import Made
from cli.terminal import Terminal

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    run = Made(tmp_path, [*"abcdef"])
    run.commit(
        run.entry("a", "step", "notes", name="search", n=0, no=0),
        run.entry("a", "step", "draft", name="draft", n=0, no=1),
        run.entry("a"),
    )
    run.commit(
        run.entry("b", gen=2, agent="w2"),
        run.failed("c", "line 17: it is no good"),
        run.failed("d", "timed out", set_aside=True),
        run.waiting("e"),
    )
    return run


def redone(made: Made) -> list[str]:
    assert {message["kind"] for message in made.posted()} <= {"redo"}
    return [message["key"] for message in made.posted()]


def test_an_item_is_to_begin_anew_with_the_next_launch(made: Made, agentrun: Run) -> None:
    ended = agentrun("redo", "drafts", "b", "--by", "Grace")
    assert ended.returncode == 0 and ended.stdout == ""
    assert ended.stderr.splitlines() == [
        "drafts: this discards a finished result",
        "1 item is to be run again; to continue: agentrun resume drafts",
    ]
    (message,) = made.posted()
    assert (message["key"], message["gen"], message["by"], message["run_id"]) == ("b", 2, "Grace", made.run_id)
    assert (message["keep_before"], message["now"]) == (None, False)


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["a", "c", "a", "--index", "4"], ["a", "c", "e"]),
        (["--failed"], ["c", "d"]),
        (["--cause", "NO GOOD"], ["c"]),
        (["--cause", "ValueError: line 99: it is no good"], ["c"]),
        (["--failed", "--cause", "timed"], ["d"]),
        (["--agent-version", "w", "--yes"], ["b"]),
        (["--from", "2"], ["c", "d", "e"]),
        (["--from", "0", "--yes"], ["a", "b", "c", "d", "e"]),
        (["--from", "3", "--failed"], ["d"]),
    ],
)
def test_which_items_are_meant(made: Made, agentrun: Run, arguments: list[str], keys: list[str]) -> None:
    ended = agentrun("redo", "drafts", *arguments)
    assert ended.returncode == 0, ended.stderr
    assert redone(made) == keys


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which items?"),
        (["a", "--failed"], "which items?"),
        (["f"], "f is pending; the next launch runs it anyway"),
        (["nobody"], "has no item nobody"),
        (["--cause", "quota"], "no items match"),
        (["--cause", ""], "no items match"),
        (["--from", "5"], "no items match"),
        (["--from", "0"], "nobody can confirm; add --yes"),
        (["a", "--steps", "serach"], "has a step serach; they have search, draft"),
        (["c", "--steps", "search"], "they have no steps on record"),
    ],
)
def test_what_cannot_be_done_again_is_an_error_and_posts_nothing(
    made: Made, agentrun: Run, arguments: list[str], words: str
) -> None:
    ended = agentrun("redo", "drafts", *arguments)
    assert ended.returncode == 2 and words in ended.stderr, ended.stderr
    assert made.posted() == []


def test_the_steps_before_one_are_kept(made: Made, agentrun: Run) -> None:
    assert agentrun("redo", "drafts", "a", "--steps", "draft").returncode == 0
    assert [message["keep_before"] for message in made.posted()] == ["draft"]


def test_an_item_with_steps_that_is_under_way_can_begin_anew(made: Made, agentrun: Run) -> None:
    made.commit(made.entry("f", "step", "notes", name="search", n=0, no=0))
    assert agentrun("redo", "drafts", "f").returncode == 0
    assert redone(made) == ["f"]


def test_many_finished_results_are_not_given_up_unasked(made: Made, tmp_path: Path) -> None:
    for typed, posts in (("n", False), ("y", True)):
        terminal = Terminal("redo", "drafts", "--from", "0", cwd=tmp_path)
        try:
            terminal.until("this discards 2 finished results; 5 items will be run again")
            terminal.until("continue? [y/N]")
            terminal.type(typed)
            code, _ = terminal.end()
        finally:
            terminal.close()
        assert (code, bool(made.posted())) == ((0, True) if posts else (2, False))


def test_a_runner_at_work_takes_it_in_at_once_only_with_now(made: Made, agentrun: Run) -> None:
    runner = FolderStore(made.folder).lock()
    try:
        later, now = agentrun("redo", "drafts", "c"), agentrun("redo", "drafts", "d", "--now")
    finally:
        runner.release()
    assert "this happens at the next launch" in later.stderr and "within 2 s" in now.stderr
    assert [message["now"] for message in made.posted()] == [False, True]


def test_a_finished_run_goes_on_with_start(made: Made, agentrun: Run) -> None:
    made.commit(made.entry("f"), finish=True)
    ended = agentrun("redo", "drafts", "b")
    assert ended.returncode == 0 and ended.stderr.endswith("to continue: agentrun start drafts\n")
    (message,) = made.posted()
    assert (message["run_id"], message["gen"]) == (made.run_id, 2)


def test_without_a_run_there_is_nothing_to_do_again(tmp_path: Path, agentrun: Run) -> None:
    Made(tmp_path, ["a"])
    ended = agentrun("redo", "drafts.toml", "a")
    assert ended.returncode == 2 and "has no run yet" in ended.stderr


@pytest.mark.parametrize(
    "command",
    [["redo", "drafts", "b"], ["skip", "drafts", "c"], ["answer", "drafts", "e", "--yes"], ["edit", "drafts", "b"]],
    ids=lambda command: command[0],
)
def test_without_its_items_the_job_is_served_from_its_records_and_that_is_said_once(
    made: Made, agentrun: Run, command: list[str]
) -> None:
    (made.base / "items.txt").unlink()
    ended = agentrun(*command, VISUAL="true")
    assert ended.returncode == 0, ended.stderr
    first, *others = ended.stderr.splitlines()
    assert "there is no such file" in first and first.endswith("; using only what is on record")
    assert not any("on record" in line for line in others)


def test_a_job_that_is_another_by_now_is_warned_of(made: Made, agentrun: Run) -> None:
    (made.base / "drafts.toml").write_text((made.base / "drafts.toml").read_text() + '[params]\ncustomer = "acme"\n')
    for command in (["redo", "drafts", "b"], ["skip", "drafts", "c"]):
        ended = agentrun(*command)
        assert ended.returncode == 0, ended.stderr
        assert "the job has other items, another agent or other params by now" in ended.stderr
