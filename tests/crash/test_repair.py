"""A damaged folder is repaired: whatever is whole of it counts, and is not lost when the repair itself is killed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from crash.damage import STATE, journal_of, snapshots
from crash.disks import CALLS, Call, FaultyDisk
from crash.inspection import Stage, record_history
from crash.model import State
from crash.repairing import check_kept, damage, kill_at_each_call, repair, repair_and_resume, still_done
from crash.workload import Workload, scratch

ITEMS = 20
TRIES = 150


@pytest.fixture(scope="module")
def recorded() -> Iterator[tuple[Workload, list[State]]]:
    with scratch() as path:
        workload = Workload(path / "work", ITEMS)
        yield workload, [state for state in snapshots(record_history(workload)) if STATE in state]


def in_the_middle(found: list[State]) -> State:
    """With records in both places."""
    both = [state for state in found if (path := journal_of(state)) and state[path]]
    return both[len(both) // 2]


def damaged_in_turn(right: State) -> Iterator[tuple[str, State]]:
    text, journal = right[STATE], journal_of(right)
    records = right[journal or ""]
    assert text and journal and records
    yield "state.json missing", {path: content for path, content in right.items() if path != STATE}
    yield "state.json torn", {**right, STATE: text[: len(text) // 2]}
    middle = len(records) // 2
    flipped = records[:middle] + bytes([records[middle] ^ 1]) + records[middle + 1 :]
    yield "a damaged record", {**right, journal: flipped}


def test_whatever_is_whole_after_random_damage_is_not_run_again(recorded: tuple[Workload, list[State]]) -> None:
    workload, found = recorded
    stage, repaired = Stage(workload), 0
    for seed in range(TRIES):
        chance = random.Random(seed)
        now = chance.randrange(len(found))
        damaged = damage(chance, found, now)
        repaired += repair_and_resume(stage, damaged, still_done(found[now], damaged), f"seed {seed}")
    assert repaired > TRIES // 2


@pytest.mark.parametrize("which", range(3), ids=["state.json missing", "state.json torn", "a damaged record"])
def test_a_repair_cut_off_at_any_point_can_be_done_again(recorded: tuple[Workload, list[State]], which: int) -> None:
    workload, found = recorded
    right = in_the_middle(found)
    _, damaged = list(damaged_in_turn(right))[which]
    kept = still_done(right, damaged)
    assert kept
    assert kill_at_each_call(Stage(workload), damaged, kept, brief=True) > 100


@pytest.mark.parametrize("call", CALLS)
def test_after_a_failed_call_the_old_files_are_there(recorded: tuple[Workload, list[State]], call: Call) -> None:
    workload, found = recorded
    right, stage = in_the_middle(found), Stage(workload)
    _, damaged = next(damaged_in_turn(right))

    def fail() -> None:
        raise OSError(5, os.strerror(5))

    for n in range(1, 50):
        stage.show(damaged)
        stage.disturbed()
        disk = FaultyDisk(call, n, fail)
        try:
            repair(workload, disk)
        except Exception as error:
            assert getattr(error, "exit_code", None) == 74, f"{disk}: {error}"
        check_kept(workload, damaged, str(disk))
        if disk.failed_at is None:
            break
    assert disk.failed_at is None
    repair_and_resume(stage, damaged, still_done(right, damaged), call)
