"""The names of jobs that were given none, and which job a word means."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.conftest import COMMAND, Run, environment
from waiting import PATIENCE_SECONDS

LEFT = Path(__file__).parents[1] / "data" / "unnamed"
AGENT = """\
def shout(item):
    with open("ran.log", "a") as log:
        log.write(item.key + "\\n")
    return item.text.strip().upper()
def whisper(item): return item.text.strip()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "docs" / f"{name}.txt").write_text(f"text {name}\n")
    (tmp_path / "voice.py").write_text(AGENT)
    return tmp_path


SHOUT = ("start", "voice.py:shout", "--items", "docs/*.txt")


def ran(folder: Path) -> list[str]:
    return (folder / "ran.log").read_text().split()


def said_command(text: str, label: str) -> list[str]:
    """The command that a line of the text names."""
    (line,) = [line for line in text.splitlines() if line.strip().startswith(label)]
    words = shlex.split(line.partition(label)[2])
    assert words[0] == "agentrun", line
    return words[1:]


def test_another_agent_is_another_job_and_the_same_command_finds_its_own(agentrun: Run, folder: Path) -> None:
    assert agentrun(*SHOUT).returncode == 0
    assert agentrun("start", "voice.py:whisper", "--items", "docs/*.txt").returncode == 0
    outputs = sorted(path.name for path in folder.glob("*.results.jsonl"))
    assert [name.partition("-")[0] for name in outputs] == ["shout", "whisper"]
    again = agentrun("start", "./voice.py:shout", "--items", "./docs/*.txt", "-j", "2")
    assert "nothing to run, 3 results kept" in again.stderr and len(ran(folder)) == 3
    assert json.loads(agentrun("results", "whisper").stdout.splitlines()[0])["output"] == "text a"
    assert json.loads(agentrun("status", "voice.py:shout", "--json").stdout)["job"] == outputs[0][: len("shout-0000")]


def test_the_same_command_in_a_folder_below_continues_the_run(agentrun: Run, folder: Path) -> None:
    (folder / "say.py").write_text("import sys\nprint(open(sys.argv[1]).read(), end='')\n")
    command = ("--", "python3", "say.py", "{path}")
    stopped = agentrun("start", "--items", "docs/*.txt", "--limit", "1", *command)
    assert stopped.returncode == 4, stopped.stderr
    below = agentrun("start", "--items", "*.txt", "--", "python3", "../say.py", "{path}", cwd=folder / "docs")
    assert below.returncode == 0 and "kept 1, to run 2" in below.stderr, below.stderr
    assert not (folder / "docs" / ".agentrun").exists()
    other = agentrun("start", "--items", "a.txt", "--plan", "--", "cat", "{}", cwd=folder / "docs")
    assert "would start a new run of 1 item" in other.stdout


def test_a_run_left_by_the_version_before_is_continued_by_the_same_command_only(agentrun: Run, tmp_path: Path) -> None:
    shutil.copy(LEFT / "summarise.py", tmp_path)
    (tmp_path / "docs").mkdir()
    for number in (1, 2, 3):
        (tmp_path / "docs" / f"{number}.txt").write_text(f"text {number}\n")
    (tmp_path / ".agentrun").mkdir(mode=0o700)
    shutil.copytree(LEFT / "state", tmp_path / ".agentrun" / "summarise")
    (tmp_path / ".agentrun" / "summarise").chmod(0o700)
    start = ("start", "summarise.py:summarise", "--items")
    other = agentrun(*start, "docs/1.txt")
    assert other.returncode == 0 and ran(tmp_path) == ["docs/1.txt"], other.stderr
    same = agentrun(*start, "docs/*.txt")
    assert same.returncode == 0 and same.stderr.startswith("summarise: resuming"), same.stderr
    assert ran(tmp_path)[1:] == ["docs/2.txt", "docs/3.txt"]
    assert len((tmp_path / "summarise.results.jsonl").read_text().splitlines()) == 3
    assert "summarise: nothing to run, 3 results kept" in agentrun(*start, "docs/*.txt").stderr


def test_a_run_is_resumed_by_its_agent_or_without_a_word_and_several_are_listed(agentrun: Run, folder: Path) -> None:
    assert agentrun(*SHOUT, "--limit", "1").returncode == 4
    assert agentrun("resume", "voice.py:shout", "--limit", "1").returncode == 4
    assert agentrun("resume").returncode == 0 and len(ran(folder)) == 3
    assert agentrun("start", "voice.py:shout", "--items", "docs/a.txt", "-q").returncode == 0
    for words in (["resume"], ["resume", "shout"], ["status", "voice.py:shout"], ["show", "shout", "docs/a.txt"]):
        several = agentrun(*words)
        assert several.returncode == 2 and "(docs/*.txt)" in several.stderr and "(docs/a.txt)" in several.stderr
        name = several.stderr.rstrip("\n").rpartition("such as ")[2]
        assert agentrun("status", name).returncode == 0
    unknown = agentrun("resume", "voice.py:whisper")
    assert unknown.returncode == 2 and "no job known here has this agent" in unknown.stderr


