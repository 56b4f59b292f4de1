"""Messages to a run, made from an item as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentrun.checkpoint.message import check_message
from agentrun.errors import UsageError
from agentrun.people import messages as posting
from agentrun.values.json import is_same, parse_value
from agentrun.views.item import ItemView

RUN = "20260504T220311-0a2f19f3a1c"


def waiting(details: dict[str, Any] | None = None, n: int = 2) -> ItemView:
    question = {"n": n, "text": "Send it?", "details": details or {}, "at": "2026"}
    return ItemView(3, "ada", "waiting", {"kind": "waiting", "seq": 7, "question": question}, gen=1)


def done(**more: Any) -> ItemView:
    return ItemView(3, "ada", "done", {"kind": "done", "seq": 7, "output": {"n": 1}, **more}, gen=1)


def test_an_answer_names_the_question_and_holds_what_was_edited() -> None:
    message = posting.answer_message(
        waiting({"draft": "x", "n": 1}), RUN, yes=False, text="no", details={"n": 2}, by="Eve"
    )
    check_message(message)
    assert message["answer"] == {"yes": False, "text": "no", "details": {"n": 2}}
    assert [message[name] for name in ("kind", "run_id", "key", "gen", "question", "by")] == [
        "answer",
        RUN,
        "ada",
        1,
        2,
        "Eve",
    ]


def test_a_detail_that_was_not_asked_about_cannot_be_edited() -> None:
    with pytest.raises(UsageError, match="no detail daft; it has draft, n"):
        posting.answer_message(waiting({"draft": "x", "n": 1}), RUN, yes=True, details={"daft": 1}, by="Eve")
    with pytest.raises(UsageError, match="it has none"):
        posting.answer_message(waiting(), RUN, yes=True, details={"daft": 1}, by="Eve")


@pytest.mark.parametrize("state", ["pending", "running", "done", "failed", "skipped"])
def test_an_item_that_does_not_wait_cannot_be_answered(state: str) -> None:
    with pytest.raises(UsageError, match=f"ada: is {state}, not waiting"):
        posting.answer_message(ItemView(3, "ada", state, {"question": {"n": 1}}), RUN, yes=True, by="Eve")


def test_every_message_has_the_right_form_and_an_id_of_its_own() -> None:
    messages = [
        posting.redo_message(done(), RUN, by="Eve"),
        posting.redo_message(ItemView(0, "b", "pending"), RUN, keep_before="draft", now=True, by="Eve"),
        posting.edit_message(done(), RUN, output=None, by="Eve"),
        posting.carry_message(done(), RUN, carry={"sum": 3}, by="Eve"),
        posting.skip_message(waiting(), RUN, reason="not needed", by="Eve"),
    ]
    for message in messages:
        check_message(message)
    assert len({message["id"] for message in messages}) == len(messages)
    assert messages[1] | {"id": "", "at": ""} == {
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
    assert (messages[2]["seq"], messages[2]["output"]) == (7, None)


@pytest.mark.parametrize("state", ["pending", "waiting", "failed"])
def test_only_what_is_done_can_be_edited(state: str) -> None:
    with pytest.raises(UsageError, match=f"is {state}, and has no result to edit"):
        posting.edit_message(ItemView(0, "ada", state, {"seq": 1}), RUN, output=1, by="Eve")


def test_the_first_answer_to_a_question_counts() -> None:
    messages = [
        posting.skip_message(waiting(), RUN, by="Eve"),
        posting.answer_message(waiting(), RUN, yes=True, by="Eve"),
        posting.answer_message(waiting(), RUN, yes=False, by="Bob"),
        posting.answer_message(waiting(n=3), RUN, yes=False, by="Bob"),
    ]
    found = posting.answered(messages)
    assert {key: message["by"] for key, message in found.items()} == {("ada", 1, 2): "Eve", ("ada", 1, 3): "Bob"}
    assert posting.question_of(waiting()) == ("ada", 1, 2)


def test_what_is_posted_is_found_in_the_folder(tmp_path: Path) -> None:
    assert posting.posted(tmp_path) == []
    messages = [posting.skip_message(waiting(), RUN, by="Eve"), posting.redo_message(done(), RUN, by="Eve")]
    posting.post(tmp_path, messages)
    assert posting.posted(tmp_path) == messages
    with pytest.raises(UsageError, match=r"cannot be posted: .*surrogate"):
        posting.post(tmp_path, [posting.skip_message(waiting(), RUN, reason="\udc80", by="Eve")])
    assert posting.posted(tmp_path) == messages


def test_somebody_is_there_even_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import getpass

    monkeypatch.setenv("LOGNAME", "grace")
    assert posting.person() == "grace"

    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert posting.person().startswith("uid ")


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
