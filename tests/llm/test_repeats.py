"""What counts as a finished call, and as one that was repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llm.conversation import Conversation, Turn, use_of
from llm.repeats import Repeats, ToolCall, count_repeats
from llm.tool_model import ModelCall

SEARCH, NOTE = use_of("search", {"topic": "key=1 at=0"}), use_of("note", {"topic": "key=1 at=1"})
BEGIN = (Turn("user", "key=1"),)
SEARCHED = (*BEGIN, Turn("assistant", "", (SEARCH,), ids=("a",)), Turn("tool", "found", id="a"))
NOTED = (*SEARCHED, Turn("assistant", "", (NOTE,), ids=("b",)), Turn("tool", "noted", id="b"))


def first(at: float, **more: bool) -> ModelCall:
    return asked(at, BEGIN, wants=SEARCH, **more)


def second(at: float, **more: bool) -> ModelCall:
    return asked(at, SEARCHED, wants=NOTE, **more)


def asked(at: float, turns: tuple[Turn, ...], *, wants: tuple[str, str], is_answered: bool = True) -> ModelCall:
    return ModelCall(at, "1", Conversation(turns, {}), 10, wants=(wants,), is_answered=is_answered)


def search(at: float) -> ToolCall:
    return ToolCall(at, SEARCH)


UNDISTURBED = ([first(1), second(3)], [search(2), ToolCall(4, NOTE)])


def test_an_undisturbed_run_repeats_nothing() -> None:
    assert count_repeats(*UNDISTURBED) == Repeats(2, 2, 0, 0, 0)


@pytest.mark.parametrize(
    ("models", "tools", "repeated"),
    [
        # Answered when the run was killed, and nothing was done with it yet.
        ([first(1), first(5)], [], (0, 0, 1)),
        # The tool that it asked for had come to its end; the tool itself was in flight.
        ([first(1), first(5)], [search(2), search(6)], (1, 0, 1)),
        # The model was asked on: both were finished.
        ([first(1), second(3), first(5), second(7)], [search(2), search(6)], (1, 1, 1)),
        # The same, by a request that nobody heard the answer of.
        ([first(1), second(3, is_answered=False), first(5)], [search(2)], (1, 0, 0)),
        # Came again, but the process that asked was killed before it was answered: nothing was paid.
        ([first(1), second(3), first(5, is_answered=False)], [search(2)], (0, 0, 0)),
        # Two requests came before the first was finished, whenever they were answered.
        ([first(1), first(1.5), second(3)], [search(2)], (0, 0, 1)),
        # Twice again.
        ([first(1), second(3), first(5), first(7)], [search(2), search(8), search(9)], (2, 2, 0)),
    ],
)
def test_a_call_is_finished_once_something_was_done_with_its_answer(
    models: list[ModelCall], tools: list[ToolCall], repeated: tuple[int, int, int]
) -> None:
    found = count_repeats(models, tools)
    assert (found.repeated_model_calls, found.repeated_tool_calls, found.in_flight) == repeated


def test_another_items_call_is_another_call() -> None:
    other = asked(5, (Turn("user", "key=2"),), wants=use_of("search", {"topic": "key=2 at=0"}))
    assert count_repeats([*UNDISTURBED[0], other], UNDISTURBED[1]) == Repeats(3, 2, 0, 0, 0)


def test_other_ids_and_another_order_of_results_are_the_same_call() -> None:
    both = Turn("assistant", "", (SEARCH, NOTE), ids=("a", "b"))
    results = (Turn("tool", "found", id="a"), Turn("tool", "noted", id="b"))
    one = Conversation((*BEGIN, both, *results), {})
    again = replace(both, ids=("c", "d"))
    other = Conversation((*BEGIN, again, Turn("tool", "noted", id="d"), Turn("tool", "found", id="c")), {})
    assert one.fingerprint == other.fingerprint and one.goes_on_from == other.goes_on_from
    assert one.used == other.used == {SEARCH, NOTE}


def test_two_counts_add_up() -> None:
    assert Repeats(1, 2, 3, 4, 5) + Repeats(1, 1, 1, 1, 1) == Repeats(2, 3, 4, 5, 6)
    assert (Repeats(1, 2, 3, 4, 5).calls, Repeats(1, 2, 3, 4, 5).repeated) == (3, 7)
