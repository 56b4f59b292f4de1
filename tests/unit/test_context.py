"""What an agent that asks for `ctx` is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agentrun.context import CARRY_LIMIT_BYTES, Context, idempotency_key
from agentrun.executors.port import Attempt
from agentrun.item import Item
from agentrun.jsontext import NotJson


class Recorder:
    def __init__(self) -> None:
        self.logged = ""
        self.told: list[dict[str, Any]] = []

    def log(self, text: str) -> None:
        self.logged += text

    def tell(self, message: dict[str, Any]) -> None:
        self.told.append(message)

    def call(self, message: dict[str, Any]) -> Any:
        return {}


def context(link: Recorder | None = None, *, carry: Any = None, carries: bool = True, **changes: Any) -> Context:
    values: dict[str, Any] = {
        "item": Item(0, "a.txt"),
        "generation": 0,
        "launch": 1,
        "number": 2,
        "run_id": "r1",
        "params": {"customer": "acme"},
        "carry": carry,
        "timeout_seconds": None,
        "log_path": Path("/nowhere"),
    }
    return Context(Attempt(**{**values, **changes}), link or Recorder(), carries=carries)


def test_an_idempotency_key_is_a_uuid_that_only_its_parts_decide() -> None:
    key = idempotency_key("run", "a", 0, "send")
    assert UUID(key).version == 5
    assert key == idempotency_key("run", "a", 0, "send")
    parts = [("run", "a", 0, ""), ("run", "a", 1, "send"), ("run", "b", 0, "send"), ("other", "a", 0, "send")]
    ambiguous = [("run", 'a",0,"send', 0, ""), ("run", "a\x00", 0, "send"), ("runa", "", 0, "send")]
    assert len({key, *(idempotency_key(*part) for part in parts + ambiguous)}) == 8


def test_keys_stay_as_they_are_from_version_to_version() -> None:
    assert idempotency_key("r1", "a.txt", 0, "send") == "6350dc11-1858-5d0c-be75-98f6a2333043"


def test_the_key_is_the_same_in_every_attempt_and_launch() -> None:
    assert context(number=1, launch=1).key("send") == context(number=3, launch=9).key("send")
    assert context().key("send") != context(generation=1).key("send")
    assert context().key() == idempotency_key("r1", "a.txt", 0, "")


def test_it_tells_of_its_attempt() -> None:
    ctx = context()
    assert (ctx.attempt, ctx.run_id, ctx.item.key, ctx.params["customer"]) == (2, "r1", "a.txt", "acme")
    with pytest.raises(TypeError):
        ctx.params["customer"] = "other"  # type: ignore[index]


def test_log_and_progress_go_to_the_runner_until_the_attempt_is_over() -> None:
    link = Recorder()
    ctx = context(link)
    ctx.log("read", 3, "pages")
    ctx.progress("summarising")
    assert link.logged == "read 3 pages\n"
    assert link.told == [{"type": "progress", "text": "summarising"}]
    ctx.close()
    with pytest.raises(RuntimeError, match="is over"):
        ctx.log("late")


def test_the_carry_is_sent_only_if_it_was_changed() -> None:
    ctx = context(carry={"seen": [1]})
    assert ctx.carry_message() is None
    assert ctx.carry["seen"] == [1]
    assert ctx.carry_message() is None
    ctx.carry["seen"].append(2)
    assert ctx.carry_message() == {"type": "carry", "value": {"seen": [1, 2]}}
    ctx.carry = None
    assert ctx.carry_message() == {"type": "carry", "value": None}


def test_what_a_failed_attempt_did_to_the_carry_is_not_seen_by_the_next() -> None:
    before = {"seen": [1]}
    context(carry=before).carry["seen"].append(2)
    assert before == {"seen": [1]}


def test_a_carry_that_is_too_large_or_not_json_is_refused() -> None:
    ctx = context()
    ctx.carry = "x" * (CARRY_LIMIT_BYTES - 2)
    assert ctx.carry_message() is not None
    ctx.carry = "x" * CARRY_LIMIT_BYTES
    with pytest.raises(NotJson, match="65,538 bytes"):
        ctx.carry_message()
    ctx.carry = {"when": {1, 2}}
    with pytest.raises(NotJson, match=r"ctx\.carry\.when"):
        ctx.carry_message()


def test_the_carry_needs_a_job_that_carries() -> None:
    with pytest.raises(AttributeError, match="carry = true"):
        _ = context(carries=False).carry
    with pytest.raises(AttributeError, match="carry = true"):
        context(carries=False).carry = 1
