from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome, addressed, call_json
from agentrun.agents.failure import THREAD_TIMEOUT, Failure
from agentrun.agents.messages import Ask, Carry, Log, Received, Refused, Reply, Stray
from agentrun.checkpoint.checkpoint import Checkpoint, RunContext
from agentrun.checkpoint.ledger import Ledger
from agentrun.events import Event, Retrying, Warned
from agentrun.item import Item
from agentrun.job.job import ItemsSpec, Job
from agentrun.launch.attempts import BACKOFF_MOST_SECONDS, Attempts
from agentrun.outputs.files import ItemFiles
from agentrun.outputs.logs import ItemLogs, log_name
from agentrun.runs.plan import Plan
from agentrun.runs.run import Run
from agentrun.runs.units import Ended, Work
from agentrun.values.units import parse_rate

DONE = Outcome("done", b'"yes"')
TRANSIENT = Outcome("failed", failure=Failure("exception", "busy", types=("builtins.ConnectionError",)))
ITEMS_OWN = Outcome("failed", failure=Failure("exception", "no", types=("agentrun.errors.Fail",)))
EVERYONES = Outcome("failed", failure=Failure("exception", "no key", types=("agentrun.errors.Stop",)))
TIMEOUT = Outcome("failed", failure=Failure("timeout", "timed out after 2 s"))
LOST = Outcome("lost")


def asks_to_wait(seconds: float) -> Outcome:
    failure = Failure("exception", "busy", types=("agentrun.errors.Retry",), retry_after_seconds=seconds)
    return Outcome("failed", failure=failure)


