"""The messages of the channel: well-formed, or refused with the reason; the same after a crossing as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.agents.messages import (
    NAME_LIMIT_BYTES,
    Answer,
    Answered,
    Ask,
    Carry,
    EntriesGet,
    EntryAdd,
    KnownEntries,
    KnownStep,
    Log,
    Message,
    Park,
    Progress,
    Received,
    Refused,
    Reply,
    StepGet,
    StepPut,
    Used,
    Warn,
    read_message,
    read_reply,
)
from agentrun.money.usage import Reported


@pytest.mark.parametrize(
    ("message", "form"),
    [
        (Log("a"), {"type": "log", "text": "a"}),
        (Progress("\ud800"), {"type": "progress", "text": "\ud800"}),
        (Warn("a"), {"type": "warn", "text": "a"}),
        (Carry({"n": 2**70}), {"type": "carry", "value": {"n": 2**70}}),
        (StepGet("a"), {"type": "step_get", "name": "a"}),
        (StepPut("a", 1, "[1]", 0.5), {"type": "step_put", "name": "a", "n": 1, "output": "[1]", "seconds": 0.5}),
        (StepGet("a", "9f"), {"type": "step_get", "name": "a", "request": "9f"}),
        (StepPut("a", 1, "[1]", view="one"), {"type": "step_put", "name": "a", "n": 1, "output": "[1]", "view": "one"}),
        (EntriesGet("a"), {"type": "entries_get", "name": "a"}),
        (EntryAdd("a", "1", "one"), {"type": "entry_add", "name": "a", "output": "1", "view": "one"}),
        (Ask("Send?", {"draft": "b"}), {"type": "ask", "question": "Send?", "details": {"draft": "b"}}),
        (Ask("Send?", {}, "call 1"), {"type": "ask", "question": "Send?", "details": {}, "key": "call 1"}),
    ],
)
def test_a_message_crosses_as_json_with_its_address(message: Message, form: dict[str, Any]) -> None:
    message = replace(message, id="9f86d081884c7d65", no=3)
    form = {**form, "id": "9f86d081884c7d65", "no": 3}
    assert message.as_json() == form
    assert read_message(json.loads(json.dumps(form))) == message
    assert read_message({**form, "of a later version": 1}) == message


@pytest.mark.parametrize("address", [{}, {"id": "a"}, {"no": 1}, {"id": 5, "no": 1}, {"id": "a", "no": "1"}])
def test_half_an_address_is_none(address: dict[str, Any]) -> None:
    assert read_message({"type": "log", "text": "a", **address}) == Log("a")


def test_usage_crosses_with_every_field() -> None:
    given = {"model": "m", "input_tokens": 9, "cache_write_tokens": 4, "cache_write_1h_tokens": 2, "cost": 1}
    used = Used(Reported.read(given), id="9f86d081884c7d65", no=3)
    assert read_message(json.loads(json.dumps(used.as_json()))) == used
    reported = used.reported
    assert (reported.cache_write_1h_tokens, reported.requests, reported.cost) == (2, 1, 1.0)
    assert read_message({"type": "usage", "cost": 0}) == Used(Reported(cost=0.0))


@pytest.mark.parametrize(
    ("reply", "form"),
    [
        (Received(), {}),
        (KnownStep(0, found=False), {"n": 0, "found": False}),
        (KnownStep(2, found=True, output="null"), {"n": 2, "found": True, "output": "null"}),
        (
            Answered(Answer(True, "ok", "ada", "2026-01-01", {"draft": "b"})),
            {"answer": {"yes": True, "text": "ok", "by": "ada", "at": "2026-01-01", "details": {"draft": "b"}}},
        ),
        (KnownEntries(["1", "null"]), {"entries": ["1", "null"]}),
        (Park(), {"park": True}),
        (Refused("no"), {"error": "no"}),
    ],
)
def test_a_reply_crosses_as_json(reply: Reply, form: dict[str, Any]) -> None:
    assert reply.as_json() == form
    assert list(reply.as_json()) == list(form)
    assert read_reply(json.loads(json.dumps(form))) == reply


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "does not know messages of type None"),
        ({"type": "dance"}, "does not know messages of type 'dance'"),
        ({"type": "step_get"}, "a step's name is 'None'"),
        ({"type": "step_get", "name": 5}, "a step's name is '5'"),
        ({"type": "step_get", "name": "x" * (NAME_LIMIT_BYTES + 1)}, "1 to 1024 bytes"),
        ({"type": "step_put", "name": "a", "output": "1"}, "needs n, as step_get gave it"),
        ({"type": "step_put", "name": "a", "n": 0, "output": 1}, "output, which is JSON text"),
        ({"type": "step_get", "name": "a", "request": 5}, "the request of step 'a' must be text"),
        ({"type": "step_get", "name": "a", "request": "x" * 65}, "at most 64 characters"),
        ({"type": "entries_get"}, "a step's name is 'None'"),
        ({"type": "entry_add", "name": "a", "output": 1}, "needs output, which is JSON text"),
        ({"type": "ask", "question": "a", "key": 5}, "the key of a question must be text"),
        ({"type": "ask", "question": "  "}, "not blank"),
        ({"type": "ask", "question": "a", "details": [1]}, "an object with names"),
        ({"type": "ask", "question": "a", "details": {"b": "x" * 1024 * 1024}}, "over 1 MiB"),
        ({"type": "usage"}, "neither tokens nor a cost"),
        ({"type": "usage", "cost": -1}, "cost"),
    ],
)
def test_a_malformed_message_is_refused_with_the_reason(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_message(given)


def test_what_programs_may_leave_out_or_write_loosely_is_accepted() -> None:
    assert read_message({"type": "log"}) == Log("")
    assert read_message({"type": "progress", "text": 3}) == Progress("3")
    assert read_message({"type": "carry"}) == Carry(None)
    assert read_message({"type": "ask", "question": "a"}) == Ask("a", {})
    assert read_message({"type": "ask", "question": "a", "details": []}) == Ask("a", {})
    step = {"type": "step_put", "name": "a", "n": 0, "output": "1", "seconds": "long"}
    assert read_message(step) == StepPut("a", 0, "1")
