"""The real command on every kind of store: one winner, no late record, no password anywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from areas.stores.shared import STORES, serve
from cli.conftest import COMMAND, environment
from waiting import PATIENCE_SECONDS, eventually

AGENT = """\
import os, pathlib, subprocess, time

def upper(item):
    here = pathlib.Path(__file__).parent
    with open(here / "ran.log", "a") as log:
        log.write(item.text + "\\n")
    print("at work on", item.text)
    while os.environ.get("UNTIL") and not (here / os.environ["UNTIL"]).exists():
        time.sleep(0.01)
    return {"text": item.text.upper(), "env": subprocess.run(["env"], capture_output=True, text=True).stdout}
"""
TOTAL, AT_ONCE = 12, 6


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The variables that name a store."""
    with serve(request.param) as environ:
        yield environ


def make_job(folder: Path, name: str, *, environ: dict[str, str], lease: str = "30s") -> Path:
    """A folder with a job that names the store without its password."""
    place = re.sub(
        r"://([^:/@]*):[^@/]*@", lambda found: f"://{found[1]}@" if found[1] else "://", environ["AGENTRUN_STORE"]
    )
    address = f"{place}{'&' if '?' in place else '?'}lease={lease}"
    folder.mkdir(parents=True)
    (folder / "agent.py").write_text(AGENT)
    (folder / "items.txt").write_text("".join(f"item {n}\n" for n in range(TOTAL)))
    (folder / "job.toml").write_text(
        f'name = "{name}"\nagent = "agent.py:upper"\nstore = "{address}"\noutput = "out.jsonl"\n'
        '[items]\nlines = "items.txt"\n'
    )
    return folder


