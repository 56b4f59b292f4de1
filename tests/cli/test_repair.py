"""agentrun repair: what is whole of a damaged state counts."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Run
from cli.terminal import Terminal
from waiting import eventually

AGENT = """\
import pathlib

def agent(item, ctx):
    with open(pathlib.Path(__file__).parent / "ran.log", "a") as log:
        log.write(item.key + "\\n")
    if CARRY:
        ctx.carry = [*(ctx.carry or []), item.key][-3:]
    return {"said": item.text * 100, "before": ctx.carry if CARRY else None}
"""
ITEMS = [f"item {n}" for n in range(100)]


def lay_out(base: Path, *, carry: bool = False) -> None:
    (base / "agent.py").write_text(f"CARRY = {carry}\n{AGENT}")
    (base / "items.txt").write_text("".join(f"{item}\n" for item in ITEMS))
    top = f'name = "triage"\nagent = "agent.py:agent"\ncarry = {str(carry).lower()}\n'
    (base / "triage.toml").write_text(f'{top}[items]\nlines = "items.txt"\n')


@pytest.fixture
def half(tmp_path: Path, agentrun: Run) -> Path:
    """Of a hundred items sixty are done, most of them in journal-1.jsonl; the folder of the state."""
    lay_out(tmp_path)
    assert agentrun("start", "triage.toml", "--limit", "60").returncode == 4
    folder = tmp_path / ".agentrun" / "triage"
    assert (folder / "journal-1.jsonl").exists()
    return folder


def ran(folder: Path) -> list[str]:
    return (folder.parent.parent / "ran.log").read_text().splitlines()


def results(base: Path) -> bytes:
    return (base / "triage.results.jsonl").read_bytes()


def undisturbed(tmp_path: Path, agentrun: Run, *, carry: bool = False) -> bytes:
    base = tmp_path / "undisturbed"
    base.mkdir()
    lay_out(base, carry=carry)
    assert agentrun("start", "triage.toml", cwd=base).returncode == 0
    return results(base)


def in_journal(folder: Path) -> int:
    return (folder / "journal-1.jsonl").read_bytes().count(b"\n")


def test_without_its_state_json_a_run_is_not_started_over_but_repaired(
    half: Path, tmp_path: Path, agentrun: Run
) -> None:
    (half / "state.json").unlink()
    whole = in_journal(half)
    for command in (["start", "triage.toml"], ["resume", "triage"], ["results", "triage"]):
        ended = agentrun(*command)
        assert ended.returncode == 65 and "agentrun repair triage;" in ended.stderr, ended
    assert len(ran(half)) == 60
    shown = agentrun("repair", "triage")
    assert shown.returncode == 65 and "add --yes" in shown.stderr and "nothing changed" in shown.stderr
    ended = agentrun("repair", "triage", "--yes", "--json")
    assert ended.returncode == 0 and "agentrun resume triage" in ended.stderr
    assert f"whole:   {whole} records of {whole} items: {whole} done, in journal-1.jsonl" in ended.stderr
    told = json.loads(ended.stdout)
    assert (told["repaired"], told["records"], told["counts"]) == (True, whole, {"done": whole})
    assert all((half / name).exists() for name in told["aside"])
    assert agentrun("resume", "triage").returncode == 0
    assert len(ran(half)) == 60 + 100 - whole
    assert results(tmp_path) == undisturbed(tmp_path, agentrun)


def test_with_a_torn_state_json_and_a_damaged_record_only_that_item_is_run_again(
    half: Path, tmp_path: Path, agentrun: Run
) -> None:
    state, journal = half / "state.json", half / "journal-1.jsonl"
    state.write_bytes(state.read_bytes()[:-30])
    journal.write_bytes(journal.read_bytes().replace(b"item 7item 7item 7", b"item 7item 8item 7", 1))
    ended = agentrun("repair", "triage", "--yes")
    assert ended.returncode == 0
    assert "triage: state.json is torn (it ends at byte" in ended.stderr
    assert "whole:   59 records of 59 items: 59 done, in journal-1.jsonl and state.json" in ended.stderr
    assert "what the newest records said of 1 item (index 7); it is run again" in ended.stderr
    assert agentrun("resume", "triage").returncode == 0
    assert sorted(ran(half)) == sorted([*ITEMS, "item 7"])
    assert results(tmp_path) == undisturbed(tmp_path, agentrun)


def test_with_a_carry_the_run_goes_back_to_what_is_lost(tmp_path: Path, agentrun: Run) -> None:
    lay_out(tmp_path, carry=True)
    agentrun("start", "triage.toml", "--limit", "60")
    folder = tmp_path / ".agentrun" / "triage"
    journal = folder / "journal-1.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"item 7item 7item 7", b"item 7item 8item 7", 1))
    (folder / "state.json").unlink()
    assert agentrun("repair", "triage", "--yes").returncode == 0
    assert agentrun("resume", "triage").returncode == 0
    assert ran(folder)[60:] == ITEMS[7:]
    assert results(tmp_path) == undisturbed(tmp_path, agentrun, carry=True)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_asks(half: Path, tmp_path: Path, agentrun: Run, answer: str) -> None:
    (half / "state.json").write_bytes(b"")
    terminal = Terminal("repair", "triage", cwd=tmp_path)
    try:
        shown = terminal.until("write a state that continues from there? [y/N]")
        terminal.type(answer)
        code, after = terminal.end()
    finally:
        terminal.close()
    assert "triage: state.json is empty" in shown and "lost:" in shown and "aside:" in shown
    if answer == "y":
        assert code == 0 and "repaired; to continue: agentrun resume triage" in after
        assert agentrun("status", "triage").stdout.startswith("triage: interrupted, ")
        assert "repaired: state.json is empty" in agentrun("log", "triage").stdout
    else:
        assert code == 65 and "nothing changed" in after
        assert (half / "state.json").read_bytes() == b"" and not list(half.glob("runs/*"))


def test_a_whole_run_is_left_alone(half: Path, agentrun: Run) -> None:
    before = (half / "state.json").read_bytes()
    ended = agentrun("repair", "triage", "--yes")
    assert ended.returncode == 0 and "nothing to repair" in ended.stderr and "agentrun resume triage" in ended.stderr
    assert (half / "state.json").read_bytes() == before
    assert agentrun("resume", "triage").returncode == 0
    ended = agentrun("repair", "triage")
    assert ended.returncode == 0 and "nothing to repair; it has no unfinished run" in ended.stderr


def test_a_newer_version_and_an_unknown_job_are_refused(half: Path, tmp_path: Path, agentrun: Run) -> None:
    path = half / "state.json"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    ended = agentrun("repair", "triage", "--yes")
    assert ended.returncode == 65 and "version 2, from a newer agentrun" in ended.stderr
    assert agentrun("repair", "nobody").returncode == 2
    never = tmp_path / "never"
    never.mkdir()
    lay_out(never)
    assert "has no run yet" in agentrun("repair", "triage.toml", cwd=never).stderr


def test_a_running_job_is_refused(job: Path, begin: Callable[..., subprocess.Popen[str]], agentrun: Run) -> None:
    runner = begin("start", "job.toml", cwd=job, UNTIL="go")
    eventually((job / "ran.log").exists, "the first item has begun")
    ended = agentrun("repair", "job.toml", "--yes", cwd=job)
    assert ended.returncode == 75 and "another runner has this job" in ended.stderr
    (job / "go").touch()
    assert runner.wait() == 0


def test_the_command_that_an_error_names_works_where_it_is_printed(half: Path, tmp_path: Path, agentrun: Run) -> None:
    (half / "state.json").unlink()
    elsewhere = tmp_path / "a folder"
    elsewhere.mkdir()
    below = tmp_path / "below"
    below.mkdir()
    asked = (
        (["start", "../triage.toml"], elsewhere),
        (["status", "triage", "--state-dir", str(half.parent)], Path("/")),
        (["items", "triage"], below),
    )
    for command, cwd in asked:
        ended = agentrun(*command, cwd=cwd)
        found = re.search(r"saved with: (agentrun repair [^;]+);", ended.stdout + ended.stderr)
        assert found, ended
        words = shlex.split(found[1])
        assert agentrun(*words[1:], cwd=cwd).returncode == 65
    assert words == ["agentrun", "repair", "triage"]
