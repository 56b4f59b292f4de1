"""What is checked and made before the first item runs, with the real command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def keys(output: Path) -> list[str]:
    return [json.loads(line)["key"] for line in output.read_text().splitlines()]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    for name in ("a/2.txt", "a/1.txt", "a/draft-3.txt", "b/1.md", "b/draft-1.md", "c/1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "agent.py").write_text("print('imported')\n\n\ndef upper(item):\n    return item.text.upper()\n")
    return tmp_path


# Several patterns


def test_patterns_in_the_job_file_give_each_file_once_in_their_order(agentrun: Run, docs: Path) -> None:
    items = 'files = ["b/*.md", "a/*.txt", "*/1.*"]\nexclude = ["*/draft-*"]\n'
    (docs / "job.toml").write_text(f'agent = "agent.py:upper"\noutput = "out.jsonl"\n[items]\n{items}')
    assert agentrun("start").returncode == 0
    assert keys(docs / "out.jsonl") == ["b/1.md", "a/1.txt", "a/2.txt", "c/1.txt"]
    planned = agentrun("start", "--plan", "--fresh").stdout
    assert "files b/*.md, a/*.txt, */1.*, without */draft-*" in planned


def test_patterns_on_the_command_line_are_those_of_where_it_is_typed(agentrun: Run, docs: Path) -> None:
    patterns = ["--items", "*.txt", "--items", "../b/*", "--exclude", "draft-*", "--exclude", "../a/2*"]
    (docs / "job.toml").write_text('agent = "agent.py:upper"\noutput = "out.jsonl"\n[items]\nfiles = "c/*"\n')
    ended = agentrun("start", "../job.toml", *patterns, cwd=docs / "a")
    assert ended.returncode == 0, ended.stderr
    assert keys(docs / "out.jsonl") == ["a/1.txt", "b/1.md"]


def test_other_patterns_under_the_name_of_an_unfinished_run_are_refused(agentrun: Run, docs: Path) -> None:
    start = ("start", "agent.py:upper", "--name", "mine")
    several = ("--items", "a/*", "--items", "b/*")
    assert agentrun(*start, *several, "--limit", "1").returncode == 4
    ended = agentrun(*start, "--items", "a/*")
    assert ended.returncode == 2
    assert 'items = ["files:a/*", "files:b/*"], but this one has "files:a/*"' in ended.stderr
    ended = agentrun(*start, *several, "--exclude", "draft-*")
    assert ended.returncode == 2 and 'exclude = none, but this one has ["draft-*"]' in ended.stderr
    assert agentrun("resume", "mine").returncode == 0
    assert len(keys(docs / "mine.results.jsonl")) == 5


def test_only_patterns_of_files_can_be_given_together(agentrun: Run, docs: Path) -> None:
    (docs / "urls.csv").write_text("a\n1\n")
    ended = agentrun("start", "agent.py:upper", "--items", "a/*", "--items", "urls.csv")
    assert ended.returncode == 2
    assert ended.stderr.startswith("--items urls.csv: is csv, and only patterns of files can be given together")
    assert agentrun("start", "agent.py:upper", "--items", "a/*", "--items", "urls.csv", "--as", "files").returncode == 0


# The folder of the output


def test_the_folder_of_the_output_is_made_but_not_by_a_plan(agentrun: Run, docs: Path) -> None:
    start = ("start", "agent.py:upper", "--name", "mine", "--items", "a/*", "-o", "out/of/it/{date}/r.jsonl")
    planned = agentrun(*start, "--plan")
    assert planned.returncode == 0 and "refused" not in planned.stdout
    assert not (docs / "out").exists()
    assert agentrun(*start).returncode == 0
    (output,) = (docs / "out" / "of" / "it").glob("*/r.jsonl")
    assert len(keys(output)) == 3
    # Nothing to run, and somebody has removed it all.
    output.unlink()
    output.parent.rmdir()
    assert agentrun(*start).returncode == 0
    assert len(keys(output)) == 3


def test_a_folder_that_cannot_be_made_is_told_before_the_agent_is_imported(agentrun: Run, docs: Path) -> None:
    ended = agentrun("start", "agent.py:upper", "--items", "a/*", "-o", "agent.py/out.jsonl")
    assert ended.returncode == 2
    assert f"agent.py/out.jsonl: {docs}/agent.py is not a folder; choose another output with -o" in ended.stderr
    assert "imported" not in ended.stderr


# Before the import


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--items", "x/*"), "no file matches x/*"),
        (("--items", "a/*", "--needs-env", "NOT_THERE"), "the agent needs NOT_THERE"),
        (("--items", "c/*", "--name", "mine"), "an unfinished run of this name has items"),
    ],
)
def test_what_can_be_known_is_told_before_the_agent_is_imported(
    agentrun: Run, docs: Path, arguments: tuple[str, ...], why: str
) -> None:
    agentrun("start", "agent.py:upper", "--name", "mine", "--items", "a/*", "--limit", "1")
    ended = agentrun("start", "agent.py:upper", *arguments)
    assert ended.returncode == 2
    assert why in ended.stderr and "imported" not in ended.stderr


@pytest.mark.parametrize("command", ["start", "try", "resume"])
def test_a_variable_that_the_job_file_needs_is_told_before_the_agent_is_imported(
    agentrun: Run, docs: Path, command: str
) -> None:
    head = 'name = "mine"\nagent = "agent.py:upper"\n'
    (docs / "job.toml").write_text(f'{head}[items]\nfiles = "a/*"\n')
    assert agentrun("start", "--limit", "1").returncode == 4
    (docs / "job.toml").write_text(f'{head}needs_env = ["NOT_THERE"]\n[items]\nfiles = "a/*"\n')
    ended = agentrun(command, "job.toml")
    assert ended.returncode == 2
    assert ended.stderr == "mine: the agent needs NOT_THERE; set it in the environment\n"
    assert agentrun(command, "job.toml", NOT_THERE="it is").returncode == 0


def test_a_wrong_job_file_is_told_with_its_line(agentrun: Run, docs: Path) -> None:
    (docs / "job.toml").write_text('agent = "agent.py:upper\n')
    ended = agentrun("start")
    assert (
        ended.returncode == 2 and "job.toml: line 1, column 9: the text that begins here is not closed" in ended.stderr
    )
    (docs / "job.toml").write_text(
        'agent = "agent.py:upper"\n[items]\nfiles = "a/*"\n[run]\ntimeout = 30\nretries = "3"\n'
    )
    ended = agentrun("start")
    assert ended.returncode == 2 and 'job.toml: line 6: run.retries is "3"; write a whole number' in ended.stderr
