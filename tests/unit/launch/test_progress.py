"""Progress texts: an item that reports often costs few events, and its last text is always shown."""

from __future__ import annotations

import asyncio

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.messages import Progress, Received
from agentrun.events import Event, Progressed
from agentrun.launch.progress import TEXT_LIMIT, ProgressPace, ProgressReports
from unit.launch.bench import World, answer


def test_a_text_that_comes_too_soon_is_held_and_the_last_one_shown_later() -> None:
    pace = ProgressPace(1.0)
    assert pace.offer("a", "one", 0.0) and pace.next_at is None
    assert not pace.offer("a", "two", 0.1) and not pace.offer("a", "three", 0.2)
    assert pace.next_at == 1.0 and pace.due(0.9) == []
    assert pace.due(1.0) == [("a", "three")]
    assert pace.next_at is None and pace.due(5.0) == []
    assert pace.offer("a", "four", 2.0)


def test_items_do_not_hold_up_each_other() -> None:
    pace = ProgressPace(1.0)
    assert pace.offer("a", "one", 0.0) and pace.offer("b", "one", 0.1)
    assert not pace.offer("b", "two", 0.2) and not pace.offer("a", "two", 0.5)
    assert pace.next_at == 1.0
    assert pace.due(1.0) == [("a", "two")] and pace.due(1.1) == [("b", "two")]


def test_the_same_text_again_is_no_event() -> None:
    pace = ProgressPace(1.0)
    assert pace.offer("a", "one", 0.0)
    assert not pace.offer("a", "one", 5.0)
    assert not pace.offer("a", "two", 0.5) and not pace.offer("a", "one", 0.6)
    assert pace.next_at is None, "back to what is shown"


def test_an_item_that_is_over_is_forgotten_and_cleared_if_it_was_shown() -> None:
    pace = ProgressPace(1.0)
    pace.offer("a", "one", 0.0)
    pace.offer("a", "two", 0.1)
    assert pace.remove("a") and not pace.remove("a")
    assert pace.next_at is None and pace.due(9.0) == []
    assert pace.offer("a", "one", 0.2)


def test_a_chatty_item_gives_few_events_and_no_timer_outlives_it() -> None:
    seen: list[Event] = []

    async def main() -> None:
        reports = ProgressReports(seen.append, pace=ProgressPace(0.05))
        for number in range(10_000):
            reports.report("a", f"page {number}" + "x" * TEXT_LIMIT)
        while seen[-1] != Progressed("a", ("page 9999" + "x" * TEXT_LIMIT)[:TEXT_LIMIT]):
            await asyncio.sleep(0.01)
        reports.report("a", "held back")
        reports.end("a")
        await asyncio.sleep(0.1)

    asyncio.run(main())
    assert seen[-1] == Progressed("a", "")
    assert not any(event == Progressed("a", "held back") for event in seen)
    assert 3 <= len(seen) < 100


def test_progress_reaches_the_watchers_and_is_cleared_after_each_attempt(world: World) -> None:
    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        assert await channel(Progress(f"reading {attempt.item.key}")) == Received()
        return await answer(attempt, channel)

    world.items("x", "y")
    assert world.go(script).exit_code == 0
    found = [event for event in world.events if isinstance(event, Progressed)]
    assert found == [
        Progressed("x", "reading x"),
        Progressed("x", ""),
        Progressed("y", "reading y"),
        Progressed("y", ""),
    ]
