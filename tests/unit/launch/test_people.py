"""Questions, answers, and what people post: redo, edit, skip."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import Failure
from agentrun.agents.messages import Answered, Ask
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.message import AnyMessage, decode_message
from agentrun.checkpoint.record import Record
from agentrun.errors import LaterError
from agentrun.events import Warned
from agentrun.launch.launch import Launch
from agentrun.store.port import Store
from unit.launch.bench import FakeExecutor, Hooked, World, answer, counting, failing, names
from unit.launch.test_steps import do_step, with_steps
from waiting import PATIENCE_SECONDS

_ids = itertools.count(1)

another_process_posts = pytest.mark.parametrize("world", ["folder"], indirect=True)
"""The memory store is for one process."""


def message(world: World, kind: str, key: str, *, gen: int = 0, run_id: str = "", **more: Any) -> AnyMessage:
    if not run_id:
        with world.store().reader() as reader:
            run_id = reader.run_id
    about = {"version": 1, "id": f"{next(_ids):016x}", "kind": kind, "run_id": run_id, "key": key, "gen": gen}
    return decode_message(orjson.dumps({**about, "by": "reviewer", "at": "2026-11-01T10:00:00Z", **more}))


def reply(world: World, key: str, *, yes: bool = True, question: int = 1, gen: int = 0, **more: Any) -> AnyMessage:
    given = {"yes": yes, "text": more.pop("text", ""), "details": more.pop("details", {})}
    return message(world, "answer", key, gen=gen, question=question, answer=given, **more)


def post(world: World, *messages: AnyMessage) -> None:
    world.store().post(list(messages))


def left(world: World) -> int:
    return len(world.store().inbox())


async def asking(attempt: Attempt, channel: Channel) -> Outcome:
    """Asks once, and tells what it was answered."""
    reply = await channel(Ask("Send it?", {"draft": f"draft of {attempt.item.key}"}))
    if not isinstance(reply, Answered):
        return Outcome("waiting")
    return Outcome("done", orjson.dumps(reply.answer))


def outputs(world: World) -> dict[str, Any]:
    return {line["key"]: line["output"] for line in world.results()}


def seq_of(world: World, key: str) -> int:
    return max(record.seq for record in world.records() if record.key == key)


# ---- questions


def test_an_item_that_asks_is_parked_while_others_go_on_and_nothing_else_left_is_exit_3(world: World) -> None:
    world.items(*names(4))

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        return await (asking if attempt.item.key in ("k000", "k002") else answer)(attempt, channel)

    summary = world.go(script)
    assert summary.exit_code == 3
    assert summary.counts == {"pending": 0, "done": 2, "failed": 0, "skipped": 0, "waiting": 2}
    assert [one.key for one in summary.questions] == ["k000", "k002"]
    assert summary.questions[0].text == "Send it?"
    assert world.keys("out.partial.jsonl") == ["k001", "k003"]
    # Launched again without an answer, nothing is run.
    assert world.go(script).exit_code == 3
    assert world.ran == []
    post(world, reply(world, "k000"), reply(world, "k002", yes=False, text="too long", details={"draft": "shorter"}))
    assert world.go(script).exit_code == 0
    assert world.ran == ["k000", "k002"]
    assert outputs(world)["k000"] == {
        "yes": True,
        "text": "",
        "by": "reviewer",
        "at": "2026-11-01T10:00:00Z",
        "details": {"draft": "draft of k000"},
    }
    refused = outputs(world)["k002"]
    assert (refused["yes"], refused["text"], refused["details"]) == (False, "too long", {"draft": "shorter"})
    assert left(world) == 0


def test_what_an_agent_makes_without_its_answer_does_not_count(world: World) -> None:
    world.items("x")

    async def goes_on(attempt: Attempt, channel: Channel) -> Outcome:
        await channel(Ask("Send it?", {}))
        return Outcome("done", b'"sent anyway"')

    assert world.go(goes_on).exit_code == 3


def test_a_second_question_waits_for_its_own_answer_and_another_text_is_another_question(world: World) -> None:
    world.items("x")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        answers = []
        for question in ("First?", "Second?", "First?"):
            reply = await channel(Ask(question, {}))
            if not isinstance(reply, Answered):
                return Outcome("waiting")
            answers.append(reply.answer.text)
        return Outcome("done", orjson.dumps(answers))

    assert world.go(script).exit_code == 3
    for number in (1, 2, 3):
        # One for a question that is not asked yet does not apply.
        post(world, reply(world, "x", question=number, text=f"answer {number}"))
        post(world, reply(world, "x", question=number + 5, text="nonsense"))
        assert world.go(script).exit_code == (0 if number == 3 else 3)
        assert left(world) == 0
    assert outputs(world) == {"x": ["answer 1", "answer 2", "answer 3"]}


def test_the_first_answer_wins_and_a_message_taken_in_twice_does_no_harm(world: World) -> None:
    world.items("x", "y")
    assert world.go(asking).exit_code == 3
    first = reply(world, "x", text="first")
    post(world, first, reply(world, "x", text="second"))
    assert world.go(asking).exit_code == 3
    post(world, first)
    assert world.go(asking).exit_code == 3
    assert world.ran == []
    post(world, reply(world, "y"))
    assert world.go(asking).exit_code == 0
    assert outputs(world)["x"]["text"] == "first"
    assert left(world) == 0


@pytest.mark.parametrize("landed", [False, True])
def test_an_answer_is_never_lost_wherever_the_launch_dies(world: World, landed: bool) -> None:
    for commits in range(1, 7):
        world.clear()
        world.items("x", "y")
        assert world.go(asking, overwrite=True).exit_code == 3
        post(world, reply(world, "x", text="one"), reply(world, "y", text="two"))
        world.crash(asking, commits=commits, landed=landed, overwrite=True)
        summary = world.go(asking, overwrite=True)
        assert summary.exit_code == 0, (commits, landed, summary)
        assert [outputs(world)[key]["text"] for key in ("x", "y")] == ["one", "two"]
        assert left(world) == 0


@another_process_posts
def test_an_answer_that_comes_while_a_runner_works_is_taken_in_and_its_item_goes_on(world: World) -> None:
    world.items("x", "y")
    world.job = replace(world.job, concurrency=2)
    gate = asyncio.Event

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "x":
            outcome = await asking(attempt, channel)
            if outcome.kind == "done":
                released.set()
            return outcome
        await asyncio.wait_for(released.wait(), PATIENCE_SECONDS)
        return await answer(attempt, channel)

    released = gate()

    async def person(launch: Launch) -> None:
        while not launch.progress.waiting:
            await asyncio.sleep(0.01)
        post(world, reply(world, "x", text="now"))

    assert world.go(script, during=person).exit_code == 0
    assert outputs(world)["x"]["text"] == "now"
    assert left(world) == 0


def taking_back(names_seen: list[str]) -> Callable[[Hooked], None]:
    """Somebody takes the first message back, right before the runner claims what it has read."""

    def hook(hooked: Hooked) -> None:
        assert isinstance(hooked, Store)
        store, claim = hooked, hooked.claim

        def interfere(names: Iterable[str]) -> set[str]:
            found = list(names)
            if found and not names_seen:
                names_seen.append(found[0])
                assert store.withdraw(found[0])
            return claim(found)

        setattr(store, "claim", interfere)  # noqa: B010

    return hook


def test_what_is_taken_back_while_a_launch_begins_is_not_processed(world: World) -> None:
    world.items("x", "y")
    assert world.go(asking).exit_code == 3
    post(world, reply(world, "x"), reply(world, "y"))
    before = world.state()
    world.hook = taking_back([])
    try:
        with pytest.raises(LaterError, match="taken back while this launch began"):
            world.go(asking)
    finally:
        world.hook = lambda store: None
    after = world.state()
    assert before is not None and after is not None and after.seq == before.seq and left(world) == 1
    summary = world.go(asking)
    assert (summary.exit_code, summary.counts["done"], summary.counts["waiting"]) == (3, 1, 1)
    assert left(world) == 0


def test_what_is_taken_back_while_a_runner_works_is_not_processed(world: World) -> None:
    world.items("x", "y")
    released, withdrawn = asyncio.Event(), list[str]()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "x":
            return await asking(attempt, channel)
        await asyncio.wait_for(released.wait(), PATIENCE_SECONDS)
        return await answer(attempt, channel)

    async def person(launch: Launch) -> None:
        while not launch.progress.waiting:
            await asyncio.sleep(0.01)
        post(world, reply(world, "x"))
        while not withdrawn:
            await asyncio.sleep(0.01)
        released.set()

    world.hook = taking_back(withdrawn)
    summary = world.go(script, during=person)
    assert (summary.exit_code, summary.counts["waiting"], left(world)) == (3, 1, 0)


def test_a_question_waits_with_the_steps_before_it(world: World) -> None:
    calls: Counter[str] = Counter()
    world.items("x")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        draft = await do_step(channel, "draft", "a draft", calls, "x")
        reply = await channel(Ask("Send?", {"draft": draft}))
        if not isinstance(reply, Answered):
            return Outcome("waiting")
        sent = await do_step(channel, "send", reply.answer["draft"], calls, "x")
        return Outcome("done", orjson.dumps(sent))

    assert world.go(script).exit_code == 3
    post(world, reply(world, "x", details={"draft": "as edited"}))
    assert world.go(script).exit_code == 0
    assert calls == {"x draft 0": 1, "x send 0": 1}
    assert outputs(world) == {"x": "as edited"}


# ---- redo


def test_redo_begins_a_new_generation_at_the_next_launch(world: World) -> None:
    world.items(*names(4))
    assert world.go(limit=3).exit_code == 4
    post(world, message(world, "redo", "k001", keep_before=None, now=False))
    generations: dict[str, int] = {}

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        generations[attempt.item.key] = attempt.generation
        return await answer(attempt, channel)

    assert world.go(script).exit_code == 0
    assert generations == {"k001": 1, "k003": 0}
    assert world.keys() == names(4)


def test_redo_is_done_once_wherever_the_launch_dies(world: World) -> None:
    for landed in (False, True):
        for commits in range(1, 6):
            world.clear()
            world.items(*names(3))
            assert world.go(limit=2, overwrite=True).exit_code == 4
            post(world, message(world, "redo", "k000", keep_before=None, now=False))
            generations: list[tuple[str, int]] = []

            async def script(attempt: Attempt, channel: Channel, seen: list[tuple[str, int]] = generations) -> Outcome:
                seen.append((attempt.item.key, attempt.generation))
                return await answer(attempt, channel)

            world.crash(script, commits=commits, landed=landed, overwrite=True)
            assert world.go(script, overwrite=True).exit_code == 0
            assert world.keys() == names(3)
            assert {generation for key, generation in generations if key == "k000"} == {1}
            assert left(world) == 0


def test_redo_of_a_set_aside_or_failed_item_tries_it_again(world: World) -> None:
    world.items("x")
    for _ in range(3):
        assert world.go(lambda attempt, channel: _fails()).exit_code == 1
    assert world.go().exit_code == 1
    assert world.ran == []
    post(world, message(world, "redo", "x", keep_before=None, now=False))
    assert world.go().exit_code == 0


async def _fails() -> Outcome:
    return failing()


def test_redo_on_a_finished_run_opens_a_new_one_that_begins_with_its_records(world: World) -> None:
    world.items(*names(3))
    first = world.go()
    post(world, message(world, "redo", "k001", keep_before=None, now=False))
    summary = world.go(resume=True)
    assert summary.exit_code == 0
    assert summary.run_id != first.run_id
    assert world.ran == ["k001"]
    assert world.keys() == names(3)
    assert left(world) == 0
    # And there is nothing left to do.
    assert world.go(resume=True).nothing_to_do


def test_redo_with_steps_keeps_those_before_the_named_one(world: World) -> None:
    calls: Counter[str] = Counter()
    script = with_steps(calls, "a", "b", "c")
    world.items("x", "y")
    assert world.go(script).exit_code == 0
    post(world, message(world, "redo", "x", keep_before="b", now=False))
    assert world.go(script).exit_code == 0
    assert calls == {"x a 0": 1, "x b 0": 2, "x c 0": 2, "y a 0": 1, "y b 0": 1, "y c 0": 1}


@another_process_posts
def test_redo_now_is_taken_in_by_a_runner_at_work(world: World) -> None:
    world.items("x", "y")
    runs: Counter[str] = Counter()
    again = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        runs[attempt.item.key] += 1
        if attempt.item.key == "x" and runs["x"] == 2:
            again.set()
        if attempt.item.key == "y":
            await asyncio.wait_for(again.wait(), PATIENCE_SECONDS)
        return await answer(attempt, channel)

    async def person(launch: Launch) -> None:
        while not launch.progress.done:
            await asyncio.sleep(0.01)
        later = message(world, "redo", "x", keep_before=None, now=False)
        post(world, later, message(world, "redo", "x", keep_before=None, now=True))

    world.job = replace(world.job, concurrency=2)
    assert world.go(script, during=person).exit_code == 0
    assert runs == {"x": 2, "y": 1}
    # The one without --now was for the generation before; it does not apply any more.
    assert world.go(resume=True).exit_code == 0
    assert left(world) == 0


@another_process_posts
def test_redo_now_of_one_that_changed_under_way_and_was_kept_runs_it_as_it_is_now(world: World) -> None:
    world.items("w", "x", "y")
    runs: Counter[str] = Counter()
    again = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        runs[key] += 1
        if key == "w":
            return Outcome("failed", failure=Failure("output", "never"))
        if key == "y":
            # Found by the listing after this round: x is another, and kept; z is new.
            world.items("w", "x", "y", "z", x=5)
        if key == "x" and runs["x"] == 2:
            again.set()
        if key == "z":
            post(world, message(world, "redo", "x", keep_before=None, now=True))
            await asyncio.wait_for(again.wait(), PATIENCE_SECONDS)
        return await answer(attempt, channel)

    world.job = replace(world.job, concurrency=2, keep_changed=True)
    assert world.go(script).exit_code == 1
    assert runs == {"w": 1, "x": 2, "y": 1, "z": 1}
    world.job = replace(world.job, keep_changed=False)
    assert world.go().exit_code == 0
    assert world.ran == ["w"]
    assert outputs(world)["x"] == {"of": 5}


# ---- edit and skip


def test_an_edited_output_is_kept_marked_and_never_run_over(world: World) -> None:
    world.items("x", "y")
    assert world.go(limit=1).exit_code == 4
    post(world, message(world, "edit", "x", seq=seq_of(world, "x"), output={"by": "hand"}))
    assert world.go(limit=1).exit_code == 0
    assert outputs(world)["x"] == {"by": "hand"}
    world.items("x", "y", "z")
    assert world.go(overwrite=True).exit_code == 0


def test_an_edited_output_is_kept_though_its_item_changes(world: World) -> None:
    world.items("x", "y", "z")
    assert world.go(limit=2).exit_code == 4
    post(world, message(world, "edit", "x", seq=seq_of(world, "x"), output="mine"))
    world.items("x", "y", "z", x=5, y=6)
    assert world.go().exit_code == 0
    assert world.ran == ["y", "z"]
    assert outputs(world)["x"] == "mine"


@pytest.mark.parametrize("why", ["edited", "kept as they are"])
def test_redo_of_one_that_changed_and_was_kept_runs_it_once_as_it_is_now(world: World, why: str) -> None:
    world.items("x", "y", "z")
    assert world.go(limit=2).exit_code == 4
    if why == "edited":
        post(world, message(world, "edit", "x", seq=seq_of(world, "x"), output="mine"))
    else:
        world.job = replace(world.job, keep_changed=True)
    world.items("x", "y", "z", x=5)
    assert world.go(limit=0).exit_code == 4
    post(world, message(world, "redo", "x", keep_before=None, now=False))
    assert world.go(limit=1).exit_code == 4
    assert world.ran == ["x"]
    # Its record is of what it was run with: to the next launch it has not changed.
    world.job = replace(world.job, keep_changed=False)
    assert world.go().exit_code == 0
    assert world.ran == ["z"]
    assert outputs(world)["x"] == {"of": 5}


def test_an_edit_of_a_result_that_is_another_by_now_is_dropped_and_said(world: World) -> None:
    world.items("x", "y")
    assert world.go(limit=1).exit_code == 4
    post(world, message(world, "edit", "x", seq=seq_of(world, "x") + 1, output="stale"))
    assert world.go().exit_code == 0
    assert outputs(world)["x"] == {"of": "value of x"}
    assert any(isinstance(event, Warned) and "another result" in event.text for event in world.events)


def test_edit_on_a_finished_run_writes_the_results_anew_and_runs_nothing(world: World) -> None:
    world.items("x", "y")
    assert world.go().exit_code == 0
    post(world, message(world, "edit", "y", seq=seq_of(world, "y"), output=[1]))
    assert world.go(resume=True).exit_code == 0
    assert world.ran == []
    assert outputs(world) == {"x": {"of": "value of x"}, "y": [1]}


def test_skip_settles_failed_waiting_and_pending_items_and_completes_the_run(world: World) -> None:
    world.items("f", "w", "p", "d")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "f":
            return failing()
        return await (asking if attempt.item.key == "w" else answer)(attempt, channel)

    assert world.go(script, limit=2).exit_code == 4
    post(world, *(message(world, "skip", key, reason="not needed") for key in ("f", "w", "p")))
    summary = world.go(script)
    assert summary.exit_code == 0
    assert summary.counts["skipped"] == 3
    assert world.ran == ["d"]
    assert world.keys() == ["d"]


def test_skip_of_a_done_item_and_messages_of_another_run_do_not_apply(world: World) -> None:
    world.items("x", "y")
    assert world.go(limit=1).exit_code == 4
    post(
        world,
        message(world, "skip", "x", reason=""),
        message(world, "skip", "y", reason="", run_id="20200101-000000-abcd"),
        message(world, "skip", "nobody", reason=""),
    )
    assert world.go().exit_code == 0
    assert world.keys() == ["x", "y"]
    assert left(world) == 0


def test_no_message_is_removed_before_its_record_is_on_disk(world: World) -> None:
    world.items("x", "y")
    assert world.go(asking).exit_code == 3
    post(world, reply(world, "x"), reply(world, "y"))
    seen: list[tuple[int, int]] = []

    def hook(store: Hooked) -> None:
        def before(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
            answers = [record.kind for record in records].count("answer")
            seen.append((len(store.inbox()), answers))  # type: ignore[attr-defined]

        store.before = before

    world.hook = hook
    assert world.go(asking).exit_code == 0
    assert sum(answers for _, answers in seen) == 2
    landed = 0
    for waiting, answers in seen:
        assert waiting >= 2 - landed or not answers
        landed += answers


# ---- with a carry


def test_with_a_carry_nothing_goes_past_an_item_that_waits(world: World) -> None:
    world.job = replace(world.job, carry=True)
    world.items(*names(4))

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k001":
            outcome = await asking(attempt, channel)
            if outcome.kind == "waiting":
                return outcome
        return await counting(attempt, channel)

    assert world.go(script).exit_code == 3
    assert world.ran == ["k000", "k001"]
    assert world.go(script).exit_code == 3
    assert world.ran == []
    post(world, reply(world, "k001"))
    assert world.go(script).exit_code == 0
    assert world.ran == ["k001", "k002", "k003"]
    assert outputs(world)["k003"]["before"] == [f"value of {key}" for key in names(3)]


def test_with_a_carry_an_edited_output_keeps_what_follows_and_an_edited_carry_runs_it_again(world: World) -> None:
    world.job = replace(world.job, carry=True)
    world.items(*names(5))
    assert world.go(counting, limit=4).exit_code == 4
    post(world, message(world, "edit", "k001", seq=seq_of(world, "k001"), output="by hand"))
    assert world.go(counting, limit=1).exit_code == 0
    assert world.ran == ["k004"]
    assert outputs(world)["k001"] == "by hand"

    world.items(*names(6))
    assert world.go(counting, limit=4, fresh=True).exit_code == 4
    post(world, message(world, "edit", "k002", seq=seq_of(world, "k002"), carry=["anew"]))
    assert world.go(counting).exit_code == 0
    assert world.ran == ["k003", "k004", "k005"]
    assert outputs(world)["k005"]["before"] == ["anew", "value of k003", "value of k004"]


def test_with_a_carry_redo_goes_back_to_the_item(world: World) -> None:
    world.job = replace(world.job, carry=True)
    world.items(*names(5))
    assert world.go(counting, limit=4).exit_code == 4
    post(world, message(world, "redo", "k002", keep_before=None, now=False))
    assert world.go(counting).exit_code == 0
    assert world.ran == ["k002", "k003", "k004"]


@another_process_posts
def test_never_two_attempts_of_an_item_though_answers_and_redo_come_at_any_time(world: World) -> None:
    world.items(*names(12))
    world.job = replace(world.job, concurrency=3)
    stop = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await asyncio.sleep(0.01)
        if attempt.item.key == "k011":
            await asyncio.wait_for(stop.wait(), PATIENCE_SECONDS)
        return await asking(attempt, channel)

    async def person(launch: Launch) -> None:
        for turn in range(3):
            while launch.progress.waiting < 11 - 3 * turn:
                await asyncio.sleep(0.02)
            for key in names(11)[3 * turn : 3 * turn + 3]:
                post(world, reply(world, key), reply(world, key, text="late"))
            while launch.progress.done < 3 * turn + 3:
                await asyncio.sleep(0.02)
        stop.set()

    executor = FakeExecutor(script)
    assert world.go(executor=executor, during=person).exit_code == 3
    assert Counter(executor.began) == {key: 2 if key in names(9) else 1 for key in names(12)}


@pytest.mark.parametrize("concurrency", [1, 2, 4])
def test_answers_that_came_last_are_taken_in_before_the_launch_ends_and_begun_once(
    world: World, concurrency: int
) -> None:
    world.items(*names(5), "last")
    world.job = replace(world.job, concurrency=concurrency)
    asked = names(5)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key != "last":
            return await asking(attempt, channel)
        while world.launch is None or world.launch.progress.waiting < 5:
            await asyncio.sleep(0.001)
        post(world, *(reply(world, key) for key in asked))
        return await answer(attempt, channel)

    executor = FakeExecutor(script)
    assert world.go(executor=executor).exit_code == 0
    assert Counter(executor.began) == {**dict.fromkeys(asked, 2), "last": 1}
    assert left(world) == 0


@another_process_posts
def test_steps_that_redo_keeps_are_there_before_the_item_begins_also_at_once(world: World) -> None:
    """In one checkpoint with the word that it begins anew, or the item would begin without them."""
    calls: Counter[str] = Counter()
    world.items("x", "y", "last")
    world.job = replace(world.job, concurrency=2)
    steps = with_steps(calls, "a", "b")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        while attempt.item.key == "last" and (calls["x b 0"] < 2 or calls["y b 0"] < 2):
            await asyncio.sleep(0.01)
        return await steps(attempt, channel)

    async def person(launch: Launch) -> None:
        while launch.progress.done < 2:
            await asyncio.sleep(0.01)
        post(world, *(message(world, "redo", key, keep_before="b", now=True) for key in ("x", "y")))

    assert world.go(script, during=person).exit_code == 0
    assert (calls["x a 0"], calls["y a 0"], calls["x b 0"], calls["y b 0"]) == (1, 1, 2, 2)


@another_process_posts
def test_what_is_posted_while_a_suspect_of_crashes_runs_alone_is_taken_in(world: World) -> None:
    world.items("asks", "suspect")

    async def dies(attempt: Attempt, channel: Channel) -> Outcome:
        return await (asking if attempt.item.key == "asks" else answer)(attempt, channel)

    for commits in (2, 1):
        world.crash(dies, commits=commits)
    answered = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "asks":
            return await asking(attempt, channel)
        assert world.launch is not None
        post(world, reply(world, "asks"))
        while world.launch.progress.waiting:
            await asyncio.sleep(0.01)
        answered.set()
        return await answer(attempt, channel)

    assert world.go(script).exit_code == 0
    assert answered.is_set() and world.ran[-2:] == ["suspect", "asks"]
