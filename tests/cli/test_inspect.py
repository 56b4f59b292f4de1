"""items, show, log, failures, results: looking at a run, while it is under way and after it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.people.selecting import near_misses
from agentrun.views.jobs import HistoryEvent
from agentrun_cli.drawing.log import event_lines
from waiting import PATIENCE_SECONDS, eventually

from .conftest import COMMAND, environment

Run = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]

AGENT = """\
import os, pathlib, time

def work(item):
    here = pathlib.Path(__file__).parent
    print("looking at", item.key, "\\x1b[31mred\\x1b[0m", flush=True)
    number = int(item.path.stem)
    if number >= int(os.environ.get("HANG_FROM", "1000")):
        time.sleep(60)
    if (here / "mended").exists():
        return {"number": number}
    if number % 4 == 0:
        raise TypeError(f"row {number} of {item.key} is short")
    if number == 7:
        raise LookupError("odd [bold]name[/bold] \\x1b]0;title\\x07")
    return {"number": number}
"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A job `rows` of nine items; 04, 07 and 08 fail until a file `mended` is there."""
    folder = tmp_path / "rows"
    (folder / "docs").mkdir(parents=True)
    (folder / "agent.py").write_text(AGENT)
    text = 'agent = "agent.py:work"\n[items]\nfiles = "docs/*.txt"\n[run]\nretries = 0\n'
    (folder / "job.toml").write_text(text)
    for number in range(1, 10):
        (folder / "docs" / f"{number:02}.txt").write_text(f"document {number}\nits second line\n")
    return folder


@pytest.fixture
def with_failures(rows: Path, agentrun: Run) -> Path:
    assert agentrun("start", "job.toml", cwd=rows).returncode == 1
    return rows


@pytest.fixture
def finished(rows: Path, agentrun: Run) -> Path:
    (rows / "mended").touch()
    assert agentrun("start", "job.toml", cwd=rows).returncode == 0
    return rows


@pytest.fixture
def under_way(rows: Path, begin: Begin) -> tuple[Path, subprocess.Popen[str]]:
    """Items 1 to 5 are settled, 6 and 7 hang."""
    process = begin("start", "job.toml", "-j", "2", cwd=rows, HANG_FROM="6")
    slots = [rows / ".agentrun" / "rows" / "logs" / f".slot-{n}.log" for n in (0, 1)]

    def both_hang() -> bool:
        said = "".join(slot.read_text() for slot in slots if slot.exists())
        return "06.txt" in said and "07.txt" in said

    eventually(both_hang, "both hang")
    return rows, process


def lines_of(ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def in_terminal(*arguments: str, cwd: Path, columns: int = 80) -> str:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, *arguments],
        cwd=cwd,
        env=environment(TERM="xterm", COLUMNS=str(columns)),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            said += piece
        process.wait(PATIENCE_SECONDS)
    os.close(ours)
    return said.decode()


# ---- items


def test_items_has_a_line_for_each_with_state_attempts_key_and_cause(agentrun: Run, with_failures: Path) -> None:
    ended = agentrun("items", "rows", cwd=with_failures)
    head, *lines = ended.stdout.splitlines()
    assert head.split() == ["index", "state", "tries", "took", "age", "key"]
    assert [line.split()[:2] for line in lines[:4]] == [["0", "done"], ["1", "done"], ["2", "done"], ["3", "failed"]]
    assert lines[3].split()[2] == "1" and lines[3].endswith("docs/04.txt  TypeError: row 4 of docs/04.txt is short")
    assert len(lines) == 9 and "\t" not in ended.stdout and "\x1b" not in ended.stdout
    assert {line.index("docs/") for line in lines} == {head.index("key")}


def test_items_can_be_chosen_by_state(agentrun: Run, with_failures: Path) -> None:
    found = lines_of(agentrun("items", "rows", "--state", "failed", "--json", cwd=with_failures))
    assert [item["key"] for item in found] == ["docs/04.txt", "docs/07.txt", "docs/08.txt"]
    none = agentrun("items", "rows", "--state", "waiting", cwd=with_failures)
    assert (none.returncode, none.stdout) == (0, "") and "9 items" in none.stderr
    assert agentrun("items", "rows", "--state", "odd", cwd=with_failures).returncode == 2


