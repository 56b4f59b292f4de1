"""Which ends of a launch are told, and what is said of them."""

from __future__ import annotations

import pytest

from agentrun.checkpoint.summary import Summary
from agentrun.job.notify import Notify, Occasion
from agentrun.notices.notice import is_due, occasion_of, write_notice


def ended(code: int, **more: object) -> Summary:
    summary = Summary(job="triage", run_id="r", exit_code=code, total=200, counts={"done": 190, "failed": 10})
    for name, value in more.items():
        setattr(summary, name, value)
    return summary


@pytest.mark.parametrize(
    ("code", "occasion"),
    [
        (0, "finished"), (1, "failed"), (3, "waiting"), (4, "stopped"), (65, "stopped"), (74, "stopped"),
        (75, "stopped"), (130, "stopped"), (143, "stopped"), (70, "stopped"), (2, None),
    ],
)  # fmt: skip
def test_the_exit_code_decides_the_occasion(code: int, occasion: Occasion | None) -> None:
    assert occasion_of(ended(code)) == occasion


def test_a_launch_with_nothing_to_do_is_not_told() -> None:
    assert occasion_of(ended(0, nothing_to_do=True)) is None


def test_only_long_launches_that_end_as_wanted_are_told() -> None:
    notify = Notify(on=("failed",), after_seconds=300)
    assert is_due(notify, ended(1), seconds=300)
    assert not is_due(notify, ended(1), seconds=299)
    assert not is_due(notify, ended(0), seconds=3000)


def test_a_notice_says_how_far_it_got_and_why_it_stopped() -> None:
    notice = write_notice(ended(4, reason="the budget is reached"), seconds=3725)
    assert notice.title == "triage: stopped"
    assert notice.text == "190 of 200 done, 10 failed · took 1h02m\nthe budget is reached"
    assert notice.details["occasion"] == "stopped" and notice.details["exit_code"] == 4
    assert notice.details["counts"] == {"done": 190, "failed": 10} and notice.details["seconds"] == 3725


def test_control_codes_in_a_reason_are_not_sent() -> None:
    assert "\x1b" not in write_notice(ended(4, reason="a\x1b[31mb"), seconds=1).text
