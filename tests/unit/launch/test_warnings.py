"""Warnings of a launch."""

from __future__ import annotations

from agentrun.events import Event, Warned
from agentrun.launch.warnings import MOST, TEXT_LIMIT, Warnings


def told(*texts: str, about: str = "") -> list[Event]:
    events: list[Event] = []
    warn = Warnings(events.append)
    for text in texts:
        warn(text, about=about)
    return events


def test_the_same_warning_is_told_once() -> None:
    assert told("a", "b", "a") == [Warned("a"), Warned("b")]
    assert told("a: no usage", "b: no usage", about="usage") == [Warned("a: no usage")]


def test_warnings_that_all_differ_do_not_fill_the_screen() -> None:
    assert len(told(*map(str, range(MOST * 3)))) == MOST
    assert told("x" * 9 * TEXT_LIMIT) == [Warned("x" * TEXT_LIMIT)]