@pytest.mark.parametrize("by", ["duration", "attempts", "age", "index", "key"])
def test_items_can_be_sorted_reversed_and_limited(agentrun: Run, with_failures: Path, by: str) -> None:
    found = lines_of(agentrun("items", "rows", "--sort", by, "--json", cwd=with_failures))
    value: Callable[[dict[str, Any]], Any] = {
        "duration": lambda item: -item["seconds"],
        "attempts": lambda item: -item["attempts"],
        "age": lambda item: item["ended_at"],
        "index": lambda item: item["index"],
        "key": lambda item: item["key"],
    }[by]
    # Two items may have ended within the millisecond that is shown.
    assert found == sorted(found, key=lambda item: (value(item), item["index"] if by != "age" else 0))
    limited = lines_of(agentrun("items", "rows", "--sort", by, "--limit", "2", "--json", cwd=with_failures))
    assert limited == found[:2]
    turned = lines_of(agentrun("items", "rows", "--sort", by, "--reverse", "--json", cwd=with_failures))
    assert turned == found[::-1]


def test_items_names_the_agents_version_only_where_results_span_versions(agentrun: Run, rows: Path) -> None:
    agentrun("start", "job.toml", "--limit", "2", cwd=rows)
    first = lines_of(agentrun("items", "rows", "--json", cwd=rows))[0]["agent"]
    assert first[:8] not in agentrun("items", "rows", cwd=rows).stdout
    (rows / "agent.py").write_text(AGENT + "# another version\n")
    agentrun("resume", "job.toml", "--limit", "1", cwd=rows)
    assert first[:8] in agentrun("items", "rows", cwd=rows).stdout
    found = lines_of(agentrun("items", "rows", "--agent-version", first[:6], "--json", cwd=rows))
    assert [item["index"] for item in found] == [0, 1]


def test_items_of_a_job_that_was_never_run_are_pending(agentrun: Run, rows: Path) -> None:
    found = lines_of(agentrun("items", "job.toml", "--json", cwd=rows))
    assert {item["state"] for item in found} == {"pending"} and len(found) == 9
    assert not (rows / ".agentrun").exists()


def test_items_shows_what_is_running_and_pending_while_a_runner_works(
    agentrun: Run, under_way: tuple[Path, subprocess.Popen[str]]
) -> None:
    folder, _ = under_way
    found = lines_of(agentrun("items", "rows", "--json", cwd=folder))
    assert [item["state"] for item in found] == [*["done"] * 3, "failed", "done", *["running"] * 2, *["pending"] * 2]


def test_after_kill_9_what_was_in_flight_is_pending_and_what_is_there_is_shown(
    agentrun: Run, under_way: tuple[Path, subprocess.Popen[str]]
) -> None:
    folder, process = under_way
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = lines_of(agentrun("items", "rows", "--json", cwd=folder))
    assert [item["state"] for item in found[5:]] == ["pending"] * 4
    results = lines_of(agentrun("results", "rows", cwd=folder))
    assert [line["output"]["number"] for line in results] == [1, 2, 3, 5]


def test_items_that_are_new_or_changed_since_are_pending(agentrun: Run, with_failures: Path) -> None:
    (with_failures / "docs" / "01.txt").write_text("another text\n")
    (with_failures / "docs" / "00.txt").write_text("new\n")
    found = lines_of(agentrun("items", "rows", "--json", cwd=with_failures))
    assert [(item["key"], item["state"], item["changed"]) for item in found[:3]] == [
        ("docs/00.txt", "pending", False),
        ("docs/01.txt", "pending", True),
        ("docs/02.txt", "done", False),
    ]
    assert [line["index"] for line in lines_of(agentrun("results", "rows", cwd=with_failures))][:2] == [2, 3]


def test_a_job_file_that_is_gone_leaves_the_records_to_be_seen(agentrun: Run, with_failures: Path) -> None:
    (with_failures / "job.toml").unlink()
    for command in (["items", "rows"], ["failures", "rows"], ["results", "rows"], ["show", "rows", "docs/04.txt"]):
        ended = agentrun(*command, cwd=with_failures)
        assert ended.returncode == 0 and ended.stdout and "only what is on record" in ended.stderr


