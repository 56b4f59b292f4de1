"""The desk: questions, answers, redo, edit and skip, on every store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.agents.messages import Answer
from agentrun.checkpoint.message import (
    AnswerMessage,
    AnyMessage,
    EditMessage,
    RedoMessage,
    SkipMessage,
    encode_message,
)
from agentrun.checkpoint.record import Kind
from agentrun.errors import ItemsError, UsageError
from agentrun.people import desk
from agentrun.people.desk import ReplyTo, Selection
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
from unit.made import Made, StoreKind


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, [*"abcdef"], kind)


def posted(made: Made) -> list[AnyMessage]:
    found = [one.message for one in made.store.inbox()]
    assert None not in found
    return [message for message in found if message is not None]


def keys(items: tuple[ItemView, ...]) -> list[str]:
    return [view.key for view in items]


def named(*items: str) -> Selection:
    return Selection(items=items)


# ---- questions and answers


def test_questions_are_those_of_waiting_items_with_their_steps_and_whether_they_have_an_answer(made: Made) -> None:
    made.commit(made.record("c", "step", [1], name="draft", n=0, no=0))
    made.commit(made.record("a"), made.waiting("c", "Send it?", draft="x"), made.waiting("b"), made.failed("d"))
    desk.answer(made.known, named("b"), yes=True)
    first, second = desk.questions(made.known)
    assert [(one.key, one.index, one.gen, one.is_answered) for one in (first, second)] == [
        ("b", 1, 0, True),
        ("c", 2, 0, False),
    ]
    assert second.as_json() == {
        "index": 2,
        "key": "c",
        "generation": 0,
        "question": 1,
        "text": "Send it?",
        "details": {"draft": "x"},
        "at": "2026-05-04T22:03:11.042Z",
        "steps": [{"name": "draft", "output": [1]}],
        "answered": False,
    }
    assert desk.is_answered(made.known, first) and not desk.is_answered(made.known, second)


def test_questions_can_be_asked_of_a_listing_that_is_open_already(made: Made) -> None:
    made.commit(made.waiting("a"), made.waiting("b"))
    with desk.open_items(made.known) as listing:
        assert [one.key for one in desk.questions(made.known, listing)] == ["a", "b"]
        assert len(listing) == 6


def test_an_answer_names_the_question_of_its_item(made: Made) -> None:
    made.commit(made.record("b", "answer", question=1, answer=Answer(yes=True)))
    made.commit(made.waiting("a"), made.waiting("b", n=2, draft="x", cc="y"))
    posting = desk.answer(made.known, named("b"), yes=False, text="too long", details={"draft": "z"}, by="ada")
    assert keys(posting.items) == ["b"] and posting.is_unfinished and posting.already_answered == 0
    assert posting.holder is None and not posting.waits_for_launch
    (message,) = posted(made)
    assert isinstance(message, AnswerMessage)
    assert (message.run_id, message.key, message.gen, message.question, message.by) == (made.run_id, "b", 0, 2, "ada")
    # Only what the person changed.
    assert (message.answer.yes, message.answer.text, message.answer.details) == (False, "too long", {"draft": "z"})


def test_by_index_it_is_the_same_item_and_the_person_is_who_is_logged_in(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "grace")
    made.commit(made.waiting("b"))
    assert keys(desk.answer(made.known, Selection(indexes=[1]), yes=True).items) == ["b"]
    assert [message.by for message in posted(made)] == ["grace"]


def test_somebody_is_there_even_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import getpass

    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert desk.person().startswith("uid ")


def test_the_first_answer_wins_and_a_second_one_is_refused(made: Made) -> None:
    made.commit(made.waiting("a"), made.waiting("b"))
    desk.answer(made.known, named("a"), yes=True)
    with pytest.raises(UsageError, match="this question has an answer that is not processed yet"):
        desk.answer(made.known, named("a"), yes=False)
    posting = desk.answer_all(made.known, yes=True, text="fine")
    assert (keys(posting.items), posting.already_answered) == (["b"], 1)
    with pytest.raises(UsageError, match="nothing new to answer"):
        desk.answer_all(made.known, yes=True)
    assert [message.key for message in posted(made)] == ["a", "b"]


def test_an_answer_can_be_taken_back_and_given_anew(made: Made) -> None:
    made.commit(made.waiting("a"), made.waiting("b"))
    desk.answer(made.known, named("a"), yes=True)
    desk.answer(made.known, named("b"), yes=True)
    assert desk.take_back(made.known, named("a")).key == "a"
    assert [message.key for message in posted(made)] == ["b"]
    desk.answer(made.known, named("a"), yes=False)
    assert [message.key for message in posted(made)] == ["b", "a"]


def test_an_answer_that_a_runner_has_is_not_taken_back(made: Made) -> None:
    made.commit(made.waiting("a"), made.waiting("b"), made.record("c"))
    desk.answer(made.known, named("a"), yes=True)
    made.store.claim([one.name for one in made.store.inbox()])
    for _ in range(2):
        with pytest.raises(
            UsageError, match="already processed the answer to a; to start the item over: agentrun redo made a"
        ):
            desk.take_back(made.known, named("a"))
        assert [message.key for message in posted(made)] == ["a"]
    made.store.drop([one.name for one in made.store.inbox()])
    made.commit(made.record("a", "answer", question=1, answer=Answer(yes=True, by="ada")))
    for key, words in (("a", "already processed"), ("b", "nothing to take back"), ("c", "nothing to take back")):
        with pytest.raises(UsageError, match=words):
            desk.take_back(made.known, named(key))


def test_several_items_are_answered_each_in_its_own_way(made: Made) -> None:
    made.commit(made.waiting("a"), made.waiting("b", draft="x"), made.record("c"))
    posting = desk.answer_each(
        made.known, [ReplyTo("b", yes=True, details={"draft": "y"}), ReplyTo("a", yes=False, text="no")], by="ada"
    )
    assert keys(posting.items) == ["b", "a"]
    first, second = posted(made)
    assert isinstance(first, AnswerMessage) and isinstance(second, AnswerMessage)
    assert (first.answer.details, second.answer.text) == ({"draft": "y"}, "no")


def test_of_several_answers_of_which_one_is_wrong_none_is_posted(made: Made) -> None:
    made.commit(made.waiting("a"), made.waiting("b", draft="x", copies=2))
    good = ReplyTo("a", yes=True)
    for wrong, says in (
        (ReplyTo("x", yes=True), "^made: has no item x"),
        (ReplyTo("x", yes=True, where="answers.csv:3"), "^answers.csv:3: made: has no item x"),
        (ReplyTo("b", yes=True, details={"draf": 1}), "^b: its question has no detail draf; it has draft, copies"),
        (ReplyTo("b", yes=True, details={"draf": 1}, where="answers.csv:3"), "^answers.csv:3: b: its question has no"),
        (ReplyTo("b", yes=True, details={"draf": "x"}, is_typed=True), "^b: its question has no detail draf"),
        (ReplyTo("b", yes=True, details={"copies": "many"}, is_typed=True), "^b: copies is not JSON"),
    ):
        with pytest.raises(UsageError, match=says):
            desk.answer_each(made.known, [good, wrong])
    with pytest.raises(UsageError, match="made: there are no answers to post"):
        desk.answer_each(made.known, [])
    assert posted(made) == []


def test_answers_are_checked_even_where_there_is_an_answer_already(made: Made) -> None:
    made.commit(made.waiting("a"), made.waiting("b"))
    desk.answer(made.known, named("a"), yes=True)
    with pytest.raises(UsageError, match="a: its question has no detail draft; it has none"):
        desk.answer_each(made.known, [ReplyTo("a", yes=True, details={"draft": 1}), ReplyTo("b", yes=True)])
    assert desk.answer_each(made.known, [ReplyTo("a", yes=True), ReplyTo("b", yes=True)]).already_answered == 1


def test_answers_to_items_that_do_not_wait_are_ignored_and_named(made: Made) -> None:
    made.commit(made.waiting("a"), made.record("b"), made.failed("c"))
    # Whatever else they say, and however often.
    replies = [ReplyTo(key, yes=True, details={"no": 1}) for key in "bcdb"]
    posting = desk.answer_each(made.known, [*replies, ReplyTo("a", yes=True)])
    assert (keys(posting.items), keys(posting.ignored)) == (["a"], ["b", "c", "d", "b"])
    assert posting.as_json()["ignored"][0] == {"index": 1, "key": "b", "state": "done"}
    assert [message.key for message in posted(made)] == ["a"]
    with pytest.raises(
        UsageError, match="none of these items, such as b, is waiting for an answer; see which are with"
    ):
        desk.answer_each(made.known, replies)


def test_two_answers_to_one_item_are_refused(made: Made, tmp_path: Path) -> None:
    made.commit(made.waiting("a"), made.waiting("b"))
    for first, second, says in (
        (ReplyTo("a", yes=True), ReplyTo("a", yes=True), "made: answers a a second time; keep one of the two answers"),
        (
            ReplyTo("a", yes=True, where="f.csv:2"),
            ReplyTo(str(tmp_path / "a"), yes=False, where="f.csv:4"),
            "f.csv:4: answers a a second time (the first: f.csv:2); keep one of the two answers",
        ),
    ):
        with pytest.raises(UsageError) as error:
            desk.answer_each(made.known, [first, ReplyTo("b", yes=True), second], here=tmp_path)
        assert error.value.message == says
    assert posted(made) == []


def test_details_that_were_typed_are_json_unless_the_question_has_text_there(made: Made) -> None:
    made.commit(made.waiting("a", draft="x", copies=2, cc=["eve"], late=None))
    typed = {"draft": "3", "copies": "3", "cc": "[]", "late": "true"}
    desk.answer_each(made.known, [ReplyTo("a", yes=True, details=typed, is_typed=True)])
    (message,) = posted(made)
    assert isinstance(message, AnswerMessage)
    assert message.answer.details == {"draft": "3", "copies": 3, "cc": [], "late": True}


def test_what_cannot_be_answered_is_refused_and_nothing_is_posted(made: Made) -> None:
    made.commit(made.record("a"), made.waiting("b", draft="x"))
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: desk.answer(made.known, named("a"), yes=True), "a: is done, not waiting for an answer; run it again"),
        (lambda: desk.answer(made.known, named("c"), yes=True), "c: is pending, not waiting for an answer"),
        (lambda: desk.answer(made.known, named("a", "b"), yes=True), "which item"),
        (lambda: desk.answer(made.known, Selection(items=["a"], indexes=[1]), yes=True), "which item"),
        (lambda: desk.answer(made.known, Selection(), yes=True), "which item"),
        (lambda: desk.answer(made.known, Selection(indexes=[6]), yes=True), "there is no item 6; it has 6"),
        (lambda: desk.answer(made.known, named("b"), yes=True, details={"draf": 1}), "no detail draf; it has draft"),
        (lambda: desk.answer(made.known, named("b"), yes=True, details={"draft": float("nan")}), "cannot be posted"),
        (lambda: desk.answer(made.known, named("b"), yes=True, text="\udc80"), "made: that cannot be posted: .*surrog"),
    ]
    for call, says in refused:
        with pytest.raises(UsageError, match=says):
            call()
    assert posted(made) == []


def test_where_nothing_waits_or_nothing_ever_ran_that_is_said(made: Made) -> None:
    with pytest.raises(UsageError, match="made: has no run yet; start one with: agentrun start made"):
        desk.answer_all(made.known, yes=True)
    made.commit(made.record("a"))
    with pytest.raises(UsageError, match="no items are waiting for an answer"):
        desk.answer_all(made.known, yes=True)


def test_a_posting_names_the_runner_at_work(made: Made) -> None:
    with made.at_work():
        made.commit(made.waiting("a"))
        posting = desk.answer(made.known, named("a"), yes=True)
        assert posting.holder is not None and posting.is_unfinished
    assert desk.skip(made.known, named("b")).holder is None


def test_a_posting_is_shown_as_json(made: Made) -> None:
    made.commit(made.waiting("a"), made.waiting("b"))
    desk.answer(made.known, named("a"), yes=True)
    with made.at_work():
        shown = desk.answer_all(made.known, yes=True).as_json()
    assert orjson.loads(orjson.dumps(shown)) == shown
    assert shown.pop("holder")["pid"] > 0
    assert shown == {
        "items": [{"index": 1, "key": "b", "state": "waiting"}],
        "is_unfinished": True,
        "waits_for_launch": False,
        "completes": False,
        "already_answered": 1,
        "ignored": [],
    }
    assert desk.skip(made.known, named("c")).as_json()["holder"] is None


# ---- redo


def test_redo_by_name_takes_items_in_any_state_but_pending(made: Made) -> None:
    made.commit(made.record("a", gen=2), made.failed("b"), made.waiting("c"), made.record("d", "skipped"))
    posting = desk.redo(made.known, Selection(items=["d", "a", "b"], indexes=[2, 0]), by="ada")
    # In the order they were asked for, each once.
    assert keys(posting.items) == ["d", "a", "b", "c"] and posting.waits_for_launch
    messages = posted(made)
    assert [(one.key, one.gen, one.run_id) for one in messages] == [
        ("d", 0, made.run_id),
        ("a", 2, made.run_id),
        ("b", 0, made.run_id),
        ("c", 0, made.run_id),
    ]
    assert all(isinstance(one, RedoMessage) and not one.now and one.keep_before is None for one in messages)
    with pytest.raises(UsageError, match="e is pending; the next launch runs it anyway"):
        desk.redo(made.known, named("e"))


def test_redo_now_is_for_a_runner_at_work(made: Made) -> None:
    made.commit(made.record("a"))
    assert not desk.redo(made.known, named("a"), now=True).waits_for_launch
    (message,) = posted(made)
    assert isinstance(message, RedoMessage) and message.now


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Selection(failed=True), "bd"),
        (Selection(cause="NO GOOD"), "b"),
        (Selection(cause="ValueError: row 17 is short"), "d"),
        (Selection(cause="row … is short"), "d"),
        (Selection(agent_version="v2"), "ce"),
        (Selection(first=2), "cde"),
        (Selection(first=2, agent_version="v2"), "ce"),
        (Selection(failed=True, first=2), "d"),
        (Selection(failed=True, cause="good"), "b"),
    ],
    ids=repr,
)
def test_redo_by_rule_takes_all_items_for_which_everything_holds(made: Made, rule: Selection, expected: str) -> None:
    made.commit(
        made.record("a"),
        made.failed("b"),
        made.record("c", agent="v2.1"),
        made.failed("d", "row 9 is short"),
        made.record("e", agent="v2"),
    )
    asked: list[list[str]] = []

    def agree(items: Any) -> bool:
        asked.append([view.key for view in items])
        return True

    posting = desk.redo(made.known, rule, agree=agree)
    assert keys(posting.items) == [*expected] == [message.key for message in posted(made)]
    assert asked == [[*expected]]


def test_redo_that_nobody_agrees_to_posts_nothing(made: Made) -> None:
    made.commit(made.record("a"), made.failed("b"))
    seen: list[str] = []

    def agree(items: Any) -> bool:
        seen.extend(view.state for view in items)
        return False

    assert desk.redo(made.known, Selection(first=0), agree=agree).items == ()
    assert seen == ["done", "failed"] and posted(made) == []


def test_redo_of_nothing_and_of_names_and_rules_at_once_is_refused(made: Made) -> None:
    made.commit(made.record("a"))
    for selection, says in (
        (Selection(), "which items"),
        (Selection(items=["a"], failed=True), "which items"),
        (Selection(failed=True), "no items match; see: agentrun items made"),
        (Selection(first=3), "no items match"),
        (Selection(agent_version=""), "no items match"),
        (Selection(cause="  "), "no items match"),
        (named("nobody"), "has no item nobody"),
    ):
        with pytest.raises(UsageError, match=says):
            desk.redo(made.known, selection)
    assert posted(made) == []


def test_redo_can_keep_the_steps_before_one_that_some_of_them_have(made: Made) -> None:
    made.commit(
        made.record("a", "step", 1, name="search", n=0, no=0),
        made.record("a", "step", 2, name="draft", n=0, no=1),
        made.record("a"),
        made.record("b"),
    )
    desk.redo(made.known, named("a", "b"), keep_before="draft")
    assert [one.keep_before for one in posted(made) if isinstance(one, RedoMessage)] == ["draft", "draft"]
    with pytest.raises(UsageError, match="none of them has a step sent; they have search, draft"):
        desk.redo(made.known, named("a", "b"), keep_before="sent")
    with pytest.raises(UsageError, match="they have no steps on record; leave out --steps"):
        desk.redo(made.known, named("b"), keep_before="draft")


def test_a_pending_item_with_steps_may_start_over(made: Made) -> None:
    made.commit(made.record("a", "step", 1, name="search", n=0, no=0))
    assert keys(desk.redo(made.known, named("a")).items) == ["a"]


def test_redo_on_a_finished_run_is_for_that_run(made: Made) -> None:
    made.commit(*(made.record(key) for key in made.keys))
    made.finish()
    posting = desk.redo(made.known, named("a"))
    assert not posting.is_unfinished and [message.run_id for message in posted(made)] == [made.run_id]


# ---- edit


def test_an_output_is_edited_by_the_record_that_was_seen(made: Made) -> None:
    made.commit(made.failed("a"))
    made.commit(made.record("a", output={"n": 1}))
    editable = desk.to_edit(made.known, named("a"))
    assert (editable.value, editable.name, editable.is_carry) == ({"n": 1}, "a", False)
    posting = desk.edit(editable, {"n": 2}, by="ada")
    assert keys(posting.items) == ["a"] and not posting.waits_for_launch
    (message,) = posted(made)
    assert isinstance(message, EditMessage) and (message.seq, message.by) == (2, "ada")
    assert orjson.loads(encode_message(message))["output"] == {"n": 2}


@pytest.mark.parametrize("value", [None, False, 0, "", [], "\u2028"])
def test_any_json_value_can_take_the_place_of_an_output(made: Made, value: Any) -> None:
    made.commit(made.record("a"))
    desk.edit(desk.to_edit(made.known, named("a")), value)
    assert [orjson.loads(encode_message(message))["output"] for message in posted(made)] == [value]


def test_an_edit_that_json_cannot_hold_is_the_persons_mistake(made: Made) -> None:
    made.commit(made.record("a"))
    for value in (float("inf"), {1: 2}, 2**64, "\udc80"):
        with pytest.raises(UsageError, match="made: that cannot be posted: output"):
            desk.edit(desk.to_edit(made.known, named("a")), value)
    assert posted(made) == []


def test_only_what_is_done_can_be_edited(made: Made) -> None:
    made.commit(made.failed("a"), made.waiting("b"), made.record("c", "skipped"))
    for key, says in (
        ("a", "a is failed and has no output to edit; run it again with: agentrun redo made a; or settle it"),
        ("b", "answer it with: agentrun answer"),
        ("c", "run it again with: agentrun redo made c"),
        ("d", "edit it once it is done"),
    ):
        with pytest.raises(UsageError, match=says):
            desk.to_edit(made.known, named(key))


def test_the_carry_that_the_next_item_gets_is_that_of_the_last_settled_one(tmp_path: Path, kind: StoreKind) -> None:
    made = Made(tmp_path, [*"abc"], kind, carry=True)
    with pytest.raises(UsageError, match="made: has no run yet"):
        desk.to_edit(made.known)
    made.commit(made.record("a", after=0, carry=[1]))
    made.commit(made.record("b", after=1, carry=[1, 2]))
    editable = desk.to_edit(made.known)
    assert (editable.value, editable.name, editable.is_carry) == ([1, 2], "the carry after b", True)
    assert editable.as_json() == {
        "job": "made",
        "run_id": made.run_id,
        "index": 1,
        "key": "b",
        "generation": 0,
        "name": "the carry after b",
        "is_carry": True,
        "value": [1, 2],
    }
    assert desk.edit(editable, [3]).waits_for_launch
    (message,) = posted(made)
    assert isinstance(message, EditMessage) and (message.key, message.seq) == ("b", 2)
    assert orjson.loads(encode_message(message))["carry"] == [3]


def test_a_carry_that_does_not_exist_cannot_be_edited(tmp_path: Path, made: Made, kind: StoreKind) -> None:
    made.commit(made.record("a"))
    with pytest.raises(UsageError, match="this job has no carry"):
        desk.to_edit(made.known)
    carrying = Made(tmp_path, [*"abc"], kind, carry=True, name="other")
    carrying.commit(carrying.record("b", after=0))
    with pytest.raises(UsageError, match="no item is settled yet"):
        desk.to_edit(carrying.known)


@pytest.mark.parametrize(("state", "how"), [("failed", "failed"), ("skipped", "was skipped")])
def test_after_an_item_that_is_not_done_the_carry_cannot_be_edited(
    tmp_path: Path, kind: StoreKind, state: Kind, how: str
) -> None:
    made = Made(tmp_path, [*"abc"], kind, carry=True)
    made.commit(made.record("a", after=0, carry=[1]))
    made.commit(made.record("b", state, after=1, carry=[1]))
    with pytest.raises(UsageError) as error:
        desk.to_edit(made.known)
    assert error.value.message == (
        f"made: the last settled item, b, {how}, and the carry can be edited only after a done item; "
        "run it again with: agentrun redo made b"
    )


# ---- skip


def test_skip_settles_what_failed_waits_or_is_pending(made: Made) -> None:
    made.commit(made.failed("a"), made.waiting("b"), made.record("c"), made.record("d", "skipped"))
    posting = desk.skip(made.known, named("a", "b", "e"), reason="a duplicate", by="ada")
    assert keys(posting.items) == ["a", "b", "e"] and not posting.waits_for_launch
    messages = [one for one in posted(made) if isinstance(one, SkipMessage)]
    assert [(one.key, one.reason, one.by) for one in messages] == [(key, "a duplicate", "ada") for key in "abe"]
    for selection, says in (
        (named("c"), "c is done; it has a result; to discard it: agentrun redo made c"),
        (named("a", "d"), "d is skipped; nothing to do"),
        (Selection(), "which items"),
        (Selection(items=["a"], failed=True), "which items"),
        (Selection(cause="another"), "no items have failed with another; see: agentrun failures made"),
    ):
        with pytest.raises(UsageError, match=says):
            desk.skip(made.known, selection)
    assert len(posted(made)) == 3


def test_skip_by_cause_takes_those_that_failed_so(made: Made) -> None:
    made.commit(made.failed("a", "row 17 is short"), made.failed("b", "no header"), made.failed("c", "row 8 is short"))
    assert keys(desk.skip(made.known, Selection(cause="ValueError: row 8 is short")).items) == ["a", "c"]
    assert keys(desk.skip(made.known, Selection(failed=True)).items) == ["a", "b", "c"]


def test_skip_says_whether_it_was_all_that_kept_the_run_from_completing(tmp_path: Path, kind: StoreKind) -> None:
    made = Made(tmp_path, [*"abcd"], kind)
    made.commit(made.record("a"), made.failed("b"), made.waiting("c"), made.failed("d"))
    assert not desk.skip(made.known, named("b")).completes
    assert not desk.skip(made.known, named("b", "d")).completes
    assert desk.skip(made.known, named("b", "c", "d")).completes
    assert made.job.allow_failures.of(4) == 0
    allowed = Made(tmp_path, [*"abcd"], kind, name="allowed", run={"allow_failures": 1})
    allowed.commit(allowed.record("a"), allowed.failed("b"), allowed.waiting("c"), allowed.failed("d"))
    assert desk.skip(allowed.known, named("b", "c")).completes
    assert not desk.skip(allowed.known, named("b", "d")).completes


def test_nothing_completes_a_run_that_has_finished_or_has_items_in_flight(made: Made) -> None:
    made.commit(*(made.record(key) for key in "abcd"), made.failed("e"), made.failed("f"))
    made.finish()
    assert not desk.skip(made.known, named("e", "f")).completes


# ---- jobs whose description or source cannot be read


def test_a_job_whose_description_cannot_be_read_is_served_from_its_records(made: Made) -> None:
    made.commit(made.waiting("b"), made.failed("c"), made.record("d"))
    known = KnownJob("made", made.store, problem="made.toml: is not TOML", command_name="./made.toml")
    assert [one.key for one in desk.questions(known)] == ["b"]
    desk.answer(known, named("b"), yes=True)
    desk.redo(known, Selection(indexes=[3]))
    desk.skip(known, Selection(failed=True))
    assert [(type(one).__name__, one.key) for one in posted(made)] == [
        ("AnswerMessage", "b"),
        ("RedoMessage", "d"),
        ("SkipMessage", "c"),
    ]
    with pytest.raises(UsageError, match=r"see them with: agentrun items \./made\.toml"):
        desk.redo(known, named("quite another"))


def test_a_source_that_cannot_be_read_is_warned_of_and_the_records_do(made: Made) -> None:
    made.items.unlink()
    with pytest.raises(ItemsError):
        desk.open_items(made.known)
    made.commit(made.waiting("b"))
    said: list[str] = []
    with desk.open_items(made.known, warn=said.append) as listing:
        assert [view.key for view in listing.items()] == ["b"]
    assert len(said) == 1 and said[0].endswith("using only what is on record")
    assert keys(desk.answer(made.known, named("b"), yes=True).items) == ["b"]


def test_a_job_that_is_another_by_now_is_warned_of(made: Made) -> None:
    made.commit(made.record("a"))
    other = replace(made.known, job=replace(made.job, params={"customer": "acme"}))
    said: list[str] = []
    with desk.open_items(other, warn=said.append) as listing:
        assert len(listing) == 1
    assert said == ["made: the job has other items, another agent or other params by now; these are this run's records"]


def everything_a_person_does(known: KnownJob, warn: Callable[[str], None]) -> list[Callable[[], object]]:
    """On a run where b, c and d wait, and e is done."""
    return [
        lambda: list(desk.questions(known, warn=warn)),
        lambda: desk.answer(known, named("b"), yes=True, warn=warn),
        lambda: desk.answer_each(known, [ReplyTo("c", yes=True)], warn=warn),
        lambda: desk.answer_all(known, yes=True, warn=warn),
        lambda: desk.redo(known, named("e"), warn=warn),
        lambda: desk.to_edit(known, named("e"), warn=warn),
        lambda: desk.skip(known, named("d"), warn=warn),
    ]


def test_whatever_a_person_does_a_source_that_cannot_be_read_is_warned_of(made: Made) -> None:
    made.commit(*(made.waiting(key) for key in "bcd"), made.record("e"))
    made.items.unlink()
    said: list[str] = []
    for act in everything_a_person_does(made.known, said.append):
        act()
        (warning,) = said
        assert "there is no such file" in warning and warning.endswith("; using only what is on record")
        said.clear()


def test_whatever_a_person_does_a_job_that_is_another_by_now_is_warned_of(made: Made) -> None:
    made.commit(*(made.waiting(key) for key in "bcd"), made.record("e"))
    other = replace(made.known, job=replace(made.job, params={"customer": "acme"}))
    said: list[str] = []
    for act in everything_a_person_does(other, said.append):
        act()
        (warning,) = said
        assert "the job has other items, another agent or other params by now" in warning
        said.clear()


def test_a_warning_comes_before_a_person_agrees_and_also_with_an_error(made: Made) -> None:
    made.commit(made.record("a"))
    made.items.unlink()
    heard: list[str] = []

    def agree(items: Any) -> bool:
        heard.append("asked")
        return False

    desk.redo(made.known, named("a"), agree=agree, warn=lambda text: heard.append("warned"))
    with pytest.raises(UsageError, match="has no item b"):
        desk.redo(made.known, named("b"), warn=lambda text: heard.append("warned"))
    assert heard == ["warned", "asked", "warned"]
