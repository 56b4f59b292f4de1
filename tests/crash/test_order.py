"""In which order things happen: what may come only when a checkpoint is on disk, and what each checkpoint says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome, addressed
from agentrun.agents.messages import Carry
from agentrun.errors import AgentrunError, BusyError, CheckpointError, DiskError
from agentrun.events import Began, Event
from agentrun.testing.examples import checkpoint
from crash.disks import FaultyDisk, RecordingDisk
from crash.inspection import BEFORE
from crash.model import Model, Operation, Rename, Told, Unlink
from crash.workload import FakeAgent, Workload, key_of, scratch

ITEMS = 12


@pytest.fixture
def workload() -> Iterator[Workload]:
    with scratch() as path:
        workload = Workload(path / "work", ITEMS)
        workload.lay_out()
        yield workload


def read_state(workload: Workload) -> dict[str, Any]:
    state: dict[str, Any] = orjson.loads((workload.folder / "state.json").read_bytes())
    return state


def test_nothing_is_unlinked_told_or_started_before_the_first_commit_of_a_launch(workload: Workload) -> None:
    workload.launch(limit=5)
    for stray in ("journal-7.jsonl", ".state.json.0123456789ab.tmp", "items-1.spool"):
        (workload.folder / stray).write_bytes(b"left behind\n")
    disk = RecordingDisk(workload.base, Model.of(BEFORE))
    told_at: list[int] = []
    started_at: list[int] = []

    def watch(event: Event) -> None:
        if isinstance(event, Began):
            told_at.append(len(disk.log))

    agent = FakeAgent(on_attempt=lambda attempt: started_at.append(len(disk.log)))
    workload.launch(agent, disk=disk, tell=disk.add, watcher=watch)
    first_commit = next(n for n, one in enumerate(disk.log) if isinstance(one, Told))
    unlinked = [n for n, one in enumerate(disk.log) if isinstance(one, Unlink)]
    assert unlinked and min(unlinked) > first_commit
    assert told_at and min(told_at) > first_commit
    assert started_at and min(started_at) > first_commit
    replaced = [one.target for one in disk.log[:first_commit] if isinstance(one, Rename)]
    assert replaced == ["state/job/state.json"]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_slot_takes_the_next_item_only_when_the_last_checkpoint_is_on_disk(
    workload: Workload, concurrency: int
) -> None:
    told: set[str] = set()
    begun: list[str] = []

    def tell(operation: Operation) -> None:
        if isinstance(operation, Told):
            told.update(operation.keys)

    def on_attempt(attempt: Attempt) -> None:
        begun.append(attempt.item.key)
        assert len(begun) - len(told) <= concurrency, f"{attempt.item.key} was begun too early"

    # An assertion in the agent ends the launch with it.
    try:
        workload.launch(FakeAgent(on_attempt=on_attempt), tell=tell, job=workload.job(concurrency=concurrency))
    except AgentrunError as error:
        pytest.fail(f"a launch that nothing disturbs ended with: {error}")
    assert len(begun) == ITEMS


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_item_is_named_as_running_on_disk_before_it_is_started(workload: Workload, concurrency: int) -> None:
    def on_attempt(attempt: Attempt) -> None:
        running = [one["key"] for one in read_state(workload)["running"]]
        assert attempt.item.key in running

    workload.launch(FakeAgent(on_attempt=on_attempt), job=workload.job(concurrency=concurrency))


class SlowAtFirst(FakeAgent):
    """The first item ends after all others."""

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        outcome = await super().run(attempt, channel)
        while attempt.item.index == 0 and len(self.attempted) < ITEMS:
            await asyncio.sleep(0.001)
        return outcome


def test_every_checkpoint_says_what_the_records_say(workload: Workload) -> None:
    commits = 0

    def tell(operation: Operation) -> None:
        nonlocal commits
        commits += 1
        state = read_state(workload)
        store = workload.store()
        store.load()
        done = {record.index for _, record in store.scan() if record.kind == "done"}
        unsettled = [n for n in range(ITEMS) if n not in done]
        assert state["last_completed"] == (unsettled[0] if unsettled else ITEMS) - 1
        assert state["counts"]["done"] == len(done)
        assert {n for first, last in state["done"] for n in range(first, last + 1)} == done
        assert not {one["index"] for one in state["running"]} & done

    workload.launch(SlowAtFirst(), tell=tell, job=workload.job(concurrency=3))
    assert commits > ITEMS // 3


class Carrying(FakeAgent):
    """Each item adds itself to what the ones before it left."""

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        carry = [*(attempt.carry or []), attempt.item.index]
        self.attempted.append(attempt.item.key)
        await addressed(attempt.id, channel)(Carry(carry))
        return Outcome("done", orjson.dumps(carry))


def test_a_carry_is_committed_with_the_item_that_changed_it(workload: Workload) -> None:
    lines = [{"index": n, "key": key_of(n), "output": list(range(n + 1))} for n in range(ITEMS)]
    expected = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    job = workload.job(carry=True)

    def fail() -> None:
        raise OSError(5, "Input/output error")

    agent = Carrying()
    workload.launch(agent, job=job, limit=3)
    # Two launches that die somewhere between an item and its checkpoint.
    for n in (14, 15):
        with pytest.raises(DiskError):
            workload.launch(agent, job=job, disk=FaultyDisk("fsync", n, fail))
        state = read_state(workload)
        assert state["context"].get("carry") == list(range(state["last_completed"] + 1))
    assert workload.launch(agent, job=job).exit_code == 0
    assert workload.output.read_bytes() == expected
    # Of each launch that died, at most the item that was in flight is run again.
    assert len(agent.attempted) <= ITEMS + 2


def test_the_lock_stays_where_it_is_and_held_while_the_guardian_lives(workload: Workload) -> None:
    first, second = workload.store(), workload.store()
    lease = first.lock(wait_seconds=0.0)
    inode = (workload.folder / "lock").stat().st_ino
    assert lease.fd is not None
    guardian = os.dup(lease.fd)
    lease.release()
    with pytest.raises(BusyError):
        second.lock(wait_seconds=0.0)
    os.close(guardian)
    lease = second.lock(wait_seconds=0.0)
    assert (workload.folder / "lock").stat().st_ino == inode
    lease.release()


def test_a_commit_that_does_not_follow_the_stored_one_is_refused(workload: Workload) -> None:
    workload.launch(limit=3)
    before = (workload.folder / "state.json").read_bytes()
    seq = read_state(workload)["seq"]
    for wrong in (seq, seq + 2, 1):
        store = workload.store()
        lease = store.lock(wait_seconds=0.0)
        store.load()
        with pytest.raises(CheckpointError):
            store.commit(checkpoint(wrong, run_id="another"))
        lease.release()
        assert (workload.folder / "state.json").read_bytes() == before


def test_a_state_that_another_program_replaced_is_not_written_over(workload: Workload) -> None:
    workload.launch(limit=3)
    store = workload.store()
    lease = store.lock(wait_seconds=0.0)
    loaded = store.load().checkpoint
    assert loaded is not None
    other = workload.folder / "other"
    other.write_bytes((workload.folder / "state.json").read_bytes())
    os.replace(other, workload.folder / "state.json")
    loaded.seq += 1
    with pytest.raises(CheckpointError):
        store.commit(loaded)
    lease.release()
