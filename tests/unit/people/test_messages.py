"""Messages to a run, made from an item as it stands."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agentrun.checkpoint.message import AnyMessage, MessageError, Reply, decode_message, encode_message
from agentrun.checkpoint.record import Question
from agentrun.errors import UsageError
from agentrun.people import messages as posting
from agentrun.store.port import Posted
from agentrun.values.json import is_same, parse_value
from agentrun.views.item import ItemView, State
from unit.records import make_record

RUN = "20260504T220311-0a2f19f3a1c"


def waiting(details: dict[str, Any] | None = None, n: int = 2) -> ItemView:
    question = Question(n=n, text="Send it?", details=details or {}, at="2026")
    return ItemView(3, "ada", "waiting", make_record("ada", "waiting", seq=7, question=question), gen=1)


def done(**more: Any) -> ItemView:
    return ItemView(3, "ada", "done", make_record("ada", seq=7, output={"n": 1}, **more), gen=1)


def test_an_answer_names_the_question_and_holds_what_was_edited() -> None:
    message = posting.answer_message(
        waiting({"draft": "x", "n": 1}), RUN, yes=False, text="no", details={"n": 2}, by="Eve"
    )
    assert decode_message(encode_message(message)) == message
    assert message.answer == Reply(yes=False, text="no", details={"n": 2})
    about = (message.kind, message.run_id, message.key, message.gen, message.question, message.by)
    assert about == ("answer", RUN, "ada", 1, 2, "Eve")


def test_a_detail_that_was_not_asked_about_cannot_be_edited() -> None:
    with pytest.raises(UsageError, match="no detail daft; it has draft, n"):
        posting.answer_message(waiting({"draft": "x", "n": 1}), RUN, yes=True, details={"daft": 1}, by="Eve")
    with pytest.raises(UsageError, match="it has none"):
        posting.answer_message(waiting(), RUN, yes=True, details={"daft": 1}, by="Eve")


@pytest.mark.parametrize("state", ["pending", "running", "done", "failed", "skipped"])
def test_an_item_that_does_not_wait_cannot_be_answered(state: State) -> None:
    with pytest.raises(UsageError, match=f"ada: is {state}, not waiting"):
        posting.answer_message(ItemView(3, "ada", state, waiting().record), RUN, yes=True, by="Eve")


def test_every_message_has_the_right_form_and_an_id_of_its_own() -> None:
    messages: list[AnyMessage] = [
        posting.redo_message(done(), RUN, by="Eve"),
        posting.redo_message(ItemView(0, "b", "pending"), RUN, keep_before="draft", now=True, by="Eve"),
        posting.edit_message(done(), RUN, output=None, by="Eve"),
        posting.carry_message(done(), RUN, carry={"sum": 3}, by="Eve"),
        posting.skip_message(waiting(), RUN, reason="not needed", by="Eve"),
    ]
    for message in messages:
        assert decode_message(encode_message(message)) == message
    assert len({message.id for message in messages}) == len(messages)
    assert orjson.loads(encode_message(messages[1])) | {"id": "", "at": ""} == {
        "version": 1,
        "id": "",
        "kind": "redo",
        "run_id": RUN,
        "key": "b",
        "gen": 0,
        "by": "Eve",
        "at": "",
        "keep_before": "draft",
        "now": True,
    }
    edited, carried = orjson.loads(encode_message(messages[2])), orjson.loads(encode_message(messages[3]))
    assert (edited["seq"], edited["output"], "carry" in edited) == (7, None, False)
    assert (carried["seq"], carried["carry"], "output" in carried) == (7, {"sum": 3}, False)


@pytest.mark.parametrize("state", ["pending", "waiting", "failed"])
def test_only_what_is_done_can_be_edited(state: State) -> None:
    with pytest.raises(UsageError, match=f"is {state}, and has no result to edit"):
        posting.edit_message(ItemView(0, "ada", state, make_record("ada", seq=1)), RUN, output=1, by="Eve")


def test_the_first_answer_to_a_question_counts() -> None:
    messages: list[AnyMessage] = [
        posting.skip_message(waiting(), RUN, by="Eve"),
        posting.answer_message(waiting(), RUN, yes=True, by="Eve"),
        posting.answer_message(waiting(), RUN, yes=False, by="Bob"),
        posting.answer_message(waiting(n=3), RUN, yes=False, by="Bob"),
    ]
    found = posting.answered(Posted(str(number), message) for number, message in enumerate(messages))
    assert {key: message.by for key, message in found.items()} == {("ada", 1, 2): "Eve", ("ada", 1, 3): "Bob"}
    assert posting.question_of(waiting()) == ("ada", 1, 2)


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ({"n": float("nan")}, "nan"),
        ({"n": 2**64}, "64 bits"),
        ({"n": "\udc80"}, "surrogate"),
        ({"n": {1, 2}}, "set"),
        ({"n": {1: 2}}, "keys are text"),
    ],
    ids=["nan", "large", "surrogate", "set", "key"],
)
def test_details_that_json_cannot_hold_are_not_posted_as_something_else(details: dict[str, Any], says: str) -> None:
    message = posting.answer_message(waiting({"n": 1}), RUN, yes=True, details=details, by="Eve")
    with pytest.raises(MessageError, match=says):
        encode_message(message)


@pytest.mark.parametrize(
    "message",
    [
        posting.skip_message(waiting(), RUN, reason="\udc80", by="Eve"),
        posting.skip_message(waiting(), RUN, by="\udc80"),
        posting.answer_message(waiting(), RUN, yes=True, text="\udc80", by="Eve"),
        posting.redo_message(done(), RUN, keep_before="\udc80", by="Eve"),
    ],
    ids=["reason", "by", "text", "step"],
)
def test_text_that_json_cannot_hold_is_not_posted(message: AnyMessage) -> None:
    with pytest.raises(MessageError, match="surrogate"):
        encode_message(message)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ('"x"', "x"), ("[1.5, null]", [1.5, None]), ("18446744073709551615", 2**64 - 1)]
)
def test_a_value_is_read_as_it_is(text: str, value: Any) -> None:
    assert is_same(parse_value(text), value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1"),
        ("urgent", "line 1"),
        ('{\n"a": }', "line 2, column 6"),
        ("NaN", "NaN is not JSON"),
        ("1e999", "inf"),
        ("18446744073709551616", "beyond 64 bits"),
        ('"\\ud800"', "surrogate"),
        ("[" * 300 + "]" * 300, "deep"),
        ("[" * 100_000, "deep"),
    ],
)
def test_what_no_record_could_hold_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_value(text)


def test_values_are_compared_as_json() -> None:
    assert is_same({"a": [1, None]}, {"a": [1, None]})
    assert not is_same(1, True) and not is_same(1, 1.0) and not is_same("1", 1)
