"""What a launch makes of a store that others share: it says when the store does not answer, and hears a stop."""

from __future__ import annotations

from pathlib import Path

import pytest

import agentrun
from agentrun import Item
from agentrun.events import Event, Stopping, Warned
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Lease
from waiting import eventually_on_loop


class SharedLease(Lease):
    """The lease of a memory store, as one that expires."""

    def __init__(self, inner: Lease) -> None:
        self._inner = inner
        self.mark = inner.mark
        self.asked = 0

    @property
    def expires(self) -> bool:
        return True

    @property
    def stops_asked(self) -> int:
        return self.asked

    def release(self) -> None:
        self._inner.release()


class SharedStore(MemoryStore):
    why = ""
    lease: SharedLease

    def lock(self, *, wait_seconds: float = 5.0) -> Lease:
        self.lease = SharedLease(super().lock(wait_seconds=wait_seconds))
        return self.lease

    @property
    def trouble(self) -> str:
        return self.why


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedStore:
    monkeypatch.chdir(tmp_path)
    return SharedStore()


def test_an_outage_of_the_store_is_said_once_when_it_begins_and_once_when_it_is_over(store: SharedStore) -> None:
    said: list[Event] = []

    def warned(words: str) -> int:
        return sum(words in event.text for event in said if isinstance(event, Warned))

    async def agent(item: Item) -> str:
        for words in ("nobody listens there", ""):
            store.why = f"db: {words}" if words else ""
            expected = "db: nobody listens there; trying again for up to 7s" if words else "the store answers again"
            await eventually_on_loop(lambda expected=expected: warned(expected), expected)  # type: ignore[misc]
        return "done"

    summary = agentrun.run(
        agent, items=["a"], name="x", output="x.jsonl", store=store, on_event=said.append, store_patience="7s"
    )
    assert summary.ok and (warned("nobody listens there"), warned("the store answers again")) == (1, 1)


def test_a_stop_that_comes_through_the_store_is_told_from_a_signal(store: SharedStore) -> None:
    said: list[Event] = []

    async def agent(item: Item) -> str:
        store.lease.asked = 1
        await eventually_on_loop(lambda: any(isinstance(event, Stopping) for event in said), "the launch stops")
        return "done"

    summary = agentrun.run(agent, items=["a", "b"], name="x", output="x.jsonl", store=store, on_event=said.append)
    assert (summary.exit_code, summary.counts["done"], summary.reason) == (143, 1, "stopped by agentrun stop")
