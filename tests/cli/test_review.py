"""agentrun review."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentrun.store.folder.store import FolderStore
from cli.made import Made
from cli.terminal import Terminal

Run = Callable[..., subprocess.CompletedProcess[str]]
HOSTILE = "\x1b[2J\x1b]0;title\x07[red]\u202e"
PROMPT = "[q]uit: "


@pytest.fixture
def made(tmp_path: Path) -> Made:
    run = Made(tmp_path, ["ada", "ben", "cyd", "dan"])
    run.commit(
        run.entry("ada", "step", "three points", name="outline", n=0, no=0),
        run.entry(
            "ada", "answer", question=1, answer={"yes": True, "text": "go", "by": "Eve", "at": "", "details": {}}
        ),
        run.waiting("ada", n=2, draft="Dear Ada,\n" + "".join(f"line {n}\n" for n in range(30)), copies=2),
        run.waiting("ben", f"Send {HOSTILE}?", draft=HOSTILE + "Dear Ben"),
        run.entry("cyd"),
        run.waiting("dan"),
    )
    return run


@pytest.fixture
def review(made: Made, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str, **environ: str) -> Terminal:
        opened.append(Terminal("review", "drafts", *arguments, cwd=tmp_path, **environ))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_items_are_shown_one_by_one_and_each_answer_is_posted_at_once(
    made: Made, review: Callable[..., Terminal]
) -> None:
    terminal = review("--by", "Grace")
    shown = terminal.until(PROMPT)
    for words in ("1 of 3   ada   asked ", "Send this draft?", "  draft:\n    Dear Ada,", "more lines)", "copies: 2"):
        assert words in shown
    assert "step outline: three points" in shown and "question 1: approved by Eve: go" in shown
    assert "line 29" not in shown
    terminal.type("v")
    assert "line 29" in terminal.until(PROMPT)
    terminal.type("a")
    terminal.until("approved\n")
    shown = terminal.until(PROMPT)
    assert [(message["key"], message["question"]) for message in made.posted()] == [("ada", 2)]
    assert "2 of 3   ben" in shown and "\x1b" not in shown and "\u202e" not in shown and "[red]" in shown
    terminal.type("r")
    terminal.until("refused\n")
    terminal.until(PROMPT)
    terminal.type("w")
    terminal.until("your words")
    terminal.type("with [brackets] and more")
    terminal.until("a yes? [Y/n]")
    terminal.type("")
    code, rest = terminal.end()
    assert code == 0 and "3 answers are posted; to continue: agentrun resume drafts" in rest
    answers = [message["answer"] for message in made.posted()]
    assert [(answer["yes"], answer["text"]) for answer in answers] == [
        (True, ""),
        (False, ""),
        (True, "with [brackets] and more"),
    ]
    assert {message["by"] for message in made.posted()} == {"Grace"}


def test_items_are_left_for_later_and_what_was_answered_is_not_asked_again(
    made: Made, review: Callable[..., Terminal], agentrun: Run
) -> None:
    agentrun("answer", "drafts", "ben", "--no")
    terminal = review()
    terminal.until(PROMPT)
    terminal.type("x")
    terminal.until("type one of the letters")
    terminal.until(PROMPT)
    terminal.type("s")
    terminal.until("left for later")
    assert "2 of 3   ben: already answered" in terminal.until("3 of 3   dan")
    terminal.until(PROMPT)
    terminal.type("y")
    code, rest = terminal.end()
    assert code == 0 and "1 answer is posted, 1 still waiting; to continue" in rest
    assert [message["key"] for message in made.posted()] == ["ben", "dan"]


def test_answers_are_undone_one_after_another_and_asked_again(made: Made, review: Callable[..., Terminal]) -> None:
    terminal = review()
    terminal.until(PROMPT)
    terminal.type("u")
    terminal.until("nothing to undo")
    for letter in "yn":
        terminal.until(PROMPT)
        terminal.type(letter)
    assert "3 of 3   dan" in terminal.until(PROMPT)
    assert len(made.posted()) == 2
    terminal.type("u")
    terminal.until("taken back: ben")
    assert "2 of 3   ben" in terminal.until(PROMPT)
    terminal.type("b")
    terminal.until("taken back: ada")
    assert "1 of 3   ada" in terminal.until(PROMPT)
    assert made.posted() == []
    terminal.type("no")
    assert "2 of 3   ben" in terminal.until(PROMPT)
    terminal.type("s")
    assert "3 of 3   dan" in terminal.until(PROMPT)
    terminal.type("q")
    code, rest = terminal.end()
    assert code == 0 and "1 answer is posted, 2 still waiting" in rest
    assert [(message["key"], message["answer"]["yes"]) for message in made.posted()] == [("ada", False)]


def test_an_answer_that_a_runner_has_cannot_be_undone(made: Made, review: Callable[..., Terminal]) -> None:
    terminal = review()
    terminal.until(PROMPT)
    terminal.type("y")
    terminal.until(PROMPT)
    store = FolderStore(made.folder)
    store.claim([one.name for one in store.inbox()])
    terminal.type("u")
    terminal.until("a runner has already processed the answer to ada")
    assert "2 of 3   ben" in terminal.until(PROMPT)
    terminal.type("q")
    assert terminal.end()[0] == 0 and len(made.posted()) == 1


def test_quitting_leaves_the_rest(made: Made, review: Callable[..., Terminal]) -> None:
    terminal = review()
    terminal.until(PROMPT)
    terminal.type("q")
    code, rest = terminal.end()
    assert code == 0 and "nothing answered, 3 still wait" in rest
    assert made.posted() == []


def test_an_interrupt_loses_no_answer(made: Made, review: Callable[..., Terminal]) -> None:
    terminal = review()
    terminal.until(PROMPT)
    terminal.type("a")
    terminal.until("2 of 3")
    terminal.until(PROMPT)
    terminal.interrupt()
    code, rest = terminal.end()
    assert code == 130 and "1 answer is posted, 2 still wait" in rest
    assert [message["key"] for message in made.posted()] == ["ada"]


def test_a_detail_is_edited_and_goes_with_the_answer(
    made: Made, review: Callable[..., Terminal], tmp_path: Path
) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text("import sys\nwith open(sys.argv[1], 'w') as file: file.write(open('new').read())\n")
    terminal = review(VISUAL=f"python3 {editor}")
    terminal.until(PROMPT)
    (tmp_path / "new").write_text("Hi Ada\n")
    terminal.type("e")
    terminal.until("1  draft\n  2  copies\n")
    terminal.type("draft")
    terminal.until("draft: edited")
    terminal.until(PROMPT)
    (tmp_path / "new").write_text("[4")
    terminal.type("e")
    terminal.until("which one?")
    terminal.type("2")
    terminal.until("not JSON at line 1")
    (tmp_path / "new").write_text("[4]")
    terminal.type("y")
    terminal.until("copies: edited")
    terminal.until(PROMPT)
    terminal.type("a")
    terminal.until("approved, with draft, copies as edited")
    terminal.until(PROMPT)
    terminal.type("q")
    assert terminal.end()[0] == 0
    assert [message["answer"]["details"] for message in made.posted()] == [{"draft": "Hi Ada\n", "copies": [4]}]


@pytest.mark.parametrize("arguments", [["--list"], []])
def test_the_questions_are_listed_with_the_commands_that_answer_them(
    made: Made, agentrun: Run, arguments: list[str]
) -> None:
    agentrun("answer", "drafts", "dan", "--yes")
    ended = agentrun("review", "drafts", *arguments)
    assert ended.returncode == 0
    assert "ada\n  Send this draft?\n  draft:\n    Dear Ada,\n" in ended.stdout
    assert "  agentrun answer drafts ada --yes   (or --no, --text, --json)\n" in ended.stdout
    assert "dan (answered, not processed yet)\n" in ended.stdout and "answer drafts dan" not in ended.stdout
    assert "\x1b" not in ended.stdout and "\u202e" not in ended.stdout
    assert ("not on a terminal" in ended.stderr) == (not arguments)
    assert len(made.posted()) == 1


def test_the_questions_are_listed_as_json(made: Made, agentrun: Run) -> None:
    ended = agentrun("review", "drafts", "--list", "--json")
    assert ended.returncode == 0
    first, second, _ = (json.loads(line) for line in ended.stdout.splitlines())
    assert (first["key"], first["question"], first["text"], first["answered"]) == ("ada", 2, "Send this draft?", False)
    assert first["details"]["copies"] == 2 and first["steps"] == [{"name": "outline", "output": "three points"}]
    assert first["command"] == "agentrun answer drafts ada --yes"
    assert second["details"]["draft"] == HOSTILE + "Dear Ben"


def test_with_nothing_to_answer_it_says_so(tmp_path: Path, agentrun: Run) -> None:
    made = Made(tmp_path, ["a"])
    made.commit(made.entry("a"))
    ended = agentrun("review", "drafts")
    assert (ended.returncode, ended.stderr) == (0, "drafts: no items are waiting for an answer\n")
