"""agentrun ui: what its forms post, and to which questions and items."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.made import Made
from cli.serving import Form, Said, Ui
from needs import require_module

require_module("starlette", "uvicorn", extra="ui")

REVIEW, FAILURES = "/jobs/drafts/review", "/jobs/drafts/failures"
Serve = Callable[[Path], Ui]


Make = Callable[[list[str]], Made]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture
def make(place: Path) -> Make:
    """The job `drafts` of these items, in place of the one that another test made."""
    shutil.rmtree(place / ".agentrun" / "drafts", ignore_errors=True)
    return lambda keys: Made(place, keys)


@pytest.fixture(scope="module")
def ui(place: Path) -> Iterator[Ui]:
    """One for all tests of `drafts`, because starting it takes longer than they do."""
    one = Ui(place)
    yield one
    said = one.said
    one.close()
    assert said == "open it in a browser; end with Ctrl-C\n", "no test meets a bug"


def asked(said: Said) -> dict[str, str]:
    """What the address that follows says."""
    assert said.status == 303, said.text
    return {name: one for name, (one, *_) in parse_qs(urlsplit(said["location"]).query).items()}


def answers(made: Made) -> list[tuple[str, int, dict[str, Any]]]:
    return [(one["key"], one["question"], one["answer"]) for one in made.posted()]


# ---- answers


def test_an_answer_goes_to_its_question_and_the_next_one_is_shown(make: Make, ui: Ui) -> None:
    made = make([*"abc"])
    made.commit(made.waiting("a", n=2), made.entry("b"), made.waiting("c", "And <this>?"))
    assert "1 of 2" in ui.get(REVIEW).text
    said = ui.press(ui.form(REVIEW, "/answer"), yes="1", text="fine\nby me ")
    which = {"last": "0", "generation": "0", "question": "2"}
    assert asked(said) == {"from": "1", "said": "yes", "answered": "1", **which}
    then = ui.get(said["location"]).text
    assert "Approved: a" in then and "2 of 2" in then and "And &lt;this&gt;?" in then
    said = ui.press(forms_at(ui, said, "/answer"), yes="0")
    assert asked(said)["said"] == "no"
    assert "2 answers posted" in ui.get(said["location"]).text
    assert [(key, n, one["yes"], one["text"]) for key, n, one in answers(made)] == [
        ("a", 2, True, "fine\nby me"),
        ("c", 1, False, ""),
    ]


def forms_at(ui: Ui, said: Said, action: str) -> Form:
    return ui.form(said["location"], action)


def test_an_answer_to_another_question_generation_or_item_posts_nothing(make: Make, ui: Ui) -> None:
    made = make([*"ab"])
    made.commit(made.waiting("a", n=2), made.waiting("b"))
    form = ui.form(REVIEW, "/answer")
    wrong = [("question", "1"), ("question", "3"), ("question", ""), ("question", "x"), ("generation", "1")]
    wrong += [("generation", ""), ("generation", "-1"), ("mark", ""), ("mark", "0" * 32), ("item", "1"), ("item", "7")]
    for name, value in wrong:
        said = ui.press(form, yes="1", **{name: value})
        assert asked(said)["said"] == "closed", name
        assert "no longer open" in ui.get(said["location"]).text
    for missing in ("question", "generation", "mark"):
        fields = {name: value for name, value in form.fields.items() if name != missing}
        assert asked(ui.post(form.action, {**fields, "yes": "1"}))["said"] == "closed"
    assert made.posted() == []
    assert asked(ui.press(form, yes="1"))["said"] == "yes"
    # A second press of the same key, and an answer from another tab.
    assert asked(ui.press(form, yes="1"))["said"] == "closed"
    assert asked(ui.press(form, yes="0"))["said"] == "closed"
    assert [(key, n, one["yes"]) for key, n, one in answers(made)] == [("a", 2, True)]


def test_a_question_that_was_asked_anew_is_not_answered_by_an_old_form(make: Make, ui: Ui) -> None:
    made = make([*"ab"])
    made.commit(made.waiting("a"), made.waiting("b"))
    form = ui.form(REVIEW, "/answer")
    made.commit(made.waiting("a", "Really?", n=2))
    assert asked(ui.press(form, yes="1"))["said"] == "closed"
    form = ui.form(REVIEW, "/answer")
    again = made.waiting("a", n=2)
    again.gen = 1
    made.commit(again)
    assert asked(ui.press(form, yes="1"))["said"] == "closed"
    # The items have moved: the same place, another key.
    form = ui.form(REVIEW, "/answer")
    (made.base / "items.txt").write_text("b\na\n")
    fresh = Ui(made.base)
    try:
        assert asked(fresh.post(form.action, {**form.fields, "yes": "1"}))["said"] == "closed"
    finally:
        fresh.close()
    assert made.posted() == []


def test_presses_at_the_same_time_post_one_answer(make: Make, ui: Ui) -> None:
    made = make(["a"])
    made.commit(made.waiting("a"))
    form, found = ui.form(REVIEW, "/answer"), list[str]()
    threads = [threading.Thread(target=lambda: found.append(asked(ui.press(form, yes="1"))["said"])) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["closed"] * 11 + ["yes"]
    assert len(made.posted()) == 1


def test_an_answer_is_taken_back_until_a_runner_has_it(make: Make, ui: Ui) -> None:
    made = make([*"ab"])
    made.commit(made.waiting("a"), made.waiting("b"))
    said = ui.press(ui.form(REVIEW, "/answer"), yes="1")
    undo = forms_at(ui, said, "/take-back")
    back = ui.press(undo)
    assert asked(back) == {"from": "0", "said": "back", "last": "0"} and made.posted() == []
    assert "Taken back: a" in ui.get(back["location"]).text and "1 of 2" in ui.get(back["location"]).text
    said = ui.press(forms_at(ui, back, "/answer"), yes="0")
    (posted,) = (made.folder / "inbox").glob("*.json")
    posted.unlink()
    assert asked(ui.press(forms_at(ui, said, "/take-back")))["said"] == "processed"
    assert ui.press(undo, mark="0" * 32).status == 409


def test_the_name_that_was_given_signs_the_answers(make: Make, ui: Ui) -> None:
    made = make([*"ab"])
    made.commit(made.waiting("a"), made.waiting("b"))
    form = ui.form(REVIEW, "/answer")
    named = ui.post("/name", {"name": "Ada Löve", "job": "drafts"})["set-cookie"].partition(";")[0]
    ui.post(form.action, {**form.fields, "yes": "1"}, ("Cookie", named))
    (message,) = made.posted()
    assert message["by"] == "Ada Löve"


def test_skip_for_now_and_the_button_of_an_item_lead_to_a_question(make: Make, ui: Ui) -> None:
    made = make([*"abc"])
    made.commit(*(made.waiting(key, f"Is it {key}?") for key in "abc"))
    assert "from=1&amp;later=1" in ui.get(REVIEW).text
    later = ui.get(f"{REVIEW}?from=1&later=1").text
    assert "Is it b?" in later and "2 of 3" in later
    assert "You have seen them all" in ui.get(f"{REVIEW}?from=3&later=3").text
    assert f"{REVIEW}?from=2" in ui.get("/jobs/drafts/items/2").text
    assert "Is it c?" in ui.get(f"{REVIEW}?from=2").text


# ---- details

DETAILS: dict[str, Any] = {
    "draft": "Dear Ada,\n  two lines\n",
    "empty": "",
    "newlines": "\n\nbegins with two",
    "windows": "one\r\ntwo\r\n",
    "control": "a\x00b\x1b[31mc\u202ed\x7f\te\rf",
    "markup": "</textarea><script>alert(1)</script>&lt;\"'",
    "number": 3,
    "float": 0.1,
    "big": 2**60,
    "yes": True,
    "no": False,
    "list": [1, "two", {"three": 3.0}],
    "object": {"a": "ü\n"},
    "null": None,
    "digits": "0123",
    "json": '{"a": 1}',
}


def test_details_that_nobody_edited_are_not_posted(make: Make, ui: Ui) -> None:
    made = make(["a"])
    made.commit(made.waiting("a", **DETAILS))
    assert asked(ui.press(ui.form(REVIEW, "/answer"), yes="1"))["said"] == "yes"
    (message,) = made.posted()
    assert message["answer"]["details"] == {}


@pytest.mark.parametrize(
    ("name", "typed", "expected"),
    [
        ("draft", "Hello", "Hello"),
        ("draft", "", ""),
        ("draft", "\n\n two\n", "\n\n two\n"),
        ("draft", "null", "null"),
        ("empty", " ", " "),
        ("newlines", "\nbegins with one", "\nbegins with one"),
        ("windows", "one\ntwo", "one\ntwo"),
        ("control", "plain", "plain"),
        ("markup", "<b>", "<b>"),
        ("digits", "0124", "0124"),
        ("json", "[", "["),
        ("number", "4", 4),
        ("number", "4.5", 4.5),
        ("number", '"four"', "four"),
        ("big", str(2**60 + 1), 2**60 + 1),
        ("yes", "false", False),
        ("no", "true", True),
        ("list", "[]", []),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("null", '"now"', "now"),
    ],
)
def test_an_edited_detail_arrives_as_it_was_typed(edited: Edit, name: str, typed: str, expected: Any) -> None:
    message = edited(name, typed)
    assert message["answer"]["details"] == {name: expected}


Edit = Callable[[str, str], dict[str, Any]]


@pytest.fixture
def edited(make: Make, ui: Ui) -> Edit:
    made = make(["a"])
    made.commit(made.waiting("a", **DETAILS))

    def edit(name: str, typed: str) -> dict[str, Any]:
        """The message that it becomes."""
        said = ui.press(ui.form(REVIEW, "/answer"), yes="1", **{f"d{[*DETAILS].index(name)}": typed})
        assert asked(said)["said"] == "yes"
        (message,) = made.posted()
        return message

    return edit


def test_what_cannot_be_read_is_shown_again_as_it_was_filled_in(make: Make, ui: Ui) -> None:
    made = make([*"ab"])
    made.commit(made.waiting("a"), made.waiting("b", copies=2, draft="Dear", flag=True))
    form = ui.form(f"{REVIEW}?from=1&answered=3", "/answer")
    said = ui.press(form, yes="1", d0="two <", d1="Hello\nyou", d2="false", text="my words")
    assert said.status == 422 and 'role="alert"' in said.text and "copies is not JSON" in said.text
    (again,) = (one for one in _forms(said) if one.action.endswith("/answer"))
    assert {name: again.fields[name] for name in ("d0", "d1", "d2", "text")} == {
        "d0": "two <",
        "d1": "Hello\nyou",
        "d2": "false",
        "text": "my words",
    }
    assert again.fields["o0"] == "2" and made.posted() == []
    assert asked(ui.press(again, yes="1", d0="2"))["said"] == "yes"
    (message,) = made.posted()
    assert message["answer"]["details"] == {"draft": "Hello\nyou", "flag": False}


def _forms(said: Said) -> list[Form]:
    from cli.serving import forms_of

    return forms_of(said.text)


# ---- failures


def test_a_cause_is_run_again_or_skipped_as_it_was_shown(make: Make, ui: Ui) -> None:
    made = make([*"abcdef"])
    made.commit(*(made.failed(key, f"no IBAN on page {n}") for n, key in enumerate("abc")), made.failed("d", "other"))
    page = ui.get(FAILURES).text
    assert "Run these 3 again" in page and "Run it again" in page
    redo = next(one for one in ui.forms(FAILURES) if one.action.endswith("/redo"))
    said = ui.press(redo)
    assert asked(said) == {"said": "redo", "count": "3", "when": "later"}
    assert "3 items will run again" in ui.get(said["location"]).text
    assert [(one["kind"], one["key"], one["now"]) for one in made.posted()] == [("redo", key, True) for key in "abc"]
    page = ui.get(FAILURES).text
    assert "Posted: the next launch takes them up." in page and "Run these 3" not in page
    skip = next(one for one in ui.forms(FAILURES) if one.action.endswith("/skip"))
    assert asked(ui.press(skip, reason=" not needed "))["count"] == "1"
    last = made.posted()[-1]
    assert (last["kind"], last["key"], last["reason"]) == ("skip", "d", "not needed")


@pytest.mark.parametrize("change", ["more", "fewer", "others"])
def test_a_cause_with_other_items_than_those_shown_posts_nothing(make: Make, ui: Ui, change: str) -> None:
    made = make([*"abcd"])
    made.commit(made.failed("a"), made.failed("b"), made.entry("c"))
    redo, skip = (next(one for one in ui.forms(FAILURES) if one.action.endswith(what)) for what in ("/redo", "/skip"))
    if change != "more":
        made.commit(made.entry("a"))
    if change != "fewer":
        made.commit(made.failed("d"))
    for form in (redo, skip):
        said = ui.press(form)
        assert said.status == 409 and "nothing was posted; go back and reload" in said.text
    assert ui.press(redo, cause="0" * 16).status == 409
    assert made.posted() == []


def test_one_item_is_run_again_or_skipped_from_its_own_page(make: Make, ui: Ui) -> None:
    made = make([*"abcd"])
    made.commit(made.entry("a"), made.failed("b"), made.waiting("c"))
    actions = {
        index: [one.action.rpartition("/")[2] for one in ui.forms(f"/jobs/drafts/items/{index}")] for index in range(4)
    }
    assert actions == {0: ["redo"], 1: ["redo", "skip"], 2: ["redo", "skip"], 3: []}
    redo = ui.form("/jobs/drafts/items/0", "/redo")
    for name, value in (("mark", "x"), ("item", "1"), ("item", "99"), ("item", "-1")):
        assert ui.press(redo, **{name: value}).status == 409
    assert made.posted() == []
    said = ui.press(redo)
    assert urlsplit(said["location"]).path == "/jobs/drafts/items/0" and asked(said)["said"] == "redo"
    ui.press(ui.form("/jobs/drafts/items/1", "/skip"), reason="<b>\n")
    assert [(one["kind"], one["key"]) for one in made.posted()] == [("redo", "a"), ("skip", "b")]
    assert "2 items" not in ui.get(said["location"]).text and "1 item will run again" in ui.get(said["location"]).text


# ---- what cannot be read


def test_a_damaged_job_is_said_to_be_so_and_hides_no_other(make: Make, ui: Ui) -> None:
    made = make([*"ab"])
    made.commit(made.entry("a"), made.failed("b"))
    state = made.folder / "state.json"
    state.write_text(state.read_text().replace('"seq":1', '"seq":9'))
    assert "damaged" in ui.get("/").text
    assert "damaged" in ui.get("/jobs/drafts").text
    for page in ("items", "items/0", "failures", "review", "results", "report", "results.csv", "results.jsonl"):
        said = ui.get(f"/jobs/drafts/{page}")
        assert said.status in (200, 500) and "a bug in agentrun" not in said.text, page
        if said.status == 500:
            assert "drafts" in said.text and 'role="alert"' in said.text
