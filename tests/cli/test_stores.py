"""Jobs in a store that is not their folder: the real command, with SQLite. The areas do the same with servers."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import COMMAND, Run, environment
from needs import require_program, require_root
from waiting import PATIENCE_SECONDS, eventually

Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def store(tmp_path: Path, job: Path) -> str:
    """The address of a file beside the job's folder, which its job file names."""
    address = f"sqlite:///{tmp_path / 'jobs.db'}"
    (job / "job.toml").write_text(
        f'name = "upper"\nagent = "agent.py:upper"\nstore = "{address}"\n[items]\nfiles = "items/*.txt"\n'
    )
    return address


def ran(folder: Path) -> list[str]:
    log = folder / "ran.log"
    return log.read_text().split() if log.exists() else []


def on(host: str, folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command as a machine of this name runs it."""
    command = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, COMMAND, *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(**environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def wait_for_items(folder: Path, count: int) -> None:
    eventually(lambda: len(ran(folder)) >= count, f"{count} items have begun")


# ---- the ordinary day


def test_a_store_of_the_environment_that_does_not_answer_hides_no_job_that_is_here(
    agentrun: Run, begin: Begin, job: Path
) -> None:
    nobody = {"AGENTRUN_STORE": "redis://127.0.0.1:1/0"}
    process = begin("start", "job.toml", cwd=job, UNTIL="never")
    wait_for_items(job, 1)
    listed = agentrun("status", cwd=job, **nobody)
    assert listed.returncode == 0 and "running" in listed.stdout and "nobody listens there" in listed.stderr
    assert "running" in agentrun("status", job.name, cwd=job, **nobody).stdout
    stopped = agentrun("stop", job.name, "--now", cwd=job, **nobody)
    assert stopped.returncode == 0, stopped.stderr
    assert process.wait(PATIENCE_SECONDS) == 143
    unknown = agentrun("status", "other", cwd=job, **nobody)
    assert unknown.returncode == 74 and "nobody listens there" in unknown.stderr


def test_a_killed_run_is_resumed_and_nothing_but_logs_is_in_the_folder(
    agentrun: Run, begin: Begin, job: Path, store: str
) -> None:
    process = begin("start", "job.toml", cwd=job, UNTIL="never")
    wait_for_items(job, 1)
    process.kill()
    process.wait()
    found = json.loads(agentrun("status", "upper", "--json", cwd=job).stdout)
    assert (found["status"], found["store"]) == ("interrupted", store)
    resumed = agentrun("resume", "upper", cwd=job)
    assert resumed.returncode == 0, resumed.stderr
    assert [json.loads(line)["output"] for line in (job / "upper.results.jsonl").read_text().splitlines()] == [
        "TEXT A",
        "TEXT B",
        "TEXT C",
    ]
    assert ran(job) == ["items/a.txt", "items/a.txt", "items/b.txt", "items/c.txt"]
    kept = {path.name for path in (job / ".agentrun" / "upper").iterdir()}
    assert kept <= {"lock", "log.jsonl", "logs", "work", "store.json"}


def test_the_next_start_keeps_what_is_unchanged(agentrun: Run, job: Path, store: str) -> None:
    assert agentrun("start", "job.toml", cwd=job).returncode == 0
    again = agentrun("start", "job.toml", cwd=job)
    assert again.returncode == 0 and "nothing to run, 3 results kept" in again.stderr
    (job / "items" / "b.txt").write_text("text new")
    changed = agentrun("start", "job.toml", cwd=job)
    assert changed.returncode == 0 and "1 run, 2 kept" in changed.stderr
    assert len(ran(job)) == 4
    assert "finished" in agentrun("runs", "upper", cwd=job).stdout
    assert "TEXT NEW" in agentrun("results", "upper", cwd=job).stdout
    assert "text new" in agentrun("diff", "upper", cwd=job).stdout.lower()
    assert agentrun("report", "upper", "-o", "report.md", cwd=job).returncode == 0


def test_failures_redo_edit_and_skip_go_through_the_store(agentrun: Run, job: Path, store: str) -> None:
    (job / "items" / "b.txt").write_text("bad b")
    assert agentrun("start", "job.toml", cwd=job).returncode == 1
    assert "it is bad: bad b" in agentrun("failures", "upper", cwd=job).stdout
    assert agentrun("skip", "upper", "items/b.txt", "--reason", "hopeless", cwd=job).returncode == 0
    assert agentrun("redo", "upper", "items/a.txt", cwd=job).returncode == 0
    assert agentrun("resume", "upper", cwd=job).returncode == 0
    lines = [json.loads(line) for line in (job / "upper.results.jsonl").read_text().splitlines()]
    assert [one["key"] for one in lines] == ["items/a.txt", "items/c.txt"]
    assert ran(job).count("items/a.txt") == 2
    assert "hopeless" in agentrun("show", "upper", "items/b.txt", cwd=job).stdout


def test_a_store_on_the_command_line_is_remembered_by_the_folder(agentrun: Run, job: Path, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'jobs.db'}"
    assert agentrun("start", "job.toml", "--name", "upper", "--store", address, cwd=job).returncode == 0
    assert json.loads(agentrun("status", "upper", "--json", cwd=job).stdout)["store"] == address
    assert "3/3" in agentrun("status", cwd=job).stdout
    assert "upper" in agentrun("status", "--store", address).stdout
    assert "TEXT A" in agentrun("results", "upper", "--store", address, cwd=tmp_path).stdout
    assert not (job / ".agentrun" / "upper" / "state.json").exists()


def test_the_store_of_the_environment_is_for_jobs_that_have_no_other(agentrun: Run, job: Path, tmp_path: Path) -> None:
    elsewhere = {"AGENTRUN_STORE": f"sqlite:///{tmp_path / 'jobs.db'}"}
    assert agentrun("start", "job.toml", cwd=job).returncode == 0
    known = agentrun("start", "job.toml", cwd=job, **elsewhere)
    assert known.returncode == 0 and "nothing to run, 3 results kept" in known.stderr
    new = agentrun("start", "job.toml", "--name", "upper", cwd=job, **elsewhere)
    assert new.returncode == 0, new.stderr
    assert json.loads(agentrun("status", "upper", "--json", cwd=job).stdout)["store"] == elsewhere["AGENTRUN_STORE"]
    assert "upper" in agentrun("status", cwd=tmp_path, **elsewhere).stdout


def test_many_jobs_share_one_file_and_a_run_is_found_by_its_id(agentrun: Run, job: Path, store: str) -> None:
    for name in ("one", "two"):
        assert agentrun("start", "job.toml", "--name", name, "-o", f"{name}.jsonl", cwd=job).returncode == 0
    listed = json.loads(agentrun("status", "--store", store, "--json").stdout)
    assert [one["job"] for one in listed] == ["one", "two"]
    run_id = listed[1]["run_id"]
    assert json.loads(agentrun("status", run_id, "--store", store, "--json").stdout)["job"] == "two"
    unknown = agentrun("status", "20200101T000000-00000000000", "--store", store)
    assert unknown.returncode == 2 and "no job of that name" in unknown.stderr
    assert agentrun("clear", "one", "--yes", cwd=job).returncode == 0
    assert [one["job"] for one in json.loads(agentrun("status", "--store", store, "--json").stdout)] == ["two"]


# ---- what is refused


def test_a_shared_store_needs_a_name(agentrun: Run, job: Path, tmp_path: Path) -> None:
    refused = agentrun("start", "job.toml", "--store", f"sqlite:///{tmp_path / 'jobs.db'}", cwd=job)
    assert refused.returncode == 2 and 'needs a name of its own; add name = "work", or another one\n' in refused.stderr
    words = ["start", "--items", "items/*.txt", "--store", f"sqlite:///{tmp_path / 'jobs.db'}", "--", "cat", "{}"]
    refused = agentrun(*words, cwd=job)
    assert refused.returncode == 2 and "needs a name of its own; add --name NAME\n" in refused.stderr
    assert not ran(job)


def test_another_place_takes_a_job_over_only_with_a_word(agentrun: Run, job: Path, store: str, tmp_path: Path) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    copy = tmp_path / "copy"
    shutil.copytree(job, copy, ignore=shutil.ignore_patterns(".agentrun", "ran.log"))
    refused = agentrun("start", "job.toml", cwd=copy)
    assert refused.returncode == 2 and f":{job}, but this job is in" in refused.stderr and "--adopt" in refused.stderr
    assert not ran(copy)
    adopted = agentrun("start", "job.toml", "--adopt", cwd=copy)
    assert adopted.returncode == 0, adopted.stderr
    assert ran(copy) == ["items/b.txt", "items/c.txt"]
    assert (copy / "upper.results.jsonl").exists() and not (job / "upper.results.jsonl").exists()
    back = agentrun("start", "job.toml", cwd=job)
    assert back.returncode == 2 and f":{copy}, but" in back.stderr


def test_a_job_is_not_started_over_in_another_store_without_a_word(
    agentrun: Run, job: Path, store: str, tmp_path: Path
) -> None:
    text = (job / "job.toml").read_text()
    (job / "job.toml").write_text(text.replace(f'store = "{store}"\n', ""))
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    (job / "job.toml").write_text(text)
    refused = agentrun("start", "job.toml", cwd=job)
    assert refused.returncode == 2 and "its runs are in the folder" in refused.stderr
    assert "agentrun export upper" in refused.stderr and len(ran(job)) == 1
    assert agentrun("start", "job.toml", "--fresh", "--yes", cwd=job).returncode == 0
    other = agentrun("start", "job.toml", "--store", f"sqlite:///{tmp_path / 'other.db'}", cwd=job)
    assert other.returncode == 2 and f"its runs are in {store}" in other.stderr


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("mysql://db/x", "--store: is not the address of a store"),
        ("postgres://ada:hunter2@db/x", "--store: has a password"),
        ("sqlite:////no/such/folder/jobs.db", "there is no folder /no/such/folder; make it first"),
    ],
)
def test_a_wrong_address_is_exit_2(agentrun: Run, job: Path, address: str, words: str) -> None:
    refused = agentrun("start", "job.toml", "--name", "upper", "--store", address, cwd=job)
    assert refused.returncode == 2 and words in refused.stderr and "hunter2" not in refused.stderr
    assert "Traceback" not in refused.stderr and not ran(job)


def test_a_file_of_another_program_and_a_newer_version_are_left_alone(agentrun: Run, job: Path, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with sqlite3.connect(path) as other:
        other.execute("create table mine (x)")
        other.execute("pragma user_version = 7")
    other.close()
    refused = agentrun("start", "job.toml", "--name", "upper", "--store", f"sqlite:///{path}", cwd=job)
    assert refused.returncode == 2 and "is a database of another program" in refused.stderr
    path.write_bytes(b"not a database at all, but some text\n" * 100)
    refused = agentrun("start", "job.toml", "--name", "upper", "--store", f"sqlite:///{path}", cwd=job)
    assert refused.returncode == 65 and "is not a sound database" in refused.stderr
    newer = tmp_path / "newer.db"
    assert agentrun("start", "job.toml", "--name", "n", "--store", f"sqlite:///{newer}", cwd=job).returncode == 0
    with sqlite3.connect(newer) as changed:
        changed.execute("pragma user_version = 99")
    changed.close()
    refused = agentrun("start", "job.toml", "--name", "n", cwd=job)
    assert refused.returncode == 65 and "from a newer agentrun" in refused.stderr


def test_repair_is_for_folders(agentrun: Run, job: Path, store: str) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    refused = agentrun("repair", "upper", cwd=job)
    what_to_do = f"restore {store} from a backup, or start over with --fresh"
    assert refused.returncode == 2
    assert refused.stderr == f"upper: repair works on the folder store only; {what_to_do}\n"


def test_a_store_that_has_lost_its_data_is_noticed_before_anything_is_run_again(
    agentrun: Run, job: Path, store: str, tmp_path: Path
) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    for path in tmp_path.glob("jobs.db*"):
        path.unlink()
    noticed = agentrun("start", "job.toml", cwd=job)
    assert noticed.returncode == 65 and "is it the right file or server?" in noticed.stderr
    assert len(ran(job)) == 1
    assert agentrun("start", "job.toml", "--fresh", "--yes", cwd=job).returncode == 0


def test_a_job_that_was_cleared_from_its_store_elsewhere_is_started_over_by_the_command_that_is_printed(
    agentrun: Run, job: Path, store: str, tmp_path: Path
) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    assert agentrun("clear", "upper", "--yes", "--store", store, cwd=tmp_path).returncode == 0
    refused = agentrun("start", "upper", cwd=job)
    assert refused.returncode == 2 and "upper: its store no longer has this job; if it was cleared" in refused.stderr
    command = shlex.split(refused.stderr.partition("agentrun ")[2])
    assert command[-1] == "--fresh" and agentrun(*command, cwd=job).returncode == 0


def test_nobody_starts_over_what_belongs_to_another_place(agentrun: Run, job: Path, store: str, tmp_path: Path) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    copy = tmp_path / "copy"
    shutil.copytree(job, copy, ignore=shutil.ignore_patterns(".agentrun", "ran.log"))
    refused = agentrun("start", "job.toml", "--fresh", "--yes", cwd=copy)
    assert refused.returncode == 2 and "--adopt" in refused.stderr and not ran(copy)
    assert agentrun("status", cwd=copy).stdout == "", "a start that was refused leaves nothing behind"
    assert agentrun("resume", "upper", cwd=job).returncode == 0
    assert agentrun("start", "job.toml", "--fresh", "--yes", "--adopt", cwd=copy).returncode == 0


def test_a_name_does_not_start_another_job_whose_file_is_here(
    agentrun: Run, job: Path, store: str, tmp_path: Path
) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    other = tmp_path / "other"
    shutil.copytree(job, other, ignore=shutil.ignore_patterns(".agentrun", "ran.log"))
    (other / "job.toml").write_text((other / "job.toml").read_text().replace('"upper"', '"other"', 1))
    for command in ("start", "resume"):
        refused = agentrun(command, "upper", "--store", store, cwd=other)
        assert refused.returncode == 2 and "is the job other; go to its own folder; if it is the same" in refused.stderr
        assert f"agentrun start {other / 'job.toml'} --name upper --store {store}\n" in refused.stderr
    assert not ran(other)


def test_a_job_may_go_back_to_its_folder(agentrun: Run, job: Path, tmp_path: Path) -> None:
    flags = ("--name", "upper", "--store")
    assert agentrun("start", "job.toml", *flags, f"sqlite:///{tmp_path / 'j.db'}", cwd=job).returncode == 0
    again = agentrun("start", "job.toml", *flags, "folder", "--fresh", "--yes", "--limit", "1", "--overwrite", cwd=job)
    assert again.returncode == 4, again.stderr
    assert agentrun("resume", "upper", cwd=job).returncode == 0
    assert (job / ".agentrun" / "upper" / "runs").is_dir() and len(ran(job)) == 6


def test_a_wrong_address_does_not_stick(agentrun: Run, job: Path, store: str, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database\n" * 100)
    wrong = agentrun("start", "job.toml", "--store", f"sqlite:///{tmp_path / 'text.db'}", cwd=job)
    assert wrong.returncode == 65
    assert agentrun("start", "job.toml", cwd=job).returncode == 0


# ---- several runners, several machines


def test_a_second_runner_waits_and_exits_75_and_stop_reaches_the_first(
    agentrun: Run, begin: Begin, job: Path, store: str, tmp_path: Path
) -> None:
    first = begin("start", "job.toml", cwd=job, UNTIL="never")
    wait_for_items(job, 1)
    copy = tmp_path / "copy"
    shutil.copytree(job, copy, ignore=shutil.ignore_patterns(".agentrun", "ran.log"))
    second = agentrun("start", "job.toml", "--adopt", cwd=copy)
    assert second.returncode == 75 and f"another runner has this job (pid {first.pid} on" in second.stderr
    assert agentrun("start", "job.toml", "--adopt", "--if-free", cwd=copy).returncode == 0
    assert not ran(copy)
    stopped = agentrun("stop", "upper", "--now", "--store", store, cwd=tmp_path)
    assert (
        stopped.returncode == 0 and f"upper: stopped; to resume: go to {socket.gethostname()}:{job}\n" in stopped.stderr
    )
    assert first.wait(PATIENCE_SECONDS) == 143
    assert len(ran(job)) == 1, "no new item was begun after the request"
    assert json.loads(agentrun("status", "upper", "--store", store, "--json").stdout)["status"] == "interrupted"


def test_a_runner_that_was_frozen_past_its_lease_keeps_its_hands_off(
    agentrun: Run, begin: Begin, job: Path, tmp_path: Path
) -> None:
    """SIGSTOP for longer than the lease, another takes over and finishes, SIGCONT: exit 75, and no late record."""
    address = f"sqlite:///{tmp_path / 'jobs.db'}?lease=1s"
    text = f'name = "upper"\nagent = "agent.py:upper"\nstore = "{address}"\n[items]\nfiles = "items/*.txt"\n'
    (job / "job.toml").write_text(text)
    copy = tmp_path / "copy"
    shutil.copytree(job, copy, ignore=shutil.ignore_patterns(".agentrun", "ran.log"))
    frozen = begin("start", "job.toml", cwd=job, UNTIL="go")
    wait_for_items(job, 1)
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        taken: list[subprocess.CompletedProcess[str]] = []

        def take() -> bool:
            taken.append(agentrun("start", "job.toml", "--adopt", cwd=copy))
            return taken[-1].returncode == 0

        eventually(take, "another runner has taken the job over")
        (job / "go").touch()
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.wait(PATIENCE_SECONDS) == 75
    assert frozen.stderr is not None and "taken this job over" in frozen.stderr.read()
    found = json.loads(agentrun("status", "upper", "--json", cwd=copy).stdout)
    assert (found["status"], found["counts"]["done"]) == ("finished", 3)
    assert agentrun("items", "upper", "--json", cwd=copy).stdout.count('"done"') == 3
    assert not (job / "upper.results.jsonl").exists()


def test_items_in_flight_are_ended_when_the_lease_has_run_out_and_the_run_continues_when_the_store_answers(
    job: Path, tmp_path: Path
) -> None:
    """Another machine may have begun them by then. Here nobody has, so the launch goes on with the same items."""
    path = tmp_path / "jobs.db"
    (job / "job.toml").write_text(
        f'name = "upper"\nagent = "agent.py:upper"\nstore = "sqlite:///{path}?lease=1s"\n'
        '[items]\nfiles = "items/*.txt"\n'
    )
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [COMMAND, "start", "job.toml"], cwd=job, env=environment(UNTIL="go"), stdin=subprocess.DEVNULL, stderr=said
        )
    try:
        wait_for_items(job, 1)
        with sqlite3.connect(path, isolation_level=None) as silent:
            silent.execute("begin immediate")
            eventually(
                lambda: "has run out" in (tmp_path / "said").read_text(),
                "the launch knows that its lease has run out",
                alive=process,
            )
            silent.execute("rollback")
        silent.close()
        wait_for_items(job, 2)
        (job / "go").touch()
        assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "said").read_text()
    finally:
        process.kill()
        process.wait()
    assert ran(job)[:2] == ["items/a.txt", "items/a.txt"] and sorted(set(ran(job))) == [
        "items/a.txt",
        "items/b.txt",
        "items/c.txt",
    ]
    assert len((job / "upper.results.jsonl").read_text().splitlines()) == 3


def test_a_run_that_hops_between_two_machines_finishes(job: Path, store: str, tmp_path: Path) -> None:
    require_root()
    require_program("unshare")
    machines = {"alder": job, "birch": tmp_path / "birch"}
    shutil.copytree(job, machines["birch"], ignore=shutil.ignore_patterns(".agentrun", "ran.log"))
    for host in ("alder", "birch"):
        hop = on(host, machines[host], "start", "job.toml", "--adopt", "--limit", "1")
        assert hop.returncode == 4, hop.stderr
    last = on("alder", machines["alder"], "resume", "job.toml", "--adopt")
    assert last.returncode == 0, last.stderr
    assert ran(machines["alder"]) == ["items/a.txt", "items/c.txt"] and ran(machines["birch"]) == ["items/b.txt"]
    assert len((job / "upper.results.jsonl").read_text().splitlines()) == 3
    refused = on("birch", machines["birch"], "start", "job.toml")
    assert refused.returncode == 2 and "belongs to alder:" in refused.stderr


def test_an_agent_sees_neither_the_store_nor_the_keys(agentrun: Run, job: Path, tmp_path: Path) -> None:
    (job / "look.py").write_text(
        "import os, subprocess\n"
        "def look(item):\n"
        "    seen = subprocess.run(['env'], capture_output=True, text=True).stdout\n"
        "    return [name for name in (*os.environ, *seen.split()) if name.startswith('AGENTRUN_STORE')]\n"
        "async def alook(item):\n"
        "    return look(item)\n"
    )
    hidden = {"AGENTRUN_STORE": f"sqlite:///{tmp_path / 'jobs.db'}"}
    ways = [["look.py:look"], ["look.py:alook"], ["look.py:look", "--isolation", "thread"]]
    for number, way in enumerate(ways):
        ended = agentrun(
            "start",
            *way,
            "--name",
            f"look{number}",
            "--items",
            "items/*.txt",
            "-o",
            f"{number}.jsonl",
            cwd=job,
            **hidden,
        )
        assert ended.returncode == 0, ended.stderr
        lines = (job / f"{number}.jsonl").read_text().splitlines()
        assert [json.loads(line)["output"] for line in lines] == [[], [], []]


# ---- a copied folder


def test_a_copied_folder_with_an_unfinished_run_is_recognised(agentrun: Run, job: Path, tmp_path: Path) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    copy = tmp_path / "copy"
    shutil.copytree(job, copy)
    told = agentrun("start", "job.toml", cwd=copy)
    assert told.returncode == 2
    assert f"copied or moved from {job}, with its unfinished run of work (1 of 3 done)" in told.stderr
    resumed = agentrun("resume", "work", cwd=copy)
    assert resumed.returncode == 0, resumed.stderr
    assert len(ran(copy)) == 3 and (copy / "work.results.jsonl").exists()
    # A second name for the same folder is nobody's copy.
    assert agentrun("start", "job.toml", "--name", "second", "-o", "s.jsonl", cwd=job).returncode == 0


# ---- keys


def test_a_sealed_job_shows_nothing_without_its_key_and_gets_a_new_one(
    agentrun: Run, job: Path, store: str, tmp_path: Path
) -> None:
    old, new, both = (tmp_path / name for name in ("old.key", "new.key", "both.key"))
    for path in (old, new):
        path.write_text(agentrun("rekey", "--new").stdout)
    both.write_text(new.read_text() + old.read_text())
    for path in (old, new, both):
        path.chmod(0o600)
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job, AGENTRUN_KEY_FILE=str(old)).returncode == 4
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("jobs.db*"))
    assert b"TEXT A" not in stored and b"items/a.txt" not in stored and b"agent.py" not in stored
    assert b'"last_completed": 0' in stored, "what status needs is readable"
    without = agentrun("resume", "upper", cwd=job)
    assert without.returncode == 2 and "is sealed with key" in without.stderr and "AGENTRUN_KEY" in without.stderr
    wrong = agentrun("resume", "upper", cwd=job, AGENTRUN_KEY_FILE=str(new))
    assert wrong.returncode == 2 and old.read_text().strip() not in wrong.stderr
    assert "interrupted (sealed)  1/3" in agentrun("status", cwd=job).stdout
    changed = agentrun("rekey", "upper", cwd=job, AGENTRUN_KEY_FILE=str(both))
    assert changed.returncode == 0 and "sealed with the first key: 1 run, 1 record" in changed.stderr
    resumed = agentrun("resume", "upper", cwd=job, AGENTRUN_KEY_FILE=str(new))
    assert resumed.returncode == 0, resumed.stderr
    assert len(ran(job)) == 3
    clear = agentrun("rekey", "upper", "--unseal", cwd=job, AGENTRUN_KEY_FILE=str(new))
    assert clear.returncode == 0 and "TEXT A" in agentrun("results", "upper", cwd=job).stdout
    not_sealed = agentrun("start", "job.toml", cwd=job, AGENTRUN_KEY_FILE=str(new))
    assert not_sealed.returncode == 65 and "agentrun rekey upper --seal" in not_sealed.stderr
    sealed = agentrun("rekey", "upper", "--seal", cwd=job, AGENTRUN_KEY_FILE=str(new))
    assert sealed.returncode == 0, sealed.stderr
    assert agentrun("start", "job.toml", cwd=job, AGENTRUN_KEY_FILE=str(new)).returncode == 0


def test_the_state_in_the_folder_is_never_sealed(agentrun: Run, job: Path) -> None:
    key = agentrun("rekey", "--new").stdout.strip()
    assert agentrun("start", "job.toml", cwd=job, AGENTRUN_KEY=key).returncode == 0
    refused = agentrun("rekey", "work", cwd=job, AGENTRUN_KEY=key)
    assert refused.returncode == 2 and "its state is in its folder" in refused.stderr
    assert key not in refused.stderr


def test_an_env_file_sets_neither_the_store_nor_a_key(agentrun: Run, job: Path) -> None:
    (job / ".env").write_text("AGENTRUN_KEY=x\n")
    refused = agentrun("start", "job.toml", "--env-file", ".env", cwd=job)
    assert (
        refused.returncode == 2 and ".env: sets AGENTRUN_KEY, which only the environment itself can" in refused.stderr
    )
