"""agentrun export and import: a job is killed in one folder, and finishes in another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Run
from waiting import eventually

AGENT = """\
import os, pathlib, time

HERE = pathlib.Path(__file__).parent

def letter(item, ctx):
    with open(HERE / "ran.log", "a") as log:
        log.write(item.key + "\\n")
    counted = ctx.step("count", lambda: len(item.text))
    (ctx.out / "draft.txt").write_text(item.text * 3)
    (ctx.dir / "scratch").write_text("scratch")
    if item.text.startswith("ask"):
        ctx.log("asks")
        return {"sent": ctx.ask("Send this?", to=item.text).yes, "length": counted}
    while item.text == "late" and os.environ.get("HANGS"):
        (HERE / "hangs").touch()
        time.sleep(0.01)
    return {"text": item.text.upper(), "length": counted}
"""
JOB = """\
name = "letters"
agent = "agent.py:letter"
output = "out/{date}.jsonl"
[items]
lines = "letters.txt"
"""
LETTERS = ["ada", "ask ben", "cyd", "ask dan", "eve", "late", "fay", "gus"]


def lay_out(folder: Path, job: str = JOB) -> Path:
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "job.toml").write_text(job)
    (folder / "letters.txt").write_text("".join(f"{letter}\n" for letter in LETTERS))
    return folder


def results(folder: Path) -> dict[str, bytes]:
    """The results and the published files, byte for byte, by their names without the date."""
    found = [path for path in (folder / "out").rglob("*") if path.is_file() and not path.name.startswith(".")]
    dates = {path.relative_to(folder / "out").parts[0].split(".")[0] for path in found}
    assert len(dates) == 1
    date = dates.pop()
    return {
        str(path.relative_to(folder)).replace(date, "DATE"): path.read_bytes().replace(date.encode(), b"DATE")
        for path in found
    }


@pytest.fixture
def undisturbed(tmp_path: Path, agentrun: Run) -> dict[str, bytes]:
    folder = lay_out(tmp_path / "undisturbed")
    assert agentrun("start", "job.toml", cwd=folder).returncode == 3
    assert agentrun("answer", "letters", "--all", "--yes", "--resume", cwd=folder).returncode == 0
    return results(folder)


@pytest.fixture
def killed(tmp_path: Path, agentrun: Run, begin: Callable[..., subprocess.Popen[str]]) -> Path:
    """A folder with a run that was killed: five items are done or wait, one was in flight, two answers are posted."""
    folder = lay_out(tmp_path / "killed")
    process = begin("start", "job.toml", cwd=folder, HANGS="1")
    eventually((folder / "hangs").exists, "the late item runs", alive=process)
    process.kill()
    process.wait()
    assert agentrun("answer", "letters", "--all", "--yes", cwd=folder).returncode == 0
    eventually(lambda: agentrun("export", "letters", "-o", "free.agentrun", cwd=folder).returncode == 0, "it is free")
    (folder / "free.agentrun").unlink()
    return folder


def ran(folder: Path) -> list[str]:
    path = folder / "ran.log"
    return path.read_text().splitlines() if path.exists() else []


def test_a_run_that_was_killed_finishes_elsewhere_as_if_undisturbed(
    tmp_path: Path, agentrun: Run, killed: Path, undisturbed: dict[str, bytes]
) -> None:
    ended = agentrun("export", "letters", "-o", "letters.agentrun", "--move", cwd=killed)
    assert ended.returncode == 0, ended.stderr
    assert "letters: moved to letters.agentrun" in ended.stderr and "agentrun import letters.agentrun" in ended.stderr
    there = lay_out(tmp_path / "there")
    shutil.copy(killed / "letters.agentrun", there)
    # The old place is gone: nothing may depend on it.
    killed.rename(tmp_path / "gone")
    ended = agentrun("import", "letters.agentrun", cwd=there)
    assert ended.returncode == 0, ended.stderr
    assert "with 3 of 8 items done" in ended.stderr and "to continue:  agentrun resume letters\n" in ended.stderr
    assert "job file" not in ended.stderr and "copy" not in ended.stderr
    shown = agentrun("status", "letters", "--json", cwd=there)
    assert json.loads(shown.stdout)["posted"] == {"answer": 2}
    ended = agentrun("resume", "letters", cwd=there)
    assert ended.returncode == 0, ended.stderr
    assert results(there) == undisturbed
    assert sorted(ran(there)) == ["ask ben", "ask dan", "fay", "gus", "late"], "what was done is not run again"
    # The item in flight had remembered its step, and the others are not asked again.
    assert agentrun("show", "letters", "late", cwd=there).returncode == 0
    log = agentrun("log", "letters", cwd=there).stdout
    assert "launch 1 started" in log and "imported: from" in log and "launch 2 resumed" in log


def test_finished_runs_move_too_and_the_next_start_keeps_their_results(
    tmp_path: Path, agentrun: Run, undisturbed: dict[str, bytes]
) -> None:
    origin, there = tmp_path / "undisturbed", lay_out(tmp_path / "there")
    assert agentrun("export", "letters", "-o", str(there / "x"), "--move", cwd=origin).returncode == 0
    ended = agentrun("import", "x", cwd=there)
    assert ended.returncode == 0 and "to continue:  agentrun start letters\n" in ended.stderr, ended.stderr
    ended = agentrun("start", "letters", cwd=there)
    assert ended.returncode == 0, ended.stderr
    assert ran(there) == [] and results(there) == undisturbed
    (there / "letters.txt").write_text("".join(f"{letter}\n" for letter in [*LETTERS, "new"]))
    assert agentrun("start", "letters", cwd=there).returncode == 0
    assert ran(there) == ["new"]


def test_a_job_that_was_moved_does_not_start_here_until_it_is_back(agentrun: Run, killed: Path) -> None:
    assert agentrun("export", "letters", "--move", cwd=killed).returncode == 0
    before = ran(killed)
    for command in (["start", "job.toml"], ["resume", "letters"], ["start", "letters", "-q"]):
        ended = agentrun(*command, cwd=killed)
        assert ended.returncode == 2, ended.stderr
        assert "was moved to" in ended.stderr and "agentrun export letters --undo" in ended.stderr
    assert ran(killed) == before
    ended = agentrun("import", "letters.agentrun", cwd=killed)
    assert ended.returncode == 0 and "letters: back" in ended.stderr, ended.stderr
    assert agentrun("resume", "letters", cwd=killed).returncode == 0


def test_a_move_can_be_undone(agentrun: Run, killed: Path) -> None:
    assert agentrun("export", "letters", "--undo", cwd=killed).returncode == 2
    assert agentrun("export", "letters", "--move", cwd=killed).returncode == 0
    assert agentrun("export", "letters", "--undo", "--move", cwd=killed).returncode == 2
    assert agentrun("export", "letters", "--undo", cwd=killed).returncode == 0
    assert agentrun("resume", "letters", cwd=killed).returncode == 0


def test_a_job_at_work_is_not_exported(
    tmp_path: Path, agentrun: Run, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    folder = lay_out(tmp_path / "work")
    process = begin("start", "job.toml", cwd=folder, HANGS="1")
    eventually((folder / "hangs").exists, "the late item runs", alive=process)
    ended = agentrun("export", "letters", cwd=folder)
    assert ended.returncode == 75 and "another runner has this job" in ended.stderr
    assert not (folder / "letters.agentrun").exists()


def test_a_copy_is_told_from_a_move_and_a_missing_job_file_is_told(tmp_path: Path, agentrun: Run, killed: Path) -> None:
    ended = agentrun("export", "letters", cwd=killed)
    assert ended.returncode == 0 and "letters: exported to letters.agentrun" in ended.stderr
    assert oct(os.stat(killed / "letters.agentrun").st_mode & 0o777) == "0o600"
    ended = agentrun("export", "letters", cwd=killed)
    assert ended.returncode == 2 and "--overwrite" in ended.stderr
    assert agentrun("export", "letters", "--overwrite", cwd=killed).returncode == 0
    there = tmp_path / "there"
    there.mkdir()
    ended = agentrun("import", str(killed / "letters.agentrun"), cwd=there)
    assert ended.returncode == 0, ended.stderr
    assert "a copy: the job may still run" in ended.stderr
    assert "its job file is not here: put it at job.toml" in ended.stderr
    ended = agentrun("import", str(killed / "letters.agentrun"), cwd=there)
    assert ended.returncode == 2 and "--name" in ended.stderr and "agentrun clear letters" in ended.stderr


def test_a_job_is_imported_under_another_name(
    tmp_path: Path, agentrun: Run, killed: Path, undisturbed: dict[str, bytes]
) -> None:
    assert agentrun("export", "letters", "--move", cwd=killed).returncode == 0
    there = lay_out(tmp_path / "there")
    ended = agentrun("import", str(killed / "letters.agentrun"), "--name", "post", cwd=there)
    assert ended.returncode == 0 and "to continue:  agentrun resume post\n" in ended.stderr, ended.stderr
    assert agentrun("resume", "post", cwd=there).returncode == 0
    assert results(there) == undisturbed
    assert [one["job"] for one in json.loads(agentrun("status", "--json", cwd=there).stdout)] == ["post"]


def test_a_job_named_after_its_folder_continues_in_another_folder(tmp_path: Path, agentrun: Run) -> None:
    unnamed = JOB.replace('name = "letters"\n', "")
    folder, there = lay_out(tmp_path / "night", unnamed), lay_out(tmp_path / "there", unnamed)
    assert agentrun("start", "job.toml", cwd=folder).returncode == 3
    assert agentrun("export", "night", "-o", "../x", "--move", cwd=folder).returncode == 0
    ended = agentrun("import", "../x", cwd=there)
    assert ended.returncode == 0 and "agentrun resume night\n" in ended.stderr
    assert agentrun("answer", "night", "--all", "--no", "--resume", cwd=there).returncode == 0
    assert agentrun("export", "night", "-o", "../y", "--move", cwd=there).returncode == 0
    last = lay_out(tmp_path / "last", unnamed)
    ended = agentrun("import", "../y", cwd=last)
    assert "to continue:  agentrun start job.toml --name night\n" in ended.stderr, ended.stderr
    assert agentrun("start", "job.toml", "--name", "night", cwd=last).returncode == 0
    assert ran(last) == []


def test_with_a_state_folder_elsewhere_the_job_is_where_it_is_imported(
    tmp_path: Path, agentrun: Run, undisturbed: dict[str, bytes]
) -> None:
    folder, there = lay_out(tmp_path / "folder"), lay_out(tmp_path / "there")
    state = ("--state-dir", str(tmp_path / "state"))
    assert agentrun("start", "job.toml", *state, cwd=folder).returncode == 3
    assert agentrun("answer", "letters", "--all", "--yes", *state, cwd=folder).returncode == 0
    assert agentrun("export", "letters", "-o", "../x", "--move", *state, cwd=folder).returncode == 0
    folder.rename(tmp_path / "gone")
    other = ("--state-dir", str(tmp_path / "other"))
    for target in ((), other):
        ended = agentrun("import", "../x", *target, cwd=there)
        assert ended.returncode == 0, ended.stderr
        ended = agentrun("resume", "letters", *target, cwd=there)
        assert ended.returncode == 0, ended.stderr
        assert results(there) == undisturbed
        shutil.rmtree(there / "out")


def test_a_job_goes_into_a_store_and_continues_there(
    tmp_path: Path, agentrun: Run, killed: Path, undisturbed: dict[str, bytes]
) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    # In the same folder: only the state goes elsewhere.
    assert agentrun("export", "letters", "--move", cwd=killed).returncode == 0
    ended = agentrun("import", "letters.agentrun", "--store", store, cwd=killed)
    assert ended.returncode == 0, ended.stderr
    ended = agentrun("resume", "letters", cwd=killed)
    assert ended.returncode == 0, ended.stderr
    assert results(killed) == undisturbed


def test_a_damaged_file_is_refused_and_leaves_nothing(tmp_path: Path, agentrun: Run, killed: Path) -> None:
    assert agentrun("export", "letters", cwd=killed).returncode == 0
    text = (killed / "letters.agentrun").read_bytes()
    there = tmp_path / "there"
    there.mkdir()
    for damaged, code in (
        (text[: len(text) // 2], 65),
        (text[:-1], 65),
        (text[: len(text) // 2] + b"\0" + text[len(text) // 2 + 1 :], 65),
        (b"no export", 2),
        (b"", 2),
    ):
        (tmp_path / "x").write_bytes(damaged)
        ended = agentrun("import", "../x", cwd=there)
        assert ended.returncode == code, ended.stderr
        assert len(ended.stderr.splitlines()) == 1 and str(tmp_path / "x") in ended.stderr
        assert list(there.iterdir()) == []
    ended = agentrun("import", "../none", cwd=there)
    assert ended.returncode == 2 and "no such file" in ended.stderr


def test_a_file_is_sealed_where_there_is_a_key(tmp_path: Path, agentrun: Run, killed: Path) -> None:
    key = agentrun("rekey", "--new").stdout.strip()
    ended = agentrun("export", "letters", cwd=killed, AGENTRUN_KEY=key)
    assert ended.returncode == 0 and "sealed" in ended.stderr and key not in ended.stderr
    there = lay_out(tmp_path / "there")
    file = str(killed / "letters.agentrun")
    assert b"ada" not in (killed / "letters.agentrun").read_bytes()
    assert agentrun("import", file, cwd=there).returncode == 2
    assert not (there / ".agentrun").exists()
    assert agentrun("import", file, cwd=there, AGENTRUN_KEY=key).returncode == 0
    assert agentrun("resume", "letters", cwd=there).returncode == 0
