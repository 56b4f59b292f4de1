"""Which failures are one cause, and how they are grouped."""

from __future__ import annotations

import time
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from agentrun.agents.failure import Failure, Place
from agentrun.views.causes import FailureView, cause_shape, group_failures, raised_at
from agentrun.views.item import ItemView
from unit.records import make_record


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: document 17 is empty", "ValueError: document 1800 is empty"),
        ("took 3.5s, over 2s", "took 12s, over 2s"),
        ("took 1m30s", "took 45s"),
        ("waited 250ms", "waited 1,200ms"),
        ("score -0.25 is low", "score 1e-9 is low"),
        ("50% of it", "7.5% of it"),
        ("at 2026-05-04T22:03:11.042Z", "at 2025-12-31T01:00:00Z"),
        ("at 22:03:11", "at 7:05"),
        ("reset by 10.0.0.1:443", "reset by 192.168.7.20:8080"),
        ("item42 failed", "item7 failed"),
        ("<Reply object at 0x7f3a1c0d>", "<Reply object at 0x7fffaa00>"),
        ("commit deadbeefcafe is gone", "commit 0123456789ab is gone"),
        ("commit deadbeef is gone", "commit 12345678 is gone"),
        ("no 6f1c2d3e-0a1b-4c5d-8e9f-001122334455", "no 00000000-0000-4000-8000-000000000000"),
        ("failed (request req_011CSHoEeqs5C35K)", "failed (request req_9zQ2abXyT71LmNop)"),
        ("trace x9-Ab3_Qz81Kd ended", "trace 77-ff01_99aaQ2 ended"),
        ("KeyError: 'customer'", "KeyError: 'order_date'"),
        ("KeyError: 'customer'", "KeyError: 5"),
        ('no field "a" in it', 'no field "bcd" in it'),
        ("no field `a` in it", "no field `b c` in it"),
        ("no field “a” in it", "no field “b” in it"),
        ("can't open 'a b'", "can't open 'it's'"),
        (r"bad text 'a\'b' here", "bad text 'c' here"),
        ("b'\\x00' is not text", "b'abc' is not text"),
        ("/var/data/a.txt: cannot be read", "/home/me/other: cannot be read"),
        ("./a.txt is empty", "../b/c.txt is empty"),
        ("documents/alpha.txt is empty", "inbox/old/beta.pdf is empty"),
        ("alpha.txt is empty", "beta.PDF is empty"),
        ("~/notes is empty", "/srv/notes is empty"),
        (r"C:\Users\me\a.txt is empty", r"D:\b is empty"),
        ("a/b/c is gone", "d/e/f/g is gone"),
        ("GET https://api.example.com/v1/items/12 failed", "GET https://api.example.com/v2/users?x=a failed"),
        ("no account for ann@example.com", "no account for bob.b@mail.example.org"),
        ("two\n  lines of 3", "two lines of 4"),
    ],
)
def test_messages_that_differ_only_in_numbers_ids_quotes_and_paths_are_one_cause(one: str, other: str) -> None:
    assert cause_shape(one) == cause_shape(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: the document is empty", "TypeError: the document is empty"),
        ("connection reset by peer", "connection refused by peer"),
        ("GET https://a.example.com/x failed", "GET https://b.example.com/x failed"),
        ("expected text/html", "expected application/json"),
        ("it can't be read, isn't there", "it can't be written, isn't there"),
        ("openai.RateLimitError", "openai.BadRequestError"),
        (
            "Error code: 400 - {'error': {'message': 'the context is too long by 12 tokens', 'code': 'x'}}",
            "Error code: 400 - {'error': {'message': 'the reply was held back by a filter', 'code': 'x'}}",
        ),
        ("{'error': 'x'}", "{'warning': 'x'}"),
    ],
)
def test_messages_that_say_something_else_are_different_causes(one: str, other: str) -> None:
    assert cause_shape(one) != cause_shape(other)


def test_the_words_of_a_message_stay_readable_in_its_shape() -> None:
    shape = cause_shape("TimeoutError: documents/0001.txt: no reply from 'gpt' after 30s (attempt 4)")
    assert shape == "TimeoutError: …: no reply from … after … (attempt …)"


def test_numbers_inside_a_quoted_sentence_do_not_tell_causes_apart() -> None:
    said = "{{'error': {{'message': 'the context is too long by {} tokens', 'type': 'invalid'}}}}"
    assert cause_shape(said.format(12)) == cause_shape(said.format(4096))


@pytest.mark.parametrize(
    "text", ["", " ", "…", "'", "'" * 5001, '"a' * 3000, "a/" * 4000, "\\'" * 3000, "1-" * 4000, "a.b" * 4000]
)
def test_odd_and_long_messages_are_no_trouble(text: str) -> None:
    began = time.perf_counter()
    cause_shape(text)
    assert time.perf_counter() - began < 1