@pytest.mark.parametrize(("where", "more"), [(".", ()), ("docs", ()), (".", ("--state-dir", "elsewhere"))])
def test_the_commands_that_are_printed_work_where_they_are_printed(
    agentrun: Run, folder: Path, where: str, more: tuple[str, ...]
) -> None:
    cwd = folder / where
    prefix = os.path.relpath(folder, cwd)
    words = ("start", f"{prefix}/voice.py:shout", "--items", f"{prefix}/docs/*.txt", *more)
    stopped = agentrun(*words, "--limit", "1", cwd=cwd)
    assert stopped.returncode == 4
    resumed = agentrun(*said_command(stopped.stderr, "to resume:"), cwd=cwd)
    assert resumed.returncode == 0, resumed.stderr
    nothing = agentrun(*words, cwd=cwd)
    assert nothing.returncode == 0 and "nothing to run" in nothing.stderr
    again = agentrun(*said_command(nothing.stderr, "to run everything again:"), cwd=cwd)
    assert again.returncode == 0 and "3 of 3" in again.stderr, again.stderr


def test_the_job_that_has_an_output_already_is_named_so_that_it_is_found_from_elsewhere(
    agentrun: Run, folder: Path
) -> None:
    for name in ("mine", "theirs"):
        shutil.copytree(folder / "docs", folder / name / "docs")
        (folder / name / "voice.py").write_text(AGENT)
    assert agentrun(*SHOUT, "-o", "../out.jsonl", "--limit", "1", cwd=folder / "theirs").returncode == 4
    refused = agentrun(*SHOUT, "-o", "../out.jsonl", cwd=folder / "mine")
    assert refused.returncode == 2 and "has an unfinished run" in refused.stderr
    told = refused.stderr.partition("finish that first with: agentrun ")[2].partition(", or remove it")[0]
    assert "--state-dir ../theirs/.agentrun" in told
    assert agentrun(*shlex.split(told), cwd=folder / "mine").returncode == 0
    assert len((folder / "out.jsonl").read_text().splitlines()) == 3


def test_under_a_name_of_its_own_another_task_is_refused_finished_or_not(agentrun: Run, folder: Path) -> None:
    named = ("start", "--name", "mine", "--items")
    assert agentrun(*named, "docs/*.txt", "--limit", "1", "--", "cat", "{}").returncode == 4
    for words in (
        (*named, "docs/a.txt", "--", "cat", "{}"),
        (*named, "docs/*.txt", "--", "cat", "-v", "{}"),
        (*named, "docs/*.txt", "--set", "a=1", "--", "cat", "{}"),
        (*named, "docs/*.txt", "--prompt", "Sum up {text}", "--model", "openai:m"),
        ("start", "voice.py:shout", "--name", "mine", "--items", "docs/*.txt"),
    ):
        refused = agentrun(*words, OPENAI_API_KEY="none")
        assert refused.returncode == 2 and "--name, or start over with --fresh" in refused.stderr, refused.stderr
    assert agentrun(*named, "docs/*.txt", "--", "cat", "{}").returncode == 0
    assert agentrun(*named, "docs/*.txt", "--", "cat", "-v", "{}").returncode == 2
    assert agentrun(*named, "docs/a.txt", "--as", "lines", "--", "cat", "{}").returncode == 2
    fresh = agentrun(*named, "docs/*.txt", "--fresh", "--", "cat", "-v", "{}")
    assert fresh.returncode == 0 and "3 of 3" in fresh.stderr


@pytest.mark.parametrize("mode", [0o755, 0o644])
def test_what_is_suggested_for_a_script_works_when_it_is_copied(agentrun: Run, folder: Path, mode: int) -> None:
    (folder / "ask.sh").write_text('#!/bin/sh\nread -r line <"$1"\necho "asked: $line"\n')
    (folder / "ask.sh").chmod(mode)
    refused = agentrun("start", "ask.sh", "--items", "docs/*.txt", "-o", "my out.jsonl")
    assert refused.returncode == 2 and "ask.sh: is a program, not a job" in refused.stderr
    copied = refused.stderr.partition("to run it:")[2].strip()
    path = f"{Path(COMMAND).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["sh", "-c", copied], cwd=folder, env=environment(PATH=path), timeout=PATIENCE_SECONDS, check=False
    )
    assert ended.returncode == 0
    lines = (folder / "my out.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["output"] == "asked: text a" and len(lines) == 3
    assert "agentrun start --items … --" in agentrun("status", "ask.sh").stderr


def test_code_with_an_item_in_it_is_warned_of(agentrun: Run, folder: Path) -> None:
    command = ("--items", "docs/*.txt", "--", "sh", "-c", "cat {}")
    for verb in (("start", "--plan"), ("try", "-n", "1"), ("start",)):
        told = agentrun(*verb, *command)
        assert told.returncode == 0 and "write: sh -c 'cat \"$1\"' sh {}" in told.stderr, told.stderr
    assert agentrun("start", "-q", *command).stderr == ""