def begin(folder: Path, *words: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, *words],
        cwd=folder,
        env=environment(**environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    process = begin(folder, *words, **environ)
    said, told = process.communicate(timeout=PATIENCE_SECONDS)
    return subprocess.CompletedProcess(words, process.returncode, said, told)


def ran(folder: Path) -> list[str]:
    log = folder / "ran.log"
    return log.read_text().splitlines() if log.exists() else []


def test_of_six_launches_at_once_one_runs(store: dict[str, str], tmp_path: Path) -> None:
    folders = [make_job(tmp_path / f"f{n}", f"race-{tmp_path.name}", environ=store) for n in range(AT_ONCE)]

    def start(folder: Path) -> subprocess.CompletedProcess[str]:
        # The one that runs holds on until the others have given up.
        return run(folder, "start", "job.toml", "--adopt", UNTIL="go", **store)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        begun = [pool.submit(start, folder) for folder in folders]
        eventually(lambda: sum(one.done() for one in begun) == AT_ONCE - 1, "all but one have given up")
        for folder in folders:
            (folder / "go").touch()
    ended = [one.result() for one in begun]
    assert sorted(one.returncode for one in ended) == [0, *[75] * (AT_ONCE - 1)], [one.stderr for one in ended]
    assert all("another runner has this job" in one.stderr for one in ended if one.returncode)
    assert sorted(len(ran(folder)) for folder in folders) == [*[0] * (AT_ONCE - 1), TOTAL]


def test_a_runner_frozen_past_its_lease_exits_75_and_leaves_no_late_record(
    store: dict[str, str], tmp_path: Path
) -> None:
    name = f"frozen-{tmp_path.name}"
    first, second = (make_job(tmp_path / n, name, environ=store, lease="2s") for n in ("first", "second"))
    frozen = begin(first, "start", "job.toml", UNTIL="go", **store)
    try:
        eventually(lambda: ran(first), "an item has begun")
        os.kill(frozen.pid, signal.SIGSTOP)
        eventually(
            lambda: run(second, "start", "job.toml", "--adopt", **store).returncode == 0, "another one has finished"
        )
        (first / "go").touch()
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    _, told = frozen.communicate(timeout=PATIENCE_SECONDS)
    assert frozen.returncode == 75 and "another runner has taken this job over" in told, told
    found = json.loads(run(second, "status", name, "--json", **store).stdout)
    assert (found["status"], found["counts"]["done"], found["launches"]) == ("finished", TOTAL, 2)
    assert not (first / "out.jsonl").exists() and len((second / "out.jsonl").read_text().splitlines()) == TOTAL


def test_everything_of_an_ordinary_day_works(store: dict[str, str], tmp_path: Path) -> None:
    name = f"day-{tmp_path.name}"
    folder = make_job(tmp_path / "day", name, environ=store)
    assert run(folder, "start", "job.toml", "--limit", "5", **store).returncode == 4
    assert run(folder, "skip", name, "item 11", "--reason", "no time", **store).returncode == 0
    assert run(folder, "redo", name, "item 0", **store).returncode == 0
    resumed = run(folder, "resume", name, **store)
    assert resumed.returncode == 0, resumed.stderr
    assert ran(folder).count("item 0") == 2 and len(ran(folder)) == TOTAL
    again = run(folder, "start", "job.toml", **store)
    assert again.returncode == 0 and "nothing to run" in again.stderr
    (folder / "items.txt").write_text("".join(f"item {n}\n" for n in range(TOTAL + 1)))
    more = run(folder, "start", "job.toml", **store)
    assert more.returncode == 0 and len(ran(folder)) == TOTAL + 1, more.stderr
    assert len(run(folder, "runs", name, "--json", **store).stdout.splitlines()) == 2
    assert run(folder, "report", name, "-o", "report.html", **store).returncode == 0
    run_id = json.loads(run(folder, "status", name, "--json", **store).stdout)["run_id"]
    elsewhere = json.loads(run(tmp_path, "status", run_id, "--json", **store).stdout)
    assert (elsewhere["job"], elsewhere["counts"]["done"]) == (name, TOTAL)
    moved = run(folder, "export", name, "-o", "job.agentrun", "--move", **store)
    assert moved.returncode == 0, moved.stderr
    assert run(folder, "start", "job.toml", **store).returncode == 2
    assert run(folder, "import", "job.agentrun", **store).returncode == 0
    assert run(folder, "start", "job.toml", **store).returncode == 0 and len(ran(folder)) == TOTAL + 1
    assert run(folder, "clear", name, "--yes", **store).returncode == 0
    assert name not in run(folder, "status", **store).stdout


def test_the_password_is_in_no_file_log_error_or_process_list(store: dict[str, str], tmp_path: Path) -> None:
    password = urlsplit(store["AGENTRUN_STORE"]).password or store.get("AWS_SECRET_ACCESS_KEY", "")
    if not password:
        return  # SQLite has none
    assert len(password) > 8
    name = f"secret-{tmp_path.name}"
    folder = make_job(tmp_path / "secret", name, environ=store)
    # Only what may be hidden: the agent's own credentials for S3 are the user's to give.
    shown_to_agents = password in store.get("AWS_SECRET_ACCESS_KEY", "")
    process = begin(folder, "start", "job.toml", UNTIL="go", **store)
    eventually(lambda: ran(folder), "an item has begun")
    listed = [_arguments(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    (folder / "go").touch()
    said, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, told
    wrong = {**store, "AGENTRUN_STORE": store["AGENTRUN_STORE"].replace(password, password[::-1])}
    printed = [said, told]
    for words in (["status", name], ["status"], ["results", name], ["log", name], ["start", "job.toml"]):
        for environ in (store, wrong):
            ended = run(folder, *words, **environ)
            printed += [ended.stdout, ended.stderr]
    run(folder, "export", name, "-o", "job.agentrun", **store)
    if not shown_to_agents:
        assert not any(password in text or password[::-1] in text for text in printed)
        assert not any(password.encode() in path.read_bytes() for path in _files(folder))
    assert not any(password.encode() in one for one in listed)
    assert len(_files(folder)) > 5


def _files(folder: Path) -> list[Path]:
    shutil.unpack_archive(folder / "job.agentrun", folder / "unpacked", "gztar")
    return [path for path in folder.rglob("*") if path.is_file()]


def _arguments(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
