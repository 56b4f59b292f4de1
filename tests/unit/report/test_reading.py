"""What a report says, from the records: numbers, sections, commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.checkpoint.record import Record
from agentrun.errors import UsageError
from agentrun.money.budget import Totals
from agentrun.money.usage import Usage
from agentrun.people.selecting import is_of_cause
from agentrun.report.reading import read_report
from agentrun.store.folder.reader import FolderReader
from agentrun.store.port import HistoryEvent
from agentrun.values.clock import time_text
from agentrun.views.listing import open_listing
from unit.made import STORES, Made, StoreKind
from unit.report.night import BEGAN, COUNTS, HOSTILE, Invoices


@pytest.fixture(scope="module")
def invoices(tmp_path_factory: pytest.TempPathFactory) -> Invoices:
    return Invoices(tmp_path_factory.mktemp("night")).play()


def test_the_tiles_are_the_counts_the_cost_and_the_time(invoices: Invoices) -> None:
    tiles = {one.name: (one.value, one.note) for one in read_report(invoices.known).tiles}
    assert tiles["done"] == ("179", "of 200") and tiles["failed"] == ("18", "from 3 causes")
    assert tiles["waiting"] == ("3", "for an answer")
    assert tiles["cost"][1] == "of $4.00" and tiles["took"] == ("8h02m", "2 launches, 1 crash")


def test_the_curves_end_where_the_tiles_are(invoices: Invoices) -> None:
    report = read_report(invoices.known)
    night = report.night
    assert night.settled.last == COUNTS["done"] + COUNTS["failed"] and night.failed.last == COUNTS["failed"]
    assert night.cost is not None and report.view.cost is not None
    assert night.cost.last == pytest.approx(report.view.cost)


def test_money_lost_in_a_crash_is_a_step_at_the_crash(invoices: Invoices) -> None:
    night = read_report(invoices.known).night
    assert night.cost is not None
    ((at, lost),) = night.cost.jumps.items()
    assert lost == pytest.approx(invoices.lost)
    (crash,) = night.crashes
    assert crash == pytest.approx(BEGAN + 12_000, abs=60)
    before = night.cost.values[at - 1]
    assert night.cost.values[at] - before >= lost


def test_time_in_which_nothing_ran_is_idle(invoices: Invoices) -> None:
    (band,) = read_report(invoices.known).night.idle
    assert band[0] == pytest.approx(BEGAN + 11_900, abs=200) and band[1] == pytest.approx(BEGAN + 15_380, abs=200)


def test_no_more_are_in_flight_than_the_records_say(invoices: Invoices) -> None:
    night = read_report(invoices.known).night
    with open_listing(invoices.store) as listing:
        flown = sum(one.seconds for view in listing.items() for one in view.tries)
    mean = sum(night.in_flight.values) * night.span / len(night.in_flight.values)
    assert mean == pytest.approx(flown, rel=0.05)


def test_attempts_refusals_and_what_was_lost_are_on_record(invoices: Invoices) -> None:
    facts = dict(read_report(invoices.known).facts)
    assert facts["Attempts"].startswith("212; 12 items needed more than one: 12 times Retry: … from the model")
    assert facts["Refusals"].startswith("30, ") and facts["Lost in crashes"].startswith("$0.31, ")
    assert "72 by version 2ed1773ad354, 107 by version 6b354c6f03cd" in facts["Agent"]


def test_each_launch_says_how_it_ended(invoices: Invoices) -> None:
    first, second = read_report(invoices.known).launches
    assert (first.number, first.how, first.is_crash) == (1, "killed, or the machine stopped", True)
    assert (second.how, second.is_crash) == ("18 of 200 items failed", False)
    assert first.settled + second.settled == COUNTS["done"] + COUNTS["failed"]


def test_pauses_are_on_record_with_their_time_and_reason(tmp_path: Path) -> None:
    made = Invoices(tmp_path).play()
    for at, event, more in (
        (30_000, "restore", {"run_id": made.run_id, "launch": 3}),
        (30_100, "pause", {"launch": 3, "reason": "openai's quota"}),
        (33_700, "continue", {"launch": 3}),
        (33_800, "checkpoint", {"settled": 200}),
        (34_000, "pause", {"launch": 3, "reason": "127.0.0.1:8080 cannot be reached"}),
        (34_005, "checkpoint", {"settled": 200}),
        (34_060, "checkpoint", {"settled": 201}),
        (34_070, "stop", {"launch": 3, "reason": "finished"}),
    ):
        made.store.note(HistoryEvent(at=time_text(BEGAN + at), event=event, **more))
    facts = dict(read_report(made.known).facts)
    assert facts["Pauses"] == "2, 1h01m in all: openai's quota; 127.0.0.1:8080 cannot be reached"


def test_what_to_do_next_begins_with_the_questions(invoices: Invoices) -> None:
    assert [one.command for one in read_report(invoices.known).advice] == [
        "agentrun review invoices",
        "agentrun resume invoices",
        "agentrun skip invoices --failed",
    ]


def test_the_redo_command_of_a_cause_means_its_items(invoices: Invoices) -> None:
    report = read_report(invoices.known)
    assert [group.count for group in report.failures] == [8, 7, 3]
    with open_listing(invoices.store, invoices.job) as listing:
        failed = list(listing.items({"failed"}))
    for group in report.failures:
        verb, cause, now = shlex.split(group.command)[1::2][0], shlex.split(group.command)[4], "--now"
        assert verb == "redo" and group.command.endswith(now)
        assert [view.key for view in failed if is_of_cause(view, cause)] == [one.key for one in group.items]


def test_questions_with_the_same_words_are_one_group(invoices: Invoices) -> None:
    (group,) = read_report(invoices.known).questions
    assert group.count == 3 and "total: 10110" in group.items[0].note


def test_the_records_are_read_once(invoices: Invoices, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    real = FolderReader.records

    def counted(self: FolderReader, *, since: int = 0) -> Iterator[tuple[int, Record]]:
        passes.append(since)
        return real(self, since=since)

    monkeypatch.setattr(FolderReader, "records", counted)
    read_report(invoices.known)
    assert passes == [0]


def test_a_job_that_never_ran_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has not run yet"):
        read_report(Made(tmp_path, ["a"]).known)


@pytest.mark.parametrize("kind", STORES)
def test_a_finished_run_has_results_to_look_at_in_either_store(tmp_path: Path, kind: StoreKind) -> None:
    made = Made(tmp_path, ["a", "b"], kind)
    made.checkpoint.started_at = time_text(100.0)
    made.commit(*(made.record(key, run=1) for key in "ab"))
    made.finish(counts={"done": 2}, number=1, started_at=time_text(100.0), ended_at=time_text(103.0))
    report = read_report(made.known)
    assert (report.verdict, report.tone) == ("finished", "good")
    assert [one.command for one in report.advice] == ["agentrun results made"]
    assert report.night.settled.last == 2 and report.night.cost is None


def test_results_of_earlier_runs_count_as_settled_from_the_start(tmp_path: Path) -> None:
    made = Made(tmp_path, ["a", "b"])
    made.checkpoint.context.number = 2
    made.commit(made.record("a", run=1), made.record("b", run=2, at=BEGAN + 50), started_at=time_text(BEGAN))
    settled = read_report(made.known).night.settled
    assert settled.values[0] == 1 and settled.last == 2


def test_an_item_that_failed_and_was_done_later_is_settled_once_and_paid_once(tmp_path: Path) -> None:
    made = Made(tmp_path, ["a"])
    made.checkpoint.started_at, made.checkpoint.updated_at = time_text(BEGAN), time_text(BEGAN + 100)
    made.commit(
        made.failed("a", run=1, at=BEGAN + 10, seconds=5.0, usage=Usage(cost=1.0)),
        made.record("a", run=1, at=BEGAN + 60, seconds=5.0, usage=Usage(cost=1.5), launch=2),
        usage=Totals(cost=1.5),
    )
    night = read_report(made.known).night
    assert night.settled.last == 1 and night.settled.most == 1
    assert night.failed.most == 1 and night.failed.last == 0
    assert night.cost is not None and night.cost.last == 1.5 and not night.cost.jumps


def test_hostile_keys_leave_the_commands_in_one_piece(tmp_path: Path) -> None:
    report = read_report(Invoices(tmp_path, HOSTILE).play().known)
    for group in report.failures:
        words = shlex.split(group.command)
        assert words[:4] == ["agentrun", "redo", "invoices", "--cause"] and words[5:] == ["--now"]
        assert group.command.isprintable()
