"""agentrun answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.store.folder.store import FolderStore
from cli.made import Made

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    run = Made(tmp_path, ["ada", "ben", "cyd", "dan", "eve"])
    run.commit(
        run.waiting("ada", draft="Dear Ada", copies=2),
        run.waiting("ben", draft="Dear Ben"),
        run.entry("cyd"),
        run.failed("dan"),
    )
    return run


def said(made: Made) -> list[dict[str, Any]]:
    return [message["answer"] for message in made.posted()]


def test_an_answer_is_posted_and_says_how_to_go_on(made: Made, agentrun: Run) -> None:
    ended = agentrun("answer", "drafts", "ada", "--yes")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == "1 answer is posted; to continue: agentrun resume drafts\n"
    (message,) = made.posted()
    assert message["answer"] == {"yes": True, "text": "", "details": {}}
    assert (message["kind"], message["key"], message["gen"], message["question"]) == ("answer", "ada", 0, 1)
    assert message["run_id"] == made.run_id and message["by"] and message["at"]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--no"], {"yes": False, "text": "", "details": {}}),
        (["--text", "go on"], {"yes": True, "text": "go on", "details": {}}),
        (["--no", "--text", "too long"], {"yes": False, "text": "too long", "details": {}}),
        (
            ["--json", '{"draft": "Hi Ada", "copies": 3}'],
            {"yes": True, "text": "", "details": {"draft": "Hi Ada", "copies": 3}},
        ),
        (["--json", '{"draft": "no"}', "--no"], {"yes": False, "text": "", "details": {"draft": "no"}}),
    ],
)
def test_what_an_answer_says(made: Made, agentrun: Run, arguments: list[str], answer: dict[str, Any]) -> None:
    ended = agentrun("answer", "drafts", "--index", "0", "--by", "Grace", *arguments)
    assert ended.returncode == 0, ended.stderr
    assert said(made) == [answer]
    assert made.posted()[0]["by"] == "Grace"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cyd", "--yes"], "cyd: is done, not waiting"),
        (["dan", "--yes"], "dan: is failed, not waiting"),
        (["eve", "--yes"], "eve: is pending, not waiting"),
        (["bne", "--yes"], "did you mean ben?"),
        (["ada", "--json", '{"daft": 1}'], "no detail daft; it has draft, copies"),
        (["ada", "--json", "{"], "--json: not JSON at line 1"),
        (["ada", "--json", "[1]"], "--json: write an object"),
        (["ada", "--json", '{"copies": 123456789012345678901}'], "beyond 64 bits"),
        (["ada"], "what is the answer?"),
        (["ada", "--yes", "--no"], "both given"),
        (["--yes"], "which item?"),
        (["ada", "--all", "--yes"], "Give one of"),
        (["--all", "--json", "{}"], "--file PATH"),
        (["--file", "x.csv", "--yes"], "leave out"),
        (["--file", "x.csv"], "x.csv: cannot be read"),
        (["--file", "x.xls"], "neither .csv nor .jsonl"),
    ],
)
def test_what_cannot_be_answered_is_an_error_and_posts_nothing(
    made: Made, agentrun: Run, arguments: list[str], words: str
) -> None:
    ended = agentrun("answer", "drafts", *arguments)
    assert ended.returncode == 2 and ended.stdout == ""
    assert words in ended.stderr and ended.stderr.count("\n") == 1
    assert made.posted() == []


def test_a_second_answer_to_a_question_says_that_the_first_wins(made: Made, agentrun: Run) -> None:
    assert agentrun("answer", "drafts", "ada", "--no").returncode == 0
    again = agentrun("answer", "drafts", "ada", "--yes")
    assert again.returncode == 2 and "the first answer wins" in again.stderr
    assert [answer["yes"] for answer in said(made)] == [False]
    # The next question of the same item is another one.
    made.commit(made.waiting("ada", "And now?", n=2))
    assert agentrun("answer", "drafts", "ada", "--yes").returncode == 0
    assert [message["question"] for message in made.posted()] == [1, 2]


def test_all_that_wait_are_answered_at_once(made: Made, agentrun: Run) -> None:
    agentrun("answer", "drafts", "ben", "--no")
    ended = agentrun("answer", "drafts", "--all", "--yes")
    assert ended.returncode == 0
    assert "1 question is already answered" in ended.stderr and "1 answer is posted" in ended.stderr
    assert [(message["key"], message["answer"]["yes"]) for message in made.posted()] == [("ben", False), ("ada", True)]
    assert agentrun("answer", "drafts", "--all", "--yes").returncode == 2


def test_answers_come_from_a_table(made: Made, agentrun: Run, tmp_path: Path) -> None:
    made.commit(made.waiting("eve", draft="Dear Eve", copies=1))
    text = '\ufeffkey,answer,text,draft,copies\nada,yes,fine,,3\nben,NO,"too, long",,\neve,,,x,\ncyd,yes,,,\n'
    (tmp_path / "answers.csv").write_text(text)
    ended = agentrun("answer", "drafts", "--file", "answers.csv")
    assert ended.returncode == 0, ended.stderr
    assert said(made) == [
        {"yes": True, "text": "fine", "details": {"copies": 3}},
        {"yes": False, "text": "too, long", "details": {}},
    ]
    assert "1 line without an answer ignored" in ended.stderr and "no longer waiting, such as cyd" in ended.stderr
    assert "2 answers are posted" in ended.stderr


def test_answers_come_from_json_lines(made: Made, agentrun: Run, tmp_path: Path) -> None:
    rows = [{"key": "ada", "answer": True, "draft": "", "copies": [1]}, {"key": "ben", "answer": "no"}]
    (tmp_path / "answers.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    assert agentrun("answer", "drafts", "--file", "answers.jsonl").returncode == 0
    assert said(made) == [
        {"yes": True, "text": "", "details": {"draft": "", "copies": [1]}},
        {"yes": False, "text": "", "details": {}},
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "name,answer\nada,yes\n", "must name the columns, among them key and answer"),
        ("a.csv", "key,answer\nada,perhaps\n", "a.csv:2: answer is perhaps"),
        ("a.csv", "key,answer\nada,yes\nadda,yes\n", "a.csv:3: drafts: has no item adda"),
        ("a.csv", "key,answer\nada,yes\nada,no\n", "a.csv:3: answers ada a second time (the first: a.csv:2)"),
        (
            "a.csv",
            "key,answer,colour\nada,yes,red\n",
            "a.csv:2: ada: its question has no detail colour; it has draft, copies",
        ),
        ("a.csv", "key,answer,copies\nada,yes,many\n", "a.csv:2: ada: copies is not JSON"),
        ("a.csv", "key,answer\nada,yes,more\n", "more cells"),
        ("a.csv", "key,answer\nada,\n", "there are no answers to post"),
        ("a.csv", "key,answer\ncyd,yes\n", "none of these items, such as cyd, is waiting for an answer"),
        ("a.jsonl", "[1]\n", "a.jsonl:1: is not an object"),
        ("a.jsonl", "{\n", "cannot be read: not JSON"),
        ("a.jsonl", '{"answer": "yes"}\n', "a.jsonl:1: has no key"),
    ],
)
def test_a_file_with_a_mistake_posts_nothing(
    made: Made, agentrun: Run, tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    ended = agentrun("answer", "drafts", "--file", name)
    assert ended.returncode == 2 and words in ended.stderr
    assert made.posted() == []


def test_with_a_file_a_source_that_is_gone_is_said_once_and_the_records_do(
    made: Made, agentrun: Run, tmp_path: Path
) -> None:
    (tmp_path / "items.txt").unlink()
    (tmp_path / "a.csv").write_text("key,answer\nada,yes\n")
    ended = agentrun("answer", "drafts", "--file", "a.csv")
    assert ended.returncode == 0 and ended.stderr.count("using only what is on record") == 1, ended.stderr
    assert len(said(made)) == 1


def test_a_runner_at_work_is_named(made: Made, agentrun: Run) -> None:
    runner = FolderStore(made.folder).lock()
    try:
        ended = agentrun("answer", "drafts", "ada", "--yes", "--resume")
    finally:
        runner.release()
    assert ended.returncode == 0
    assert "1 answer is posted; the running launch (pid " in ended.stderr and "within 2 s" in ended.stderr
    assert len(made.posted()) == 1


def test_a_job_nobody_knows_is_an_error(agentrun: Run) -> None:
    assert agentrun("answer", "nothing", "ada", "--yes").returncode == 2


def test_an_answer_is_taken_back_until_a_runner_has_processed_it(made: Made, agentrun: Run) -> None:
    assert agentrun("answer", "drafts", "ada", "--yes").returncode == 0
    ended = agentrun("answer", "drafts", "ada", "--take-back")
    assert ended.returncode == 0 and "the answer to ada is taken back; the item waits again" in ended.stderr
    assert made.posted() == []
    again = agentrun("answer", "drafts", "ada", "--take-back")
    assert again.returncode == 2 and "nothing to take back" in again.stderr
    for wrong in (["--all"], ["ada", "--yes"], []):
        assert agentrun("answer", "drafts", "--take-back", *wrong).returncode == 2