class Scripted:
    """Ends its attempts as the script says, the last one for ever."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = outcomes
        self.attempts: list[Attempt] = []
        self.on_run: Callable[[Attempt, Channel], Awaitable[None]] | None = None
        self.addresses = True

    async def start(self) -> None:
        pass

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        self.attempts.append(attempt)
        if self.on_run is not None:
            await self.on_run(attempt, addressed(attempt.id, channel) if self.addresses else channel)
        return self.outcomes[min(len(self.attempts), len(self.outcomes)) - 1]

    async def rest(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def _refuse(_: object) -> NoReturn:
    raise AssertionError("there are no steps here")


class EndlessSleep:
    """The wait before a retry, from which only a cancellation wakes."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.begun.set()
        await asyncio.Event().wait()


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.carry: Any = None
        self.waits: list[float] = []
        self.now = 1_800_000_000.0
        self.events: list[Event] = []
        self.sleep: Callable[[float], Coroutine[Any, Any, None]] = self.note
        self.job = Job(
            name="job",
            base=folder,
            items=ItemsSpec(kind="lines", pattern="-"),
            agent="a.py:f",
            params={"customer": "acme"},
            output="out.jsonl",
            timeout_seconds=2.0,
        )

    async def note(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def attempts(self, executor: Scripted) -> Attempts:
        checkpoint = Checkpoint(job="job", run_id="r1", context=RunContext(launches=4, date="2026-05-04"))
        ledger = Ledger()
        ledger.generations[0] = 2
        return Attempts(
            executor,
            self.job,
            run=Run(self.job, "v1", checkpoint, False, ledger, Plan(), carry=self.carry),
            launch=4,
            commit=_refuse,
            recall=_refuse,
            logs=ItemLogs(self.folder),
            files=ItemFiles(self.folder),
            watcher=self.events.append,
            sleep=self.sleep,
            wall_clock=lambda: self.now,
        )

    def settle(self, executor: Scripted, *, attempts: Attempts | None = None) -> Coroutine[Any, Any, Ended]:
        attempts = attempts or self.attempts(executor)
        return attempts.settle(0, Work(0, Item(7, "a", line="a")))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_one_attempt_is_enough_when_it_is_done(bench: Bench) -> None:
    executor = Scripted(DONE)
    bench.carry = [1]
    ended = asyncio.run(bench.settle(executor))
    assert (ended.kind, ended.output) == ("done", b'"yes"')
    assert [(one.launch, one.number) for one in ended.tries] == [(4, 1)]
    (attempt,) = executor.attempts
    assert (attempt.item.key, attempt.generation, attempt.launch, attempt.number) == ("a", 2, 4, 1)
    assert (attempt.params, attempt.carry, attempt.timeout_seconds, attempt.run_id) == (
        {"customer": "acme"},
        [1],
        2.0,
        "r1",
    )
    assert bench.waits == [] and bench.events == []


def test_what_is_transient_is_tried_again_with_growing_waits(bench: Bench) -> None:
    bench.job = replace(bench.job, retries=12)
    executor = Scripted(TRANSIENT)
    ended = asyncio.run(bench.settle(executor))
    assert ended.kind == "failed" and len(ended.tries) == 13
    assert [attempt.number for attempt in executor.attempts] == list(range(1, 14))
    for number, wait in enumerate(bench.waits):
        bound = min(2.0**number, BACKOFF_MOST_SECONDS)
        assert bound / 2 <= wait <= max(bound, 1.0)
    told = [event for event in bench.events if isinstance(event, Retrying)]
    assert [event.attempt for event in told] == list(range(1, 13))
    assert [event.wait_seconds for event in told] == bench.waits
    assert all(one.cause == "ConnectionError: busy" for one in ended.tries)


def test_it_may_succeed_in_the_end(bench: Bench) -> None:
    ended = asyncio.run(bench.settle(Scripted(TRANSIENT, TRANSIENT, DONE)))
    assert (ended.kind, ended.output, len(ended.tries), len(bench.waits)) == ("done", b'"yes"', 3, 2)
    assert ended.failure is None


def test_retry_after_is_honoured(bench: Bench) -> None:
    ended = asyncio.run(bench.settle(Scripted(asks_to_wait(90.0), asks_to_wait(0.0), DONE)))
    assert ended.kind == "done"
    assert bench.waits[0] == 90.0 and 1.0 <= bench.waits[1] <= 2.0


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_retries_are_those_after_the_first_attempt(bench: Bench, retries: int) -> None:
    bench.job = replace(bench.job, retries=retries)
    executor = Scripted(TRANSIENT)
    assert asyncio.run(bench.settle(executor)).kind == "failed"
    assert len(executor.attempts) == retries + 1


@pytest.mark.parametrize(("outcome", "kind"), [(ITEMS_OWN, "failed"), (EVERYONES, "back")])
def test_other_failures_are_not_tried_again(bench: Bench, outcome: Outcome, kind: str) -> None:
    executor = Scripted(outcome)
    ended = asyncio.run(bench.settle(executor))
    assert (ended.kind, len(executor.attempts), bench.waits) == (kind, 1, [])
    assert ended.failure == outcome.failure


def test_what_turns_out_to_be_everyones_goes_back(bench: Bench) -> None:
    ended = asyncio.run(bench.settle(Scripted(TRANSIENT, EVERYONES, DONE)))
    assert ended.kind == "back" and ended.judgement is not None and ended.judgement.verdict == "everyone"


@pytest.mark.parametrize("outcome", [TIMEOUT, LOST], ids=["timeout", "lost"])
def test_a_timeout_and_a_lost_worker_are_tried_again_once(bench: Bench, outcome: Outcome) -> None:
    executor = Scripted(outcome)
    assert asyncio.run(bench.settle(executor)).kind == "failed"
    assert len(executor.attempts) == 2
    executor = Scripted(outcome, TRANSIENT, TRANSIENT, DONE)
    assert asyncio.run(bench.settle(executor)).kind == "done"
    executor = Scripted(outcome, TRANSIENT, outcome, DONE)
    assert asyncio.run(bench.settle(executor)).kind == "failed"
    assert len(executor.attempts) == 3


def test_a_thread_that_could_not_be_ended_has_no_second_attempt(bench: Bench) -> None:
    executor = Scripted(Outcome("failed", failure=Failure("timeout", "timed out", code=THREAD_TIMEOUT)))
    assert asyncio.run(bench.settle(executor)).kind == "failed"
    assert len(executor.attempts) == 1


def test_skipped_is_settled_and_cancelled_goes_back(bench: Bench) -> None:
    assert asyncio.run(bench.settle(Scripted(Outcome("skipped")))).kind == "skipped"
    assert asyncio.run(bench.settle(Scripted(Outcome("cancelled")))).kind == "back"


def test_cancelling_ends_the_wait_before_a_retry(bench: Bench) -> None:
    async def main() -> None:
        bench.sleep = sleep = EndlessSleep()
        executor = Scripted(TRANSIENT)
        task = asyncio.ensure_future(bench.settle(executor))
        await sleep.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(executor.attempts) == 1

    asyncio.run(main())


def test_a_stop_ends_the_wait_before_a_retry_and_the_item_goes_back(bench: Bench) -> None:
    async def main() -> None:
        bench.sleep = sleep = EndlessSleep()
        executor = Scripted(TRANSIENT)
        attempts = bench.attempts(executor)
        task = asyncio.ensure_future(bench.settle(executor, attempts=attempts))
        await sleep.begun.wait()
        attempts.stop()
        assert (await task).kind == "back" and len(executor.attempts) == 1

    asyncio.run(main())


def test_cancelling_ends_a_second_attempt_and_there_is_no_third(bench: Bench) -> None:
    async def main() -> None:
        second = asyncio.Event()

        async def on_run(attempt: Attempt, channel: Channel) -> None:
            if attempt.number == 2:
                second.set()
                await asyncio.Event().wait()

        executor = Scripted(TRANSIENT)
        executor.on_run = on_run
        task = asyncio.ensure_future(bench.settle(executor))
        await second.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(executor.attempts) == 2

    asyncio.run(main())


def test_the_carry_of_the_last_attempt_counts_and_not_that_of_one_before(bench: Bench) -> None:
    async def on_run(attempt: Attempt, channel: Channel) -> None:
        if attempt.number == 1:
            assert await channel(Carry("of the first")) == Received()

    executor = Scripted(TRANSIENT, DONE)
    executor.on_run = on_run
    ended = asyncio.run(bench.settle(executor))
    assert ended.kind == "done" and not ended.carry_set


def test_messages_that_nobody_knows_are_answered_with_an_error(bench: Bench) -> None:
    replies: list[Reply] = []

    async def on_run(attempt: Attempt, channel: Channel) -> None:
        replies.extend([await call_json(channel, {"type": kind}) for kind in ("progress", "dance", "nonsense")])

    executor = Scripted(DONE)
    executor.on_run = on_run
    asyncio.run(bench.settle(executor))
    assert replies[0] == Received()
    assert all(isinstance(reply, Refused) and "does not know" in reply.error for reply in replies[1:])


@pytest.mark.parametrize(
    ("addresses", "says"),
    [
        ([("mine", 2)], "message 2 of the agent arrived in place of 1"),
        ([("mine", 1), ("mine", 1)], "message 1 of the agent arrived in place of 2"),
        ([("mine", 1), ("another", 2)], "a message of another attempt"),
        ([("", 0)], "a message of another attempt"),
    ],
)
def test_an_attempt_is_lost_to_a_stray_message_whatever_it_returns(
    bench: Bench, addresses: list[tuple[str, int]], says: str
) -> None:
    replies: list[Reply] = []

    async def on_run(attempt: Attempt, channel: Channel) -> None:
        if attempt.number == 1:
            for number, (whose, no) in enumerate(addresses):
                message = Carry(number)
                message.address(attempt.id if whose == "mine" else whose, no)
                replies.append(await channel(message))

    executor = Scripted(DONE)
    executor.on_run, executor.addresses = on_run, False
    ended = asyncio.run(bench.settle(executor))
    assert isinstance(replies[-1], Stray) and says in replies[-1].error
    assert [one.number for one in ended.tries] == [1, 2] and says in ended.tries[0].cause
    assert ended.kind == "done" and not ended.carry_set


def test_attempts_of_an_item_that_was_parked_are_counted_on_and_their_ids_differ(bench: Bench) -> None:
    async def on_run(attempt: Attempt, channel: Channel) -> None:
        if len(executor.attempts) == 2:
            await channel(Ask("Well?", {}))

    # The second is parked; with the answer it fails twice more, and that is what its retries count.
    executor = Scripted(TRANSIENT, DONE, TRANSIENT, TRANSIENT, DONE)
    executor.on_run = on_run
    bench.job = replace(bench.job, retries=2)

    async def main() -> None:
        attempts = bench.attempts(executor)
        assert (await bench.settle(executor, attempts=attempts)).kind == "waiting"
        answered = await bench.settle(executor, attempts=attempts)
        assert answered.kind == "done" and [one.number for one in answered.tries] == [3, 4, 5]

    asyncio.run(main())
    assert len({attempt.id for attempt in executor.attempts}) == 5


@pytest.mark.parametrize("is_fed_again", [True, False])
def test_no_id_repeats_if_an_item_goes_back_before_its_attempt(bench: Bench, is_fed_again: bool) -> None:
    executor = Scripted(EVERYONES, EVERYONES, DONE)
    bench.job = replace(bench.job, rate=parse_rate("20/h"))
    item = Item(7, "a", line="a")

    async def main() -> None:
        attempts, first, second = bench.attempts(executor), Work(0, item), Work(0, item)
        for work in (first, second):
            assert (await attempts.settle(0, work)).kind == "back"
            attempts.keep_number(work)
        # The rate limit is reached, and the launch stops.
        attempts.stop()
        work = Work(0, item) if is_fed_again else first
        assert (await attempts.settle(0, work)).kind == "back"
        attempts.keep_number(work)
        attempts.resume()
        attempts.meters = None
        assert (await attempts.settle(0, Work(0, item))).kind == "done"

    asyncio.run(main())
    assert [attempt.number for attempt in executor.attempts] == [1, 2, 3]


def test_what_each_failed_attempt_said_is_in_the_items_log(bench: Bench) -> None:
    async def on_run(attempt: Attempt, channel: Channel) -> None:
        await channel(Log(f"said in attempt {attempt.number}"))

    executor = Scripted(TRANSIENT, ITEMS_OWN)
    executor.on_run = on_run
    asyncio.run(bench.settle(executor))
    text = (bench.folder / log_name("a")).read_text()
    assert text.count("--- launch 4, attempt") == 2
    assert "said in attempt 1\n--- launch 4, attempt 2" in text and text.endswith("said in attempt 2\n")


def test_the_rate_spaces_all_attempts_retries_included(bench: Bench) -> None:
    bench.job = replace(bench.job, rate=parse_rate("1/h"), retries=2)
    asyncio.run(bench.settle(Scripted(ITEMS_OWN)))
    assert bench.waits == []
    asyncio.run(bench.settle(Scripted(TRANSIENT)))
    # Two backoffs, and after each what is left of the hour.
    assert round(sum(bench.waits)) == 2 * 3600


def test_where_tokens_are_limited_an_item_without_usage_is_told_once(bench: Bench) -> None:
    bench.job = replace(bench.job, tokens=parse_rate("100k/min"))
    executor = Scripted(Outcome("done", b"1"))

    async def main() -> None:
        attempts = bench.attempts(executor)
        for _ in range(3):
            assert (await bench.settle(executor, attempts=attempts)).kind == "done"

    asyncio.run(main())
    (warned,) = [event.text for event in bench.events if isinstance(event, Warned)]
    assert warned.startswith('tokens is set, but "a" finished without reporting its usage') and "ctx.usage" in warned