def test_on_a_terminal_items_are_cut_to_its_width_and_have_a_heading(with_failures: Path) -> None:
    said = in_terminal("items", "rows", cwd=with_failures, columns=60).replace("\r\n", "\n")
    assert "state" in said.splitlines()[0] and "\x1b[31mfailed\x1b[0m" in said
    assert "\x1b]0;" not in said and "…" in said
    plain = [line.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[0m", "") for line in said.split("\n")]
    assert max(len(line) for line in plain[1:]) == 60


# ---- show


def test_show_tells_all_of_a_failed_item(agentrun: Run, with_failures: Path) -> None:
    ended = agentrun("show", "rows", "docs/04.txt", cwd=with_failures)
    said = ended.stdout
    for expected in (
        "docs/04.txt",
        "3 (of 9)",
        "failed",
        "document 4",
        "attempt 1",
        "agent.py",
        'raise TypeError(f"row {number}',
        "TypeError: row 4 of docs/04.txt is short",
        "looking at docs/04.txt red",
    ):
        assert expected in said, expected
    assert "\x1b" not in said and "runner/agentrun" not in said
    assert "agentrun log rows docs/04.txt" in ended.stderr


def test_show_tells_the_output_of_a_done_item_and_as_json_all_of_it(agentrun: Run, with_failures: Path) -> None:
    ended = agentrun("show", "rows", "--index", "0", cwd=with_failures)
    assert '"number": 1' in ended.stdout and "traceback" not in ended.stdout
    (facts,) = lines_of(agentrun("show", "rows", "--index", "0", "--json", cwd=with_failures))
    assert (facts["key"], facts["state"], facts["output"]) == ("docs/01.txt", "done", {"number": 1})
    assert facts["input"]["begins"].startswith("document 1") and facts["attempts"][0]["number"] == 1


def test_show_finds_an_item_by_a_path_that_leads_to_its_file(agentrun: Run, with_failures: Path) -> None:
    for ref, cwd in (
        ("04.txt", with_failures / "docs"),
        ("../docs/04.txt", with_failures / "docs"),
        (str(with_failures / "docs" / "04.txt"), with_failures),
    ):
        (facts,) = lines_of(agentrun("show", "rows", ref, "--json", cwd=cwd))
        assert facts["key"] == "docs/04.txt"
    outside = with_failures.parent
    (facts,) = lines_of(agentrun("show", "rows/job.toml", "rows/docs/04.txt", "--json", cwd=outside))
    assert facts["key"] == "docs/04.txt"


def test_show_of_an_unknown_item_names_near_ones(agentrun: Run, with_failures: Path) -> None:
    ended = agentrun("show", "rows", "4.txt", cwd=with_failures)
    assert ended.returncode == 2 and ended.stdout == "" and "did you mean docs/04.txt" in ended.stderr
    ended = agentrun("show", "rows", "--index", "99", cwd=with_failures)
    assert ended.returncode == 2 and "no item 99" in ended.stderr
    ended = agentrun("show", "rows", cwd=with_failures)
    assert ended.returncode == 2 and "--index" in ended.stderr


def test_show_of_a_running_item_has_the_end_of_what_it_prints(
    agentrun: Run, under_way: tuple[Path, subprocess.Popen[str]]
) -> None:
    folder, _ = under_way
    for name in ("06", "07"):
        (facts,) = lines_of(agentrun("show", "rows", f"docs/{name}.txt", "--json", cwd=folder))
        assert facts["state"] == "running" and facts["log"]["lines"][-1].startswith(f"looking at docs/{name}.txt")


def test_show_works_for_a_finished_run_also_when_the_item_is_gone(agentrun: Run, finished: Path) -> None:
    (finished / "docs" / "02.txt").unlink()
    ended = agentrun("show", "rows", "docs/02.txt", cwd=finished)
    assert ended.returncode == 0 and '"number": 2' in ended.stdout and "no longer there" in ended.stdout


# ---- log


def test_log_tells_launches_and_stops_and_folds_checkpoints(agentrun: Run, with_failures: Path) -> None:
    (with_failures / "mended").touch()
    assert agentrun("resume", "rows", cwd=with_failures).returncode == 0
    lines = agentrun("log", "rows", cwd=with_failures).stdout.splitlines()
    told = [line[21:] for line in lines]
    assert told[0].startswith("launch 1 started run") and "checkpoints since" in told[1]
    assert "launch 1 stopped" in told[2] and "failed" in told[2]
    assert told[3].startswith("launch 2 resumed run") and told[-1] == "launch 2 finished the run"
    assert agentrun("log", "rows", "-n", "1", cwd=with_failures).stdout.splitlines() == lines[-1:]


def test_a_launch_that_was_killed_is_told_by_the_next() -> None:
    def event(kind: str, launch: int, last: int = -1) -> HistoryEvent:
        at = f"2026-05-04T22:03:1{launch}.000Z"
        return HistoryEvent(at=at, event=kind, launch=launch, last_completed=last, run_id="r", reason="why")

    events = [event("checkpoint", 1), event("launch", 1), event("checkpoint", 1, 0), event("checkpoint", 1, 4)]
    events += [event("checkpoint", 2, 4), event("restore", 2, 4), event("checkpoint", 2, 7), event("stop", 2, 7)]
    told = [line[21:] for line in event_lines(events)]
    assert told[0] == "launch 1 started run r"
    assert told[1].startswith("2 checkpoints since ") and told[1].endswith("all items up to 4 settled")
    assert told[2].endswith("all items up to 4 settled; the previous launch was cut short")
    assert told[3] == "1 checkpoint, all items up to 7 settled"
    assert told[4:] == ["launch 2 stopped, all items up to 7 settled: why"]


def test_changes_of_speed_that_follow_each_other_are_one_line() -> None:
    def event(second: int, kind: str, reason: str = "") -> HistoryEvent:
        return HistoryEvent(at=f"2026-05-04T22:03:{second}.000Z", event=kind, launch=1, last_completed=4, reason=reason)

    events = [event(10, "launch"), event(11, "speed", "9.0/s"), event(12, "checkpoint"), event(13, "speed", "9.4/s")]
    events += [event(14, "checkpoint"), event(15, "speed", "no limit"), event(16, "pause", "quota")]
    events += [event(17, "continue"), event(18, "speed", "5.0/s"), event(19, "stop", "why")]
    told = [line[21:] for line in event_lines(events)][1:]
    assert told[0].startswith("launch 1: speed: no limit; 3 changes since ") and told[0].endswith(", from 9.0/s")
    assert told[1].startswith("2 checkpoints since ")
    assert [line.partition(" paused")[0] for line in told[2:4]] == ["launch 1", "launch 1 continued"]
    assert told[4:] == ["launch 1: speed: 5.0/s", "launch 1 stopped, all items up to 4 settled: why"]


def test_the_log_of_an_item_is_raw_in_a_pipe_and_clean_on_a_terminal(agentrun: Run, with_failures: Path) -> None:
    raw = agentrun("log", "rows", "docs/04.txt", cwd=with_failures).stdout
    assert "--- launch 1, attempt 1" in raw and "\x1b[31mred" in raw
    said = in_terminal("log", "rows", "docs/04.txt", cwd=with_failures)
    assert "looking at docs/04.txt red" in said and "\x1b" not in said
    last = agentrun("log", "rows", "docs/04.txt", "-n", "1", cwd=with_failures).stdout
    assert last.startswith("looking at") and last.count("\n") == 1


def test_what_a_done_item_printed_is_kept_if_that_is_wanted(agentrun: Run, with_failures: Path) -> None:
    kept = agentrun("log", "rows", "--index", "0", cwd=with_failures)
    assert kept.stdout.startswith("--- launch 1, attempt 1, ") and "looking at docs/01.txt" in kept.stdout
    with (with_failures / "job.toml").open("a") as file:
        file.write("keep_logs = 0\n")
    assert agentrun("start", "job.toml", "--fresh", cwd=with_failures).returncode == 1
    ended = agentrun("log", "rows", "--index", "0", cwd=with_failures)
    assert (ended.returncode, ended.stdout) == (0, "") and "no longer kept" in ended.stderr


def test_a_log_is_followed_until_the_item_is_settled(
    agentrun: Run, under_way: tuple[Path, subprocess.Popen[str]], begin: Begin
) -> None:
    rows, process = under_way
    follower = begin("log", "rows", "docs/06.txt", "-f", cwd=rows)
    assert follower.stdout is not None and "looking at docs/06.txt" in follower.stdout.readline()
    settled = agentrun("log", "rows", "docs/01.txt", "--follow", cwd=rows)
    assert settled.returncode == 0 and "docs/01.txt is done" in settled.stderr
    launches = begin("log", "rows", "-f", cwd=rows)
    assert launches.stdout is not None and "launch 1 started" in launches.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)
    assert follower.wait(PATIENCE_SECONDS) == 0
    assert follower.stderr is not None
    assert "docs/06.txt is pending, and nobody is at work; to continue: agentrun resume rows" in follower.stderr.read()
    launches.send_signal(signal.SIGINT)
    assert launches.wait(PATIENCE_SECONDS) == 0


# ---- failures


def test_failures_are_told_by_cause_with_how_to_go_on(agentrun: Run, with_failures: Path) -> None:
    ended = agentrun("failures", "rows", cwd=with_failures)
    blocks = ended.stdout.split("\n\n")
    assert blocks[0] == "rows: 3 of 9 items failed, from 2 causes"
    assert blocks[1].splitlines()[0] == "2  TypeError: row 4 of docs/04.txt is short"
    place, code, *keys = (line.strip() for line in blocks[1].splitlines()[1:])
    assert (place, code) == (
        "at agent.py:12, in work",
        'raise TypeError(f"row {number} of {item.key} is short")',
    )
    assert keys == ["docs/04.txt", "docs/08.txt"]
    assert blocks[2].startswith("1  LookupError: odd [bold]name[/bold]") and "\x1b" not in ended.stdout
    hints = [
        line.partition("agentrun ")[2].split("   ")[0] for line in ended.stderr.splitlines() if "agentrun " in line
    ]
    assert hints == ["show rows docs/04.txt", "resume rows"]
    assert agentrun(*hints[0].split(), cwd=with_failures).returncode == 0


def test_failures_as_json_are_one_line_each_with_all_facts(agentrun: Run, with_failures: Path) -> None:
    found = lines_of(agentrun("failures", "rows", "--json", cwd=with_failures))
    assert [item["index"] for item in found] == [3, 6, 7]
    assert found[0]["group"] == found[2]["group"] != found[1]["group"]
    assert found[0]["error"]["types"][0] == "builtins.TypeError" and found[0]["attempts"] == 1


def test_no_failures_is_said_and_is_no_error(agentrun: Run, finished: Path) -> None:
    ended = agentrun("failures", "rows", cwd=finished)
    assert (ended.returncode, ended.stdout) == (0, "") and "no items have failed" in ended.stderr
    assert agentrun("failures", "rows", "--json", cwd=finished).stdout == ""


# ---- results


def test_results_so_far_are_lines_as_in_the_results_file(agentrun: Run, with_failures: Path) -> None:
    ended = agentrun("results", "rows", cwd=with_failures)
    assert ended.stdout == (with_failures / "rows.results.partial.jsonl").read_text()
    assert ended.stdout.splitlines()[0] == '{"index":0,"key":"docs/01.txt","output":{"number":1}}'


def test_results_of_a_finished_run_are_its_output_and_without_it_the_same(agentrun: Run, finished: Path) -> None:
    output = finished / "rows.results.jsonl"
    whole = output.read_text()
    assert agentrun("results", "rows", cwd=finished).stdout == whole
    output.write_text("changed by hand\n")
    assert agentrun("results", "rows", cwd=finished).stdout == whole
    output.unlink()
    assert agentrun("results", "rows", cwd=finished).stdout == whole


def test_full_results_have_times_attempts_and_the_agents_version(agentrun: Run, finished: Path) -> None:
    line = lines_of(agentrun("results", "rows", "--full", cwd=finished))[0]
    assert list(line) == ["index", "key", "output", "at", "seconds", "attempts", "agent", "launch", "generation"]
    assert (line["attempts"], line["launch"], line["generation"]) == (1, 1, 0)


def test_without_results_that_is_said(agentrun: Run, rows: Path) -> None:
    ended = agentrun("results", "job.toml", cwd=rows)
    assert (ended.returncode, ended.stdout) == (0, "") and "no results yet" in ended.stderr


@pytest.mark.parametrize("command", [["results", "rows"], ["items", "rows"], ["failures", "rows", "--json"]])
def test_a_reader_that_goes_away_is_no_error_to_be_told(with_failures: Path, command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [COMMAND, *command],
        cwd=with_failures,
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_SECONDS,
    )
    os.close(writer)
    assert ended.stderr == b"" and ended.returncode == 141


def test_near_misses_are_found_among_many_keys() -> None:
    keys = [f"documents/{n:05}.txt" for n in range(30_000)]
    assert near_misses("00017.txt", iter(keys)) == ["documents/00017.txt"]
    assert "documents/00123.txt" in near_misses("document/00123.txt", iter(keys))
    assert near_misses("nothing like it", iter(keys)) == []
