"""Several watchers, of which one that fails is reported and never fatal."""

from __future__ import annotations

import logging

import pytest

from agentrun.events import Event, Progressed, Warned, Watchers


def test_every_watcher_gets_every_event() -> None:
    one: list[Event] = []
    other: list[Event] = []
    watch = Watchers([one.append, other.append])
    watch(Progressed("a", "reading"))
    assert one == other == [Progressed("a", "reading")]


def test_a_watcher_that_fails_is_reported_to_the_others_once_and_stays() -> None:
    seen: list[Event] = []
    calls: list[Event] = []

    def broken(event: Event) -> None:
        calls.append(event)
        raise KeyError("x")

    watch = Watchers([broken, seen.append])
    for text in ("a", "b"):
        watch(Progressed("k", text))
    warning, *rest = seen
    assert warning == Warned("a watcher failed at Progressed: KeyError: 'x'")
    assert rest == [Progressed("k", "a"), Progressed("k", "b")]
    assert Progressed("k", "b") in calls


def test_where_all_watchers_fail_the_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise ValueError("no")

    with caplog.at_level(logging.WARNING, logger="agentrun"):
        watch = Watchers([broken])
        watch(Warned("x"))
        watch(Warned("y"))
    assert [record.message for record in caplog.records] == ["a watcher failed at Warned: ValueError: no"]


def test_an_interruption_by_the_user_is_not_a_watchers_failure() -> None:
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Watchers([interrupted])(Warned("x"))
