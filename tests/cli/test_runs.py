"""runs, diff, and results of earlier runs, in every form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import AGENT, Run


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job `letters`, whose results are a folder."""
    (tmp_path / "agent.py").write_text(AGENT)
    text = 'name = "letters"\nagent = "agent.py:upper"\noutput = "out/{key}.md"\n[items]\nfiles = "in/*.txt"\n'
    (tmp_path / "letters.toml").write_text(text)
    (tmp_path / "in").mkdir()
    for name, content in (("a", "=first"), ("b", "second\nline"), ("d", "\x1b[31mred")):
        (tmp_path / "in" / f"{name}.txt").write_text(content)
    return tmp_path


@pytest.fixture
def ran_twice(job: Path, agentrun: Run) -> Path:
    """The second time b has changed, c is new and d is gone."""
    assert agentrun("start", "letters.toml").returncode == 0
    (job / "in" / "b.txt").write_text("second\nother")
    (job / "in" / "c.txt").write_text("third")
    (job / "in" / "d.txt").unlink()
    assert agentrun("start", "letters.toml").returncode == 0
    return job


def test_a_folder_of_results_has_a_file_for_each_item_as_it_is_now(ran_twice: Path) -> None:
    found = {path.name: path.read_text() for path in (ran_twice / "out").iterdir()}
    assert found == {"in_a.txt.md": "=FIRST\n", "in_b.txt.md": "SECOND\nOTHER\n", "in_c.txt.md": "THIRD\n"}


def test_runs_are_listed_and_their_results_found(ran_twice: Path, agentrun: Run) -> None:
    ended = agentrun("runs", "letters")
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0 and lines[0].split()[:4] == ["RUN", "STARTED", "STATE", "ITEMS"]
    assert [line.split()[0] for line in lines[1:]] == ["2", "1"]
    assert "agentrun diff letters 1" in ended.stderr
    newest, oldest = (json.loads(line) for line in agentrun("runs", "letters", "--json").stdout.splitlines())
    assert (newest["number"], newest["ran"], newest["kept"], oldest["counts"]["done"]) == (2, 2, 1, 3)
    for ref in ("1", oldest["run_id"], oldest["run_id"][:-1]):
        found = agentrun("results", "letters", "--run", ref)
        assert [json.loads(line)["key"] for line in found.stdout.splitlines()] == ["in/a.txt", "in/b.txt", "in/d.txt"]
    assert agentrun("results", "letters", "--run", "9").returncode == 2


def test_results_of_any_run_are_written_in_any_form(ran_twice: Path, agentrun: Run) -> None:
    ended = agentrun("results", "letters", "-o", "table.csv")
    assert ended.returncode == 0 and "3 results → table.csv" in ended.stderr and ended.stdout == ""
    assert (ran_twice / "table.csv").read_text() == (
        'index,key,output\n0,in/a.txt,\'=FIRST\n1,in/b.txt,"SECOND\nOTHER"\n2,in/c.txt,THIRD\n'
    )
    assert agentrun("results", "letters", "-o", "table.csv").returncode == 2
    assert agentrun("results", "letters", "--run", "1", "-o", "old/{index}.txt").returncode == 0
    assert sorted(path.name for path in (ran_twice / "old").iterdir()) == ["0.txt", "1.txt", "2.txt"]
    # JSON lines on standard output whatever the form of the job's own output.
    assert [json.loads(line)["index"] for line in agentrun("results", "letters").stdout.splitlines()] == [0, 1, 2]


def test_diff_shows_what_was_added_changed_and_is_gone(ran_twice: Path, agentrun: Run) -> None:
    ended = agentrun("diff", "letters")
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == [
        "changed  in/b.txt",
        "    @@ -1,2 +1,2 @@",
        "     SECOND",
        "    -LINE",
        "    +OTHER",
        "added    in/c.txt",
        "gone     in/d.txt",
    ]
    assert "1 added, 1 changed, 1 gone, 1 the same" in ended.stderr
    changes = [json.loads(line) for line in agentrun("diff", "letters", "1", "--json").stdout.splitlines()]
    assert [(one["change"], one["key"]) for one in changes] == [
        ("changed", "in/b.txt"),
        ("added", "in/c.txt"),
        ("gone", "in/d.txt"),
    ]
    assert changes[2]["before"] == "\x1b[31MRED" and "\x1b" not in agentrun("diff", "letters").stdout


def test_one_run_alone_has_nothing_to_be_compared_with(job: Path, agentrun: Run) -> None:
    assert "has not run yet" in agentrun("runs", "letters.toml").stderr
    assert agentrun("start", "letters.toml", "-o", "r.csv").returncode == 0
    assert (job / "r.csv").read_text().startswith("index,key,output\n")
    ended = agentrun("diff", "letters")
    assert ended.returncode == 2 and "only run 1 has finished" in ended.stderr
