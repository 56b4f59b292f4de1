"""Another user's folder taken for our own: their code would run as us, and their lock would choose whom we signal."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from identity.place import COMMAND, Ended, Place, environment
from needs import require_root
from waiting import PATIENCE_SECONDS, eventually

SOMEBODY = 65534
COMMANDS = [
    ["start", "theirs"],
    ["start", "theirs", "--plan"],
    ["resume", "theirs"],
    ["try", "theirs"],
    ["status"],
    ["status", "theirs"],
    ["stop", "theirs"],
    ["items", "theirs"],
    ["show", "theirs", "item 0"],
    ["log", "theirs"],
    ["failures", "theirs"],
    ["results", "theirs"],
    ["runs", "theirs"],
    ["diff", "theirs"],
    ["review", "theirs"],
    ["answer", "theirs", "item 0", "--yes"],
    ["redo", "theirs", "item 0"],
    ["edit", "theirs", "item 0", "--output", "1"],
    ["skip", "theirs", "item 1"],
    ["repair", "theirs", "--yes"],
    ["clear", "theirs", "--yes"],
]


@pytest.fixture
def theirs(place: Place) -> Place:
    """A folder in which another user has left a job, unfinished; its agent says who has imported it."""
    require_root()
    place.lines(3)
    place.write(
        "agent.py",
        "import os, pathlib\n"
        "with open(pathlib.Path(__file__).with_name('imported'), 'a') as file:\n"
        "    file.write(f'{os.geteuid()}\\n')\n"
        "def agent(item):\n"
        "    return item.text\n",
    )
    asked = ["agent.py:agent", "--items", "items.txt", "--as", "lines", "--name", "theirs"]
    assert place("start", *asked, "--limit", "1").returncode == 4
    give_away(place.folder)
    (place.folder / "imported").unlink()
    (place.folder / "below").mkdir()
    return place


def give_away(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)


def as_it_is(folder: Path) -> dict[Path, tuple[int, ...]]:
    """All that is there, without the time of the last look, which looking changes."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (one.st_ino, one.st_mode, one.st_size, one.st_mtime_ns) for path, one in found.items()}


def check_refused(ended: Ended, folder: Path) -> None:
    assert ended.returncode == 2, ended
    assert f"{folder}: belongs to another user (uid {SOMEBODY})" in ended.stderr and ended.stdout == "", ended
    assert "AGENTRUN_TRUST=" in ended.stderr and "--state-dir" in ended.stderr, ended


def test_nothing_in_another_users_folder_above_is_read_or_run_by_any_command(theirs: Place) -> None:
    before = as_it_is(theirs.folder)
    ended = [theirs(*words, cwd=theirs.folder / "below") for words in COMMANDS]
    assert theirs.said("imported") == []
    for one in ended:
        check_refused(one, theirs.folder / ".agentrun")
    assert as_it_is(theirs.folder) == before


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_nor_where_the_folder_is_named(theirs: Place, tmp_path: Path, how: str) -> None:
    named = str(theirs.folder / ".agentrun")
    flag = ["--state-dir", named] if how == "flag" else []
    environ: dict[str, Any] = {} if how == "flag" else {"AGENTRUN_STATE_DIR": named}
    commands = (["resume", "theirs"], ["status"], ["stop", "theirs"])
    ended = [theirs(*words, *flag, cwd=tmp_path, **environ) for words in commands]
    assert theirs.said("imported") == []
    for one in ended:
        check_refused(one, Path(named))