def failed(index: int, message: str, **facts: Any) -> ItemView:
    error = Failure("exception", message, types=("builtins.ValueError", "builtins.Exception"), **facts)
    return ItemView(index, f"key-{index}", "failed", make_record(f"key-{index}", "failed", error=error))


def test_failures_are_grouped_with_the_most_frequent_cause_first() -> None:
    items = [failed(0, "no header"), failed(1, "row 17 is short"), failed(2, "row 8 is short")]
    groups = group_failures(items)
    assert [(group.count, group.example, group.keys) for group in groups] == [
        (2, "ValueError: row 17 is short", ("key-1", "key-2")),
        (1, "ValueError: no header", ("key-0",)),
    ]
    assert groups[0].shape == "ValueError: row … is short"


def test_causes_of_equal_frequency_keep_the_order_of_their_items() -> None:
    groups = group_failures([failed(4, "b"), failed(5, "a"), failed(6, "c")])
    assert [group.example for group in groups] == ["ValueError: b", "ValueError: a", "ValueError: c"]


def test_a_status_or_an_exit_code_is_a_fact_and_not_a_number_in_a_message() -> None:
    assert len(group_failures([failed(0, "HTTP 404", status=404), failed(1, "HTTP 500", status=500)])) == 2
    assert len(group_failures([failed(0, "exit 2", exit_code=2), failed(1, "exit 3", exit_code=3)])) == 2


def test_items_that_did_not_fail_are_in_no_group() -> None:
    skipped = ItemView(0, "a", "skipped", make_record("a", "skipped", error=Failure("exception", "no")))
    done = ItemView(2, "c", "done", make_record("c", output=1))
    assert group_failures([skipped, ItemView(1, "b", "pending"), done]) == []


def test_a_group_names_the_line_of_the_user_that_raised_it() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/jobs/agent.py", line 3, in triage\n    parse(item)\n'
        '  File "/jobs/parsing.py", line 12, in parse\n    raise ValueError("x")\nValueError: x\n'
    )
    place = Place("/jobs/parsing.py", 12, "parse", 'raise ValueError("x")')
    assert raised_at(Failure("exception", "x", traceback=trace)) == place
    assert raised_at(Failure("exception", "x")) is None
    (group,) = group_failures([failed(0, "x", traceback=trace)])
    assert (group.raised, group.where) == (place, "parsing.py:12, in parse")


def test_frames_of_installed_packages_and_of_python_itself_are_not_the_users_own() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/jobs/agent.py", line 3, in triage\n    client.create()\n'
        '  File "/jobs/.venv/lib/python3.12/site-packages/openai/_client.py", line 1047, in request\n    raise error\n'
        '  File "/usr/lib/python3.12/asyncio/tasks.py", line 520, in wait_for\n    return await fut\n'
        '  File "<frozen runpy>", line 88, in _run_code\nValueError: x\n'
    )
    place = raised_at(Failure("exception", "x", traceback=trace))
    assert place == Place("/jobs/agent.py", 3, "triage", "client.create()")
    only_theirs = trace.replace("/jobs/agent.py", "/usr/lib/python3/dist-packages/agent.py")
    assert raised_at(Failure("exception", "x", traceback=only_theirs)) is None


def test_what_was_noted_where_it_was_raised_counts_more_than_the_traceback() -> None:
    place = Place("/jobs/agent.py", 3, "", "call()")
    trace = 'Traceback (most recent call last):\n  File "/jobs/other.py", line 9, in f\n    g()\nValueError: x\n'
    assert raised_at(Failure("exception", "x", traceback=trace, raised=place)) == place
    assert str(place) == "agent.py:3"


def test_a_group_is_a_value_that_any_page_can_show() -> None:
    (group,) = group_failures([failed(4, "row 17 is short"), failed(6, "row 8 is short")])
    assert group.as_json() == {
        "group": "ValueError: row … is short",
        "cause": "ValueError: row 17 is short",
        "where": "",
        "raised": None,
        "count": 2,
        "index": 4,
        "keys": ["key-4", "key-6"],
    }
    with pytest.raises(FrozenInstanceError):
        group.shape = "another"  # type: ignore[misc]


def test_a_failure_names_the_group_that_it_is_in_and_has_all_facts() -> None:
    item = failed(4, "row 17 is short", status=422)
    (group,) = group_failures([item])
    shown = FailureView(item).as_json()
    assert list(shown) == ["index", "key", "cause", "group", "attempts", "ended_at", "agent", "error"]
    assert (shown["index"], shown["key"], shown["cause"]) == (4, "key-4", "ValueError: row 17 is short")
    assert shown["group"] == FailureView(item).group == group.as_json()["group"]
    assert shown["error"] == {
        "origin": "exception",
        "message": "row 17 is short",
        "types": ("builtins.ValueError", "builtins.Exception"),
        "status": 422,
    }
