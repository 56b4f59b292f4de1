"""agentrun export and import: a job is killed in one folder, and finishes in another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Run, environment
from cli.terminal import Terminal
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


def how_to_continue(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """The words of the command that an import suggests."""
    return ended.stderr.partition("  to continue:  agentrun ")[2].split()


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
    for command in ("start", "resume"):
        refused = agentrun(command, "letters", cwd=origin)
        assert refused.returncode == 2 and "was moved to" in refused.stderr, refused.stderr
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
    assert agentrun(*how_to_continue(ended), cwd=last).returncode == 0
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


# ---- what is refused where a job was moved away


def test_nothing_is_posted_to_a_job_that_was_moved_away(agentrun: Run, killed: Path) -> None:
    assert agentrun("export", "letters", "--move", cwd=killed).returncode == 0
    refused = agentrun("start", "letters", cwd=killed).stderr
    assert "was moved to" in refused
    inbox = {path.name for path in (killed / ".agentrun/letters/inbox").iterdir()}
    for command in (
        ["answer", "letters", "ask ben", "--yes"],
        ["answer", "letters", "--all", "--no"],
        ["answer", "letters", "ask ben", "--take-back"],
        ["redo", "letters", "ada"],
        ["redo", "letters", "--from", "0", "--yes"],
        ["edit", "letters", "ada", "--output", '"by hand"'],
        ["skip", "letters", "late"],
        ["review", "letters"],
        ["review", "letters", "--list", "--json"],
        ["start", "job.toml", "--plan"],
        ["resume", "letters", "--plan"],
    ):
        ended = agentrun(*command, cwd=killed)
        assert (ended.returncode, ended.stderr, ended.stdout) == (2, refused, ""), command
    assert {path.name for path in (killed / ".agentrun/letters/inbox").iterdir()} == inbox
    undone = agentrun("export", "letters", "--undo", cwd=killed)
    assert undone.stderr == (
        "letters: the move is undone, and the job can run here; make sure that it runs nowhere else\n"
    )
    assert agentrun("skip", "letters", "late", cwd=killed).returncode == 0


def test_what_is_left_of_a_job_that_was_moved_away_is_cleared(agentrun: Run, killed: Path) -> None:
    assert agentrun("export", "letters", "--move", cwd=killed).returncode == 0
    ended = agentrun("clear", "letters", "--yes", cwd=killed)
    assert ended.returncode == 0, ended.stderr
    assert agentrun("start", "job.toml", "--plan", cwd=killed).returncode == 0


def test_a_start_over_of_a_job_that_was_moved_away_names_the_move(agentrun: Run, killed: Path) -> None:
    assert agentrun("export", "letters", "--move", cwd=killed).returncode == 0
    planned = agentrun("start", "letters", "--fresh", "--plan", cwd=killed)
    assert planned.returncode == 0
    assert f"  was moved to {killed}/letters.agentrun on " in planned.stdout
    assert "it asks first, or needs --yes" in planned.stdout
    before = ran(killed)
    ended = agentrun("start", "letters", "--fresh", cwd=killed)
    assert ended.returncode == 2 and "add --yes" in ended.stderr
    assert ended.stderr.startswith(f"letters: was moved to {killed}/letters.agentrun on "), "the move comes first"
    opened = Terminal("start", "letters", "--fresh", cwd=killed)
    assert "was moved to" in opened.until("start over? [y/N]")
    opened.type("n")
    assert opened.end()[0] == 2
    assert ran(killed) == before
    ended = agentrun("resume", "letters", cwd=killed)
    assert ended.returncode == 2 and "was moved to" in ended.stderr, "the mark is still there"
    ended = agentrun("start", "letters", "--fresh", "--yes", cwd=killed)
    assert ended.returncode == 3, ended.stderr
    assert f"  was moved to {killed}/letters.agentrun on " in ended.stderr
    assert "and may run there as well" in ended.stderr
    assert "was moved" not in agentrun("start", "letters", "--fresh", "--yes", cwd=killed).stderr


# ---- the store of the job file


def with_store(address: str) -> str:
    return JOB.replace("output", f'store = "{address}"\noutput')


def store_of(agentrun: Run, folder: Path, *flags: str) -> str | None:
    found = json.loads(agentrun("status", "letters", "--json", *flags, cwd=folder).stdout)["store"]
    assert found is None or isinstance(found, str)
    return found


def test_a_job_is_imported_into_the_store_that_its_job_file_names(
    tmp_path: Path, agentrun: Run, killed: Path, undisturbed: dict[str, bytes]
) -> None:
    assert agentrun("export", "letters", "--move", cwd=killed).returncode == 0
    there = lay_out(tmp_path / "there", with_store("sqlite:///../jobs.db"))
    address = f"sqlite:///{tmp_path}/jobs.db"
    ended = agentrun("import", str(killed / "letters.agentrun"), cwd=there)
    assert ended.returncode == 0, ended.stderr
    assert f"  in the store {address}, which job.toml names\n" in ended.stderr
    assert "  to continue:  agentrun resume letters\n" in ended.stderr
    assert store_of(agentrun, there) == address
    ended = agentrun("resume", "letters", cwd=there)
    assert ended.returncode == 0, ended.stderr
    assert results(there) == undisturbed


def test_also_under_another_name_and_from_a_job_file_of_another_name(
    tmp_path: Path, agentrun: Run, killed: Path
) -> None:
    assert agentrun("export", "letters", cwd=killed).returncode == 0
    file, there = str(killed / "letters.agentrun"), lay_out(tmp_path / "there", with_store("sqlite:///../jobs.db"))
    assert agentrun("import", file, "--name", "post", cwd=there).returncode == 0
    assert agentrun("resume", "post", cwd=there).returncode == 0
    # A run that is finished keeps its other name, too.
    assert agentrun("export", "post", cwd=there).returncode == 0
    last = lay_out(tmp_path / "last", with_store("sqlite:///jobs.db"))
    for name in ("post", "mail"):
        ended = agentrun("import", str(there / "post.agentrun"), "--name", name, cwd=last)
        assert ended.returncode == 0, ended.stderr
        ended = agentrun(*how_to_continue(ended), cwd=last)
        assert ended.returncode == 0 and f"{name}: nothing to run" in ended.stderr, ended.stderr
        assert ran(last) == []
    elsewhere = lay_out(tmp_path / "elsewhere", with_store("sqlite:///../jobs.db"))
    (elsewhere / "job.toml").rename(elsewhere / "letters.toml")
    ended = agentrun("import", file, cwd=elsewhere)
    assert ended.returncode == 0 and "which letters.toml names" in ended.stderr, ended.stderr
    # That of another job does not count.
    other = lay_out(tmp_path / "other", with_store("sqlite:///../jobs.db").replace("letters", "others"))
    (other / "job.toml").rename(other / "others.toml")
    ended = agentrun("import", file, cwd=other)
    assert ended.returncode == 0 and "store" not in ended.stderr, ended.stderr


def test_a_store_that_contradicts_the_job_file_is_refused_before_anything_is_imported(
    tmp_path: Path, agentrun: Run, killed: Path
) -> None:
    assert agentrun("export", "letters", cwd=killed).returncode == 0
    file, there = str(killed / "letters.agentrun"), lay_out(tmp_path / "there", with_store("sqlite:///../jobs.db"))
    for other in ("sqlite:///other.db", "folder"):
        ended = agentrun("import", file, "--store", other, cwd=there)
        assert ended.returncode == 2, ended.stderr
        assert f"job.toml: names the store sqlite:///{tmp_path}/jobs.db, and --store is " in ended.stderr
    assert not (there / ".agentrun").exists() and not (there / "other.db").exists()
    assert not (tmp_path / "jobs.db").exists()
    # The same place in other words.
    assert agentrun("import", file, "--store", f"sqlite:///{tmp_path}/jobs.db", cwd=there).returncode == 0
    assert agentrun("resume", "letters", cwd=there).returncode == 0


def test_without_any_other_a_job_is_imported_into_the_store_of_the_environment(
    tmp_path: Path, agentrun: Run, killed: Path
) -> None:
    assert agentrun("export", "letters", cwd=killed).returncode == 0
    file, there = str(killed / "letters.agentrun"), lay_out(tmp_path / "there")
    address = f"sqlite:///{tmp_path}/env.db"
    ended = agentrun("import", file, cwd=there, AGENTRUN_STORE=address)
    assert ended.returncode == 0 and f"  in the store {address}\n" in ended.stderr, ended.stderr
    assert store_of(agentrun, there) == address
    assert agentrun("resume", "letters", cwd=there, AGENTRUN_STORE=address).returncode == 0
    named = lay_out(tmp_path / "named", with_store("folder"))
    assert agentrun("import", file, cwd=named, AGENTRUN_STORE=address).returncode == 0
    assert store_of(agentrun, named) is None


def test_a_name_that_is_taken_in_a_store_is_told_with_the_store(tmp_path: Path, agentrun: Run, killed: Path) -> None:
    assert agentrun("export", "letters", cwd=killed).returncode == 0
    file, address = str(killed / "letters.agentrun"), f"sqlite:///{tmp_path}/jobs.db"
    first, second = lay_out(tmp_path / "first"), lay_out(tmp_path / "second")
    assert agentrun("import", file, "--store", address, cwd=first).returncode == 0
    ended = agentrun("import", file, "--store", address, cwd=second)
    assert ended.returncode == 2
    assert f"letters: a job of that name is in {address} already; " in ended.stderr
    command = f"agentrun clear letters --store {address}"
    assert ended.stderr.endswith(f"remove that one with: {command}\n")
    assert agentrun(*command.split()[1:], "--yes", cwd=second).returncode == 0
    assert agentrun("import", file, "--store", address, cwd=second).returncode == 0
    # Where the folder knows the store, the name says enough.
    ended = agentrun("import", file, "--store", address, cwd=second)
    assert ended.stderr.endswith("remove that one with: agentrun clear letters\n"), ended.stderr
    assert agentrun("export", "letters", "-o", "away", "--move", "--store", address, cwd=second).returncode == 0
    third = lay_out(tmp_path / "third")
    ended = agentrun("skip", "letters", "late", "--store", address, cwd=third)
    assert ended.returncode == 2 and ended.stderr.endswith(f"agentrun export letters --store {address} --undo\n")


# ---- what is not in the file


def test_an_export_says_only_what_is_really_not_in_it(tmp_path: Path, agentrun: Run, killed: Path) -> None:
    ended = agentrun("export", "letters", cwd=killed)
    assert "  not in it: the job file, the agent and the items; copy them too\n" in ended.stderr
    agent = lay_out(tmp_path / "agent")
    (agent / "job.toml").unlink()
    started = ("start", "agent.py:letter", "--name", "spooled", "--items", "-")
    assert agentrun(*started, cwd=agent, stdin="ada\nask ben\n").returncode == 3
    ended = agentrun("export", "spooled", cwd=agent)
    assert "  not in it: the agent; copy it too\n" in ended.stderr, ended.stderr
    there = tmp_path / "there"
    there.mkdir()
    shutil.copy(agent / "agent.py", there)
    assert agentrun("import", str(agent / "spooled.agentrun"), cwd=there).returncode == 0
    assert agentrun("answer", "spooled", "--all", "--yes", "--resume", cwd=there).returncode == 0
    (agent / "run.py").write_text(
        "import agentrun\n\ndef up(item):\n    return item.text.upper()\n\n"
        "agentrun.run(up, items=['a', 'b'], name='python', isolation='thread')\n"
    )
    subprocess.run([sys.executable, "run.py"], cwd=agent, env=environment(), check=True, capture_output=True)
    ended = agentrun("export", "python", cwd=agent)
    assert "  not in it: the agent; copy it too\n" in ended.stderr, ended.stderr
    assert (
        agentrun("start", "--name", "cat", "--items", "letters.txt", "--", "cat", "{path}", cwd=agent).returncode == 0
    )
    ended = agentrun("export", "cat", cwd=agent)
    assert "  not in it: the program and the items; copy them too\n" in ended.stderr, ended.stderr