def test_the_command_that_is_printed_works(theirs: Place) -> None:
    refused = theirs("resume", "theirs", cwd=theirs.folder / "below")
    line = next((line for line in refused.stderr.splitlines() if line.startswith("  if you trust it:")), "")
    assert line, refused
    path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["sh", "-c", line.removeprefix("  if you trust it:")],
        cwd=theirs.folder / "below",
        env=environment({"PATH": path}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended
    assert set(theirs.said("imported")) == {"0"} and len(theirs.results("theirs.results.jsonl")) == 3


def test_a_trusted_folder_covers_what_is_in_it_and_no_other(theirs: Place) -> None:
    below = theirs.folder / "below"
    for trusted in (theirs.folder / ".agentrun", f"/nowhere:{theirs.folder}/"):
        assert theirs("status", "theirs", cwd=below, AGENTRUN_TRUST=str(trusted)).returncode == 0
    for other in (theirs.folder / ".agent", theirs.folder / ".agentrun/theirs", "../"):
        check_refused(theirs("status", "theirs", cwd=below, AGENTRUN_TRUST=str(other)), theirs.folder / ".agentrun")


def test_a_job_of_our_own_below_another_users_folder_runs(theirs: Place) -> None:
    ours = Place(theirs.folder / "below", theirs.begun)
    os.chown(ours.folder, 0, 0)
    ours.lines(2)
    ours.write("agent.py", "def agent(item):\n    return item.text\n")
    ours.job(agent="agent.py:agent")
    ended = ours("start", "work.toml")
    assert ended.returncode == 0, ended
    assert len(ours.results()) == 2 and ours("status", "work").returncode == 0


@pytest.mark.parametrize("fault", ["owned by another", "writable by the group", "a link"])
def test_a_part_of_our_state_that_others_can_change_is_refused(place: Place, fault: str) -> None:
    require_root()
    finished(place)
    commands = [["status", "work"], ["results", "work"], ["start", "work"], ["log", "work"]]
    names = [".agentrun", ".agentrun/work", ".agentrun/work/runs", ".agentrun/work/inbox"]
    for words, name in zip(commands, names, strict=True):
        folder, elsewhere = place.folder / name, place.folder / "elsewhere"
        folder.mkdir(exist_ok=True, mode=0o700)
        if fault == "owned by another":
            os.chown(folder, SOMEBODY, SOMEBODY)
        elif fault == "a link":
            folder.rename(elsewhere)
            folder.symlink_to(elsewhere)
        else:
            folder.chmod(0o770)
        ended = place(*words)
        assert ended.returncode == 2 and f"{folder}: " in ended.stderr and ended.stdout == "", ended
        if fault == "a link":
            folder.unlink()
            elsewhere.rename(folder)
        os.chown(folder, 0, 0)
        folder.chmod(0o700)
    assert place("status", "work").returncode == 0


def finished(place: Place) -> None:
    place.lines(1)
    place.write("agent.py", "def agent(item):\n    return item.text\n")
    place.job(agent="agent.py:agent")
    assert place("start", "work.toml").returncode == 0


def test_one_job_that_is_not_ours_does_not_hide_the_others(place: Place) -> None:
    require_root()
    finished(place)
    os.chown(place.folder / ".agentrun/work", SOMEBODY, SOMEBODY)
    place.job("other", agent="agent.py:agent")
    assert place("start", "other.toml").returncode == 0
    listed = {view["job"]: view for view in json.loads(place("status", "--json").stdout)}
    assert listed["other"]["status"] == "finished"
    assert listed["work"]["status"] == "damaged" and "another user" in listed["work"]["problem"]


# ---- whom `stop` signals


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def name_in_lock(place: Place, process: subprocess.Popen[bytes]) -> Path:
    lock = place.folder / ".agentrun/work/lock"
    host = os.uname().nodename
    lock.write_text(json.dumps({"pid": process.pid, "host": host, "since": "2026-01-01T00:00:00Z"}))
    return lock


def test_stop_signals_nobody_if_the_lock_is_free(place: Place, bystander: subprocess.Popen[bytes]) -> None:
    finished(place)
    name_in_lock(place, bystander)
    ended = place("stop", "work", "--no-wait")
    assert bystander.poll() is None and "no runner is working on it" in ended.stderr, ended


def test_stop_signals_no_process_that_does_not_have_the_lock(place: Place, bystander: subprocess.Popen[bytes]) -> None:
    finished(place)
    with name_in_lock(place, bystander).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ended = place("stop", "work", "--no-wait")
    assert ended.returncode == 2 and f"pid {bystander.pid} does not hold" in ended.stderr, ended
    assert bystander.poll() is None


def test_stop_stops_the_runner(place: Place) -> None:
    place.lines(2)
    place.write("agent.py", "import time\ndef agent(item):\n    open('begun', 'w')\n    time.sleep(600)\n")
    place.job(agent="agent.py:agent", run='grace = "0s"')
    runner = place.begin("start", "work.toml")
    eventually((place.folder / "begun").exists, "an item is begun", alive=runner)
    assert place("stop", "work").returncode == 0
    assert runner.wait(PATIENCE_SECONDS) == 143


# ---- what is not a file


def test_a_pipe_in_place_of_a_file_is_an_error_and_not_waited_for(place: Place) -> None:
    place.lines(3)
    place.write(
        "agent.py", "def agent(item):\n    print('seen')\n    assert item.index != 1\n    return 'x' * 20_000\n"
    )
    place.job(agent="agent.py:agent", run="stop_after_failures = 0")
    assert place("start", "work.toml").returncode == 1
    folder = place.folder / ".agentrun/work"
    item_log = next(path for path in folder.glob("logs/*.log"))
    read_by = {
        "state.json": ["status", "resume"],
        "job.json": ["status"],
        "lock": ["status", "resume"],
        "log.jsonl": ["log", "resume"],
        "journal-1.jsonl": ["results", "resume"],
        "inbox/a.json": ["resume"],
        "runs/x.json": ["status"],
        str(item_log.relative_to(folder)): ["show", "resume"],
    }
    for name, commands in read_by.items():
        path, kept = folder / name, place.folder / "kept"
        path.parent.mkdir(exist_ok=True, mode=0o700)
        if path.exists():
            path.rename(kept)
        os.mkfifo(path)
        for command in commands:
            ended = to_its_end(place, command, "work", *(["--index", "1"] if command == "show" else []))
            assert ended.returncode in (0, 1, 2, 65, 74), (name, ended)
            assert "this is a bug" not in ended.stderr, (name, ended)
            if name == "state.json":
                assert "not a regular file" in ended.stdout + ended.stderr, (name, ended)
        path.unlink(missing_ok=True)
        if kept.exists():
            kept.rename(path)
    assert place("status", "work").returncode == 0


def to_its_end(place: Place, *words: str) -> Ended:
    process = place.begin(*words)
    eventually(lambda: process.poll() is not None, f"{shlex.join(words)} ends")
    stdout, stderr = process.communicate()
    return Ended(words, process.returncode, stdout, stderr)
