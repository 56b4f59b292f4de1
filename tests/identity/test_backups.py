"""A hard-linked backup of a run at work is a backup: it does not change, and restored it continues."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from identity.place import Place
from needs import require_program
from waiting import eventually

ITEMS = 40
HELD_AT = 15
"""By then the journal is open: the recent outputs in state.json are at most 16 KiB."""
AGENT = """\
import pathlib, time

def write(item):
    here = pathlib.Path(__file__).parent
    with open(here / "ran.log", "a") as log:
        log.write(item.key + "\\n")
    while item.index == %d and not (here / "enough").exists():
        time.sleep(0.005)
    return item.text * 500
"""


def back_up(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-al", str(source), str(target)], check=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith(("state", "journal"))}


def test_a_backup_made_while_the_launch_runs_is_restored_and_continued(place: Place) -> None:
    require_program("cp")
    place.lines(ITEMS)
    place.write("agent.py", AGENT % HELD_AT)
    place.job(agent="agent.py:write", run="concurrency = 1")
    state, backup = place.folder / ".agentrun" / "work", place.folder / "backup"
    runner = place.begin("start", "work.toml")
    eventually(lambda: f"item {HELD_AT}" in place.said("ran.log"), "the item is held", alive=runner)
    back_up(state, backup)
    kept = contents(backup)
    assert {"state.json", "journal-1.jsonl"} <= kept.keys()
    (place.folder / "enough").touch()
    said = runner.communicate()[1]
    assert runner.returncode == 0, said

    shutil.rmtree(state)
    (place.folder / "work.results.jsonl").unlink()
    (place.folder / "ran.log").unlink()
    back_up(backup, state)
    ended = place("resume", "work.toml")
    assert ended.returncode == 0, ended.stderr
    assert place.said("ran.log") == [f"item {n}" for n in range(HELD_AT, ITEMS)]
    assert place.outputs() == {f"item {n}": f"item {n}" * 500 for n in range(ITEMS)}
    assert contents(backup) == kept, "the backup has changed"
