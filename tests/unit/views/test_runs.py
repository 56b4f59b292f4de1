"""The runs of a job, and what differs between two, on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.checkpoint.record import PublishedFile, Record
from agentrun.checkpoint.summary import first_checkpoint
from agentrun.errors import UsageError
from agentrun.views.differences import Difference, choose_runs, compare
from agentrun.views.listing import open_run_listing
from agentrun.views.runs import RunView, check_records, find_run, list_runs
from unit.made import Made, StoreKind

STARTED, ENDED = "2026-05-04T22:00:00.000Z", "2026-05-04T22:01:30.000Z"


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, [*"abcd"], kind)


def end_run(made: Made, *records: Record, number: int = 1) -> str:
    """One more run of the job, with these records."""
    made.checkpoint = first_checkpoint(made.job, number=number)
    made.commit(*records)
    made.finish(number=number, started_at=STARTED, ended_at=ENDED, agent=f"v{number}", counts={"done": len(records)})
    return made.run_id


def differences(made: Made, older: str, newer: str) -> list[Difference]:
    with open_run_listing(made.store, older) as before, open_run_listing(made.store, newer) as after:
        return list(compare(before, after))


def run(number: int, run_id: str, **values: object) -> RunView:
    known = {"run_id": run_id, "number": number, "status": "finished", "started_at": "", "has_records": True}
    return RunView(**{**known, **values})  # type: ignore[arg-type]


def test_runs_are_listed_newest_first_with_what_their_summaries_say(made: Made) -> None:
    end_run(made, made.record("a"))
    newest = end_run(made, made.record("a"), made.record("b"), number=2)
    second, first = list_runs(made.store)
    assert (second.number, first.number, second.run_id) == (2, 1, newest)
    assert (second.counts, second.seconds, second.agent, second.status) == ({"done": 2}, 90.0, "v2", "finished")
    assert second.as_json()["has_records"] is True and second.as_json()["cost"] is None


def test_the_unfinished_run_comes_first(made: Made) -> None:
    end_run(made, made.record("a"))
    made.checkpoint = first_checkpoint(made.job, number=2)
    made.commit(made.record("a"))
    unfinished, finished = list_runs(made.store)
    assert (unfinished.status, unfinished.number, finished.status) == ("unfinished", 2, "finished")
    assert unfinished.has_records and unfinished.as_json()["ended_at"] is None


def test_of_older_runs_only_the_summary_is_kept_and_that_is_said(made: Made) -> None:
    for number in range(1, 6):
        end_run(made, made.record("a"), number=number)
        with made.at_work():
            made.store.prune()
    runs = list_runs(made.store)
    assert [one.has_records for one in runs] == [True, True, True, False, False]
    with pytest.raises(UsageError, match="the records of run 1 are no longer kept, only its summary"):
        check_records(runs[-1], "made")


def test_a_job_that_never_ran_has_no_runs(made: Made) -> None:
    assert list_runs(made.store) == []


def test_a_run_is_meant_by_its_number_its_id_or_the_beginning_of_that() -> None:
    runs = [run(21, "20260505T100000-b"), run(20, "20260504T220311-0a"), run(0, "20260504T110000-cc")]
    assert find_run(runs, "20", "made").number == 20
    assert find_run(runs, "20260504T220311-0a", "made").number == 20
    assert find_run(runs, "20260504T22", "made").number == 20
    assert find_run(runs, "20260505", "made").number == 21
    with pytest.raises(UsageError, match=r"several runs: 20 .*; write more of it, or its number"):
        find_run(runs, "20260504", "made")
    for nonsense in ("7", "", "0", "x", "-1"):
        with pytest.raises(UsageError, match="see: agentrun runs made"):
            find_run(runs, nonsense, "made")


def test_the_newest_finished_run_is_compared_with_the_one_before_or_the_one_named() -> None:
    runs = [run(5, "5", status="unfinished"), run(4, "4"), run(3, "3", status="abandoned"), run(2, "2"), run(1, "1")]
    assert [one.number for one in choose_runs(runs, None, "made")] == [2, 4]
    assert [one.number for one in choose_runs(runs, "1", "made")] == [1, 4]
    with pytest.raises(UsageError, match="run 4 is the newest finished run"):
        choose_runs(runs, "4", "made")
    with pytest.raises(UsageError, match="nothing to compare it with"):
        choose_runs(runs[:2], None, "made")
    with pytest.raises(UsageError, match="no run has finished yet"):
        choose_runs(runs[:1], None, "made")
    with pytest.raises(UsageError, match="no longer kept"):
        choose_runs([run(2, "2"), run(1, "1", has_records=False)], None, "made")


def test_results_that_were_added_changed_or_are_gone_differ(made: Made) -> None:
    old = end_run(made, made.record("a"), made.record("b", output={"x": 1}), made.record("c"), made.failed("d"))
    new = end_run(
        made, made.record("a"), made.record("b", output={"x": 2}), made.failed("c"), made.record("d"), number=2
    )
    found = [(one.change, one.key, one.state) for one in differences(made, old, new)]
    assert found == [("changed", "b", ""), ("added", "d", ""), ("gone", "c", "failed")]
    changed, added, gone = (one.as_json() for one in differences(made, old, new))
    assert changed == {"change": "changed", "index": 1, "key": "b", "before": {"x": 1}, "after": {"x": 2}}
    assert added["after"] == "an output" and "before" not in added
    assert gone == {"change": "gone", "index": 2, "key": "c", "before": "an output", "state": "failed"}


def test_the_order_of_fields_is_no_difference_but_another_file_is(made: Made) -> None:
    old = end_run(
        made, made.record("a", output={"x": 1, "y": 2}), made.record("b", files=[PublishedFile("o.files/b/f", 1, "00")])
    )
    moved, other = PublishedFile("n.files/b/f", 1, "00"), PublishedFile("o.files/b/f", 1, "11")
    same = end_run(made, made.record("a", output={"y": 2, "x": 1}), made.record("b", files=[moved]), number=2)
    new = end_run(made, made.record("a", output={"x": 1, "y": 2}), made.record("b", files=[other]), number=3)
    assert differences(made, old, same) == []
    (found,) = differences(made, old, new)
    assert found.key == "b" and found.as_json()["after_files"][0]["sha256"] == "11"
    before, after = found.lines
    assert before != after and before[0] == "an output" and "o.files/b/f" in before[1]
