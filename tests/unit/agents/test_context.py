"""What an agent that asks for `ctx` is given."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import pytest

from agentrun.agents.attempt import Attempt
from agentrun.agents.context import CARRY_LIMIT_BYTES, NAMESPACE, Context, idempotency_key
from agentrun.agents.messages import (
    Answer,
    Answered,
    Ask,
    Carry,
    KnownStep,
    Message,
    Park,
    Progress,
    Received,
    Refused,
    Reply,
    StepGet,
    StepPut,
    Used,
)
from agentrun.errors import Parked
from agentrun.item import Item
from agentrun.money.usage import Reported
from agentrun.values.json import NotJson


class Recorder:
    """An agent end with a runner behind it: a step that is put is found again."""

    awaits = False

    def __init__(self) -> None:
        self.logged = ""
        self.sent: list[Message] = []
        self.steps: dict[str, str] = {}
        self.answer: Answer | None = None
        self.error = ""

    def log(self, text: str) -> None:
        self.logged += text

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def call(self, message: Message) -> Any:
        return self.reply(message)

    def reply(self, message: Message) -> Reply:
        self.sent.append(message)
        if self.error:
            return Refused(self.error)
        match message:
            case StepGet(name):
                found = self.steps.get(name)
                return KnownStep(0, found is not None, found)
            case StepPut(name, _, output):
                self.steps[name] = output
            case Ask():
                return Park() if self.answer is None else Answered(self.answer)
        return Received()


class AsyncRecorder(Recorder):
    awaits = True

    async def call(self, message: Message) -> Any:
        return self.reply(message)


def context(end: Recorder | None = None, *, carry: Any = None, carries: bool = True, **changes: Any) -> Context:
    values: dict[str, Any] = {
        "item": Item(0, "a.txt"),
        "generation": 0,
        "launch": 1,
        "number": 2,
        "run_id": "r2",
        "series": "r1",
        "params": {"customer": "acme"},
        "carry": carry,
        "timeout_seconds": None,
        "log_path": Path("/nowhere"),
    }
    return Context(Attempt(**{**values, **changes}), end or Recorder(), carries=carries)


@pytest.mark.parametrize("key", ["a", "item 1", 'of "quotes", \\ and \n', "ü 𝄞", "\ud800"])
def test_an_idempotency_key_stays_what_it_always_was(key: str) -> None:
    for generation in (0, 3):
        named = json.dumps(["run", key, generation, "send"])
        assert idempotency_key("run", key, generation, "send") == str(uuid5(NAMESPACE, named))


def test_an_idempotency_key_is_a_uuid_that_only_its_parts_decide() -> None:
    key = idempotency_key("run", "a", 0, "send")
    assert UUID(key).version == 5
    assert key == idempotency_key("run", "a", 0, "send")
    parts = [("run", "a", 0, ""), ("run", "a", 1, "send"), ("run", "b", 0, "send"), ("other", "a", 0, "send")]
    ambiguous = [("run", 'a",0,"send', 0, ""), ("run", "a\x00", 0, "send"), ("runa", "", 0, "send")]
    assert len({key, *(idempotency_key(*part) for part in parts + ambiguous)}) == 8


def test_keys_stay_as_they_are_from_version_to_version() -> None:
    assert idempotency_key("r1", "a.txt", 0, "send") == "6350dc11-1858-5d0c-be75-98f6a2333043"


def test_the_key_is_the_same_in_every_attempt_launch_and_run_of_a_series() -> None:
    assert context(number=1, launch=1).key("send") == context(number=3, launch=9, run_id="r7").key("send")
    assert context().key("send") != context(generation=1).key("send")
    assert context().key() == idempotency_key("r1", "a.txt", 0, "")


def test_it_tells_of_its_attempt() -> None:
    ctx = context()
    assert (ctx.attempt, ctx.run_id, ctx.item.key, ctx.params["customer"]) == (2, "r2", "a.txt", "acme")
    with pytest.raises(TypeError):
        ctx.params["customer"] = "other"  # type: ignore[index]


def test_log_and_progress_go_to_the_runner_until_the_attempt_is_over() -> None:
    end = Recorder()
    ctx = context(end)
    ctx.log("read", 3, "pages")
    ctx.progress("summarising")
    assert end.logged == "read 3 pages\n"
    assert end.sent == [Progress("summarising")]
    ctx.close()
    with pytest.raises(RuntimeError, match="is over"):
        ctx.log("late")


def test_the_carry_is_sent_only_if_it_was_changed() -> None:
    ctx = context(carry={"seen": [1]})
    assert ctx.carry_message() is None
    assert ctx.carry["seen"] == [1]
    assert ctx.carry_message() is None
    ctx.carry["seen"].append(2)
    assert ctx.carry_message() == Carry({"seen": [1, 2]})
    ctx.carry = None
    assert ctx.carry_message() == Carry(None)


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


# ---- steps


def test_a_step_is_called_once_and_gives_the_same_the_first_time_as_ever_after() -> None:
    end, calls = Recorder(), []

    def search(text: str, *, most: int) -> Any:
        calls.append(text)
        return {"hits": (text, most)}

    first = context(end).step("search", search, "a", most=3)
    again = context(end).step("search", search, "a", most=3)
    assert first == again == {"hits": ["a", 3]}
    assert calls == ["a"]


def test_an_async_agent_awaits_its_steps_of_plain_and_async_functions() -> None:
    end, calls = AsyncRecorder(), []

    async def fetch(n: int) -> int:
        calls.append(n)
        return n + 1

    async def agent(ctx: Context) -> list[Any]:
        return [await ctx.step("fetch", fetch, 1), await ctx.step("sum", sum, (1, 2))]

    assert asyncio.run(agent(context(end))) == asyncio.run(agent(context(end))) == [2, 3]
    assert calls == [1]


def test_a_step_result_that_json_cannot_hold_is_an_error_that_names_the_step() -> None:
    end = Recorder()
    with pytest.raises(NotJson, match=r"step 'search'.*object"):
        context(end).step("search", lambda: object())
    assert not end.steps


def test_an_async_function_in_a_sync_agent_is_refused_with_what_would_do() -> None:
    async def fetch() -> None: ...

    with pytest.raises(TypeError, match="make the agent async"):
        context().step("fetch", fetch)


def test_what_the_runner_refuses_is_raised() -> None:
    end = Recorder()
    end.error = "the item has too many steps"
    with pytest.raises(RuntimeError, match="too many steps"):
        context(end).step("search", int)


def test_a_message_that_makes_no_sense_is_refused_where_it_is_made() -> None:
    end = Recorder()
    with pytest.raises(ValueError, match="a step's name is ''"):
        context(end).step("", int)
    with pytest.raises(ValueError, match="not blank"):
        context(end).ask("  ")
    assert end.sent == []


# ---- people


def test_a_question_without_an_answer_parks_past_except_exception() -> None:
    end = Recorder()

    def agent(ctx: Context) -> Any:
        try:
            return ctx.ask("Send it?", draft="a")
        except Exception:
            return "swallowed"

    with pytest.raises(Parked):
        agent(context(end))
    assert end.sent == [Ask("Send it?", {"draft": "a"})]


def test_an_answer_is_true_if_approved_and_has_the_details_as_edited() -> None:
    end = Recorder()
    given = Answer(True, "fine", "ada", "2026-11-01T10:00:00Z", {"draft": "b"})
    end.answer = given
    answer = context(end).ask("Send it?", draft="a")
    assert isinstance(answer, Answer) and answer
    assert (answer.text, answer.by, answer.at, answer["draft"]) == ("fine", "ada", "2026-11-01T10:00:00Z", "b")
    end.answer = replace(given, yes=False)
    assert not context(end).ask("Send it?", draft="a")

    async def agent(ctx: Context) -> Any:
        return await ctx.ask("Send it?", question="a detail may have any name")

    waiting = AsyncRecorder()
    waiting.answer = given
    assert asyncio.run(agent(context(waiting)))["draft"] == "b"


# ---- money and files


def test_usage_is_told_at_once_and_may_be_awaited_or_not() -> None:
    end = AsyncRecorder()

    async def agent(ctx: Context) -> None:
        ctx.usage(cost=0.25)
        await ctx.usage(model="m", input_tokens=3, output_tokens=4)
        ctx.usage({"model": "gpt-x", "usage": {"prompt_tokens": 5, "completion_tokens": 6}}, cost=1)

    asyncio.run(agent(context(end)))
    first, second, third = end.sent
    assert first == Used(Reported(cost=0.25))
    assert second == Used(Reported(model="m", input_tokens=3, output_tokens=4))
    assert isinstance(third, Used)
    assert (third.reported.cost, third.reported.input_tokens, third.reported.model) == (1.0, 5, "gpt-x")
    with pytest.raises(ValueError, match="cost"):
        context(end).usage(cost=-1)


def test_an_items_folders_are_made_when_they_are_asked_for(tmp_path: Path) -> None:
    ctx = context(folder=str(tmp_path / "work"))
    assert not ctx.made_files
    assert not (tmp_path / "work").exists()
    (ctx.out / "letter.txt").write_text("x")
    assert ctx.dir.is_dir()
    assert ctx.made_files
    assert ctx.dir.parent == ctx.out.parent
    assert ctx.out.stat().st_mode & 0o777 == 0o700
    ctx.close()
    with pytest.raises(RuntimeError, match="over"):
        _ = ctx.dir
