"""Addresses are looked up and checked; what is sent, what is not, and that no part of an address is said."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from agentrun.checkpoint.summary import Summary
from agentrun.errors import BusyError, DiskError, JobError
from agentrun.job.job import ItemsSpec, Job
from agentrun.job.notify import Notify
from agentrun.notices import sending
from agentrun.notices.apprise_process import hide
from agentrun.notices.notice import write_notice
from agentrun.notices.notices import Notices
from agentrun.notices.sending import Address, check_addresses, deliver, find_addresses
from agentrun.store.memory import MemoryStore
from waiting import eventually

NOTICE = write_notice(Summary(job="triage", run_id="r"), seconds=400)


def job(base: Path, *urls: str, command: tuple[str, ...] | None = None, after: float = 0.0) -> Job:
    notify = Notify(urls=urls, command=command, after_seconds=after)
    items = ItemsSpec(kind="lines", pattern="items.txt")
    return Job(name="triage", base=base, items=items, agent="a.py:f", params={}, output="out.jsonl", notify=notify)


def program(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_an_address_may_be_in_a_variable(tmp_path: Path) -> None:
    found = find_addresses(job(tmp_path, "json://a", "env:HOOK"), {"HOOK": " json://b "})
    assert [one.url for one in found] == ["json://a", "json://b"]


@pytest.mark.parametrize("environ", [{}, {"HOOK": "  "}])
def test_a_variable_that_is_not_set_is_an_error(tmp_path: Path, environ: dict[str, str]) -> None:
    with pytest.raises(JobError, match=r"triage: notify.urls needs HOOK; set it in \.env"):
        find_addresses(replace(job(tmp_path, "env:HOOK"), env_file=".env"), environ)


def test_apprise_says_which_address_it_does_not_understand(tmp_path: Path) -> None:
    good, bad = Address(1, "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"), Address(2, "nope://TopSecret")
    (checked,) = check_addresses(job(tmp_path), [good])
    assert (checked.service, str(checked)) == ("Slack", "address 1 (Slack)")
    assert "TIiajkdnlazkcOXrIdevi7FQ" not in checked.shown and checked.shown.startswith("slack://")
    with pytest.raises(JobError, match="does not understand address 2") as caught:
        check_addresses(job(tmp_path), [good, bad])
    assert "TopSecret" not in caught.value.message


def test_a_program_that_is_not_there_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"there is no program \./tell.sh that can be run"):
        Notices.open(job(tmp_path, command=("./tell.sh",)), os.environ)
    (tmp_path / "tell.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tell.sh").chmod(0o755)
    assert Notices.open(job(tmp_path, command=("./tell.sh",)), os.environ) is not None


def test_a_program_gets_the_summary_as_json_in_the_jobs_folder(tmp_path: Path) -> None:
    copy = program("import sys, pathlib; pathlib.Path('got.json').write_text(sys.stdin.read())")
    (delivery,) = deliver(NOTICE, [], copy, base=tmp_path)
    assert delivery.problem == ""
    got = json.loads((tmp_path / "got.json").read_text())
    assert got["job"] == "triage" and got["occasion"] == "finished" and got["seconds"] == 400


def test_a_program_that_fails_or_does_not_read_is_only_reported(tmp_path: Path) -> None:
    (failed,) = deliver(NOTICE, [], program("raise SystemExit(7)"), base=tmp_path)
    assert failed.to == "notify.command" and failed.problem.endswith("exited with 7")
    (missing,) = deliver(NOTICE, [], ("no-such-program",), base=tmp_path)
    assert missing.problem == "not sent: FileNotFoundError"


def test_a_program_that_hangs_is_ended_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SEND_SECONDS", 0.5)
    hangs = ("sh", "-c", "sleep 1000 & echo $! >pid; wait")
    (delivery,) = deliver(NOTICE, [], hangs, base=tmp_path)
    assert delivery.problem == "not sent within 0.5s"
    text = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
    if text.strip():  # a very busy machine may not have come that far
        eventually(lambda: not is_running(int(text)), "what it started is gone")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_a_signal_gives_up_on_a_notice_and_on_nothing_else(tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    waits = program("import pathlib, time; pathlib.Path('began').touch(); time.sleep(1000)")

    def interrupt() -> None:
        eventually((tmp_path / "began").exists, "the program runs")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    (delivery,) = deliver(NOTICE, [], waits, base=tmp_path)
    thread.join()
    assert delivery.problem == "not sent: interrupted"
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_launch_that_another_runner_kept_from_starting_is_not_told(tmp_path: Path) -> None:
    told = program("import pathlib, sys; pathlib.Path('got.json').write_text(sys.stdin.read())")
    notices = Notices.open(job(tmp_path, command=told), os.environ)
    assert notices is not None
    assert notices.tell_error(BusyError("busy"), MemoryStore(), seconds=10) == []
    (delivery,) = notices.tell_error(DiskError("the disk is full"), MemoryStore(), seconds=10)
    got = json.loads((tmp_path / "got.json").read_text())
    assert delivery.problem == "" and (got["exit_code"], got["reason"]) == (74, "the disk is full")


def test_no_part_of_an_address_is_in_what_the_library_said() -> None:
    url = "json://user:pass%20word@example.org:8080/hooks/Xy12Z?token=abcd"
    said = hide("cannot reach example.org as pass word or pass%20word at /hooks/Xy12Z with abcd", url)
    assert said == "cannot reach **** as **** **** or **** at /****/**** with ****"
