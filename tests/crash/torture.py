"""The long crash tests, for as long as asked.

    PYTHONPATH=tests python -m crash.torture --seed 7 --minutes 60 [--only kills,states]

The time is shared evenly; `steps` takes as long as its first 300 kills of each kind of agent take, `frameworks` as long
as 20 kills of each framework's agent, `graphs` as 20 kills of a graph that asks, `dask` as 20 runs with kills on a
cluster, `ray` as 5 of them. It prints the seed, how often each thing was tried, and what that proves: if nothing was
found in n independent tries, the chance of it is below 3/n, with 95 % confidence.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from areas.frameworks import test_kills as frameworks_killed
from areas.frameworks import test_langgraph as graphs_killed
from areas.stores import test_kills as stores_killed
from cluster import kills as cluster_kills
from cluster import partitions
from crash import (
    repairing,
    test_blocks,
    test_full_disk,
    test_hostile,
    test_kill_command,
    test_left_behind,
    test_messages,
    test_power_cut,
    test_races,
    test_signals,
    test_steps_killed,
)
from crash.damage import STATE, is_noticed, journal_of, put_back, records, snapshots
from crash.disks import CALLS
from crash.faults import ERRORS, fail_at, starting_points
from crash.harness import Long, again_and_again, run_apart
from crash.inspection import Stage, record_history, recover
from crash.model import Model, Operation, State
from crash.second import Crashes
from crash.workload import Workload, scratch
from unit.launch.histories import try_histories

ITEMS = 200
DEPTH = 3


def kills(seed: int, until: float) -> Iterator[int]:
    """Random kill -9 of forked runners."""
    while (left := until - time.monotonic()) > 0:
        seed += 2
        seconds = min(left, 60.0)
        with ThreadPoolExecutor(2) as pool:
            ends = [
                pool.submit(
                    run_apart, "items", {"lightly": lightly}, kills=1_000_000, seed=seed + lightly, seconds=seconds
                )
                for lightly in (False, True)
            ]
        found = [one.result() for one in ends]
        faults = [fault for one in found for fault in one["faults"]]
        assert not faults, faults
        yield sum(one["kills"] for one in found)


def states(seed: int, until: float) -> Iterator[int]:
    """Power cuts at random moments of a run of 200 items, each state recovered to the end."""
    chance = random.Random(seed)
    with scratch() as path:
        workload = Workload(path / "work", ITEMS)
        history = record_history(workload)
        stage = Stage(workload)
        while time.monotonic() < until:
            model = _after(chance, history, Model.of({"out": None}))
            found = list(model.after_power_cut())
            recover(stage, chance.choice(found), told=model.told, completed=model.completed)
            yield 1


def depth(seed: int, until: float) -> Iterator[int]:
    """Three crashes in a row, kills and power cuts mixed; every state that the last one may leave."""
    chance = random.Random(seed)
    with scratch() as path:
        workload = Workload(path / "work", 20)
        history = record_history(workload)
        while time.monotonic() < until:
            crashes = Crashes(workload)
            found, operations = Model.of({"out": None}), history
            for _ in range(DEPTH - 1):
                found = _after(chance, operations, found)
                if chance.random() < 0.5:
                    state = chance.choice(list(found.after_power_cut(brief=True)))
                    found = Model.of(state, told=found.told, completed=found.completed)
                operations = crashes.launch(found)
            crashes.check(operations, found)
            yield crashes.states


def calls(seed: int, until: float) -> Iterator[int]:
    """A random call to the disk fails, in a run of 200 items."""
    chance = random.Random(seed)
    with scratch() as path:
        workload = Workload(path / "work", ITEMS)
        workload.lay_out()
        stage = Stage(workload)
        points = [state for _, state in starting_points(workload)]
        most = dict.fromkeys(CALLS, 1000)
        while time.monotonic() < until:
            call = chance.choice(CALLS)
            n = chance.randint(1, most[call])
            if fail_at(stage, chance.choice(points), call, n, chance.choice(ERRORS)):
                yield 1
            else:
                most[call] = max(10, min(most[call], n))


def damage(seed: int, until: float) -> Iterator[int]:
    """A random bit of a random file at a random moment; an older copy of either."""
    chance = random.Random(seed)
    with scratch() as path:
        workload = Workload(path / "work", 40)
        found = snapshots(record_history(workload))
        stage = Stage(workload)
        while time.monotonic() < until:
            state = chance.choice([one for one in found if STATE in one])
            stage.show(state)
            right = records(workload)
            paths = [one for one in (STATE, journal_of(state)) if one is not None and state[one]]
            for _ in range(1000):
                target = chance.choice(paths)
                stage.show({**state, target: _flipped(chance, state, target)})
                is_noticed(workload, right)
                stage.show(state)
            older, now = sorted(chance.sample(range(len(found)), 2))
            put_back(stage, found[now], STATE, found[older])
            yield 1001


def repairs(seed: int, until: float) -> Iterator[int]:
    """A folder damaged at random, repaired and resumed; now and then with the power cut at each call of the repair."""
    chance = random.Random(seed)
    with scratch() as path:
        workload = Workload(path / "work", 40)
        found = [state for state in snapshots(record_history(workload)) if STATE in state]
        stage = Stage(workload)
        while time.monotonic() < until:
            now = chance.randrange(len(found))
            damaged = repairing.damage(chance, found, now)
            kept = repairing.still_done(found[now], damaged)
            if repairing.repair_and_resume(stage, damaged, kept, f"seed {seed}"):
                yield 1
                if chance.random() < 0.01:
                    yield repairing.kill_at_each_call(stage, damaged, kept)


def _flipped(chance: random.Random, state: State, path: str) -> bytes:
    content = bytearray(state[path] or b"")
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def _after(chance: random.Random, history: list[Operation], start: Model) -> Model:
    model = start.copy()
    for operation in history[: chance.randrange(len(history) + 1)]:
        model.apply(operation)
    return model


def _of_processes(long: Long) -> Callable[[int, float], Iterator[int]]:
    """A test that drives real processes, in the form of the others."""

    def test(seed: int, until: float) -> Iterator[int]:
        tried, failed = long(random.Random(seed), max(0.0, until - time.monotonic()) / 60)
        assert not failed, f"{failed} of {tried} failed; the seeds are above"
        yield tried

    return test


TESTS: dict[str, Callable[[int, float], Iterator[int]]] = {
    "kills": kills,
    "states": states,
    "depth": depth,
    "calls": calls,
    "damage": damage,
    "repairs": repairs,
    "plans": _of_processes(again_and_again(try_histories)),
    "steps": _of_processes(test_steps_killed.LONG["steps and questions"]),
    "command": _of_processes(test_kill_command.LONG["kill -9 of the real command"]),
    "frameworks": _of_processes(frameworks_killed.LONG["frameworks"]),
    "graphs": _of_processes(graphs_killed.LONG["graphs that ask"]),
    "dask": _of_processes(cluster_kills.long),
    "ray": _of_processes(partial(cluster_kills.long, on="ray", least=5)),
    "partitions": _of_processes(partitions.long),
    "stores": _of_processes(stores_killed.LONG["kill -9 of the real command, in other stores"]),
    "full-disk": _of_processes(test_full_disk.LONG["full disk"]),
    "ext4": _of_processes(test_power_cut.LONG["power cut, ext4"]),
    "xfs": _of_processes(test_power_cut.LONG["power cut, XFS"]),
    **{f"{kind}-blocks": _of_processes(long) for kind, long in test_blocks.LONG.items()},
    "races": _of_processes(test_races.LONG["races"]),
    "left-behind": _of_processes(test_left_behind.LONG["programs left behind"]),
    "messages": _of_processes(test_messages.LONG["messages"]),
    "signals": _of_processes(test_signals.LONG["signals"]),
    "hostile": _of_processes(test_hostile.LONG["hostile items, outputs and files"]),
}


def main() -> int:
    # Nothing is registered for `status --all`.
    os.environ.setdefault("XDG_STATE_HOME", os.devnull)
    parser = argparse.ArgumentParser(prog="crash.torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default=",".join(TESTS), help=f"some of {', '.join(TESTS)}")
    asked = parser.parse_args()
    chosen = asked.only.split(",")
    print(f"seed {asked.seed}, {asked.minutes:g} minutes: {', '.join(chosen)}", flush=True)
    is_right = True
    for name in chosen:
        began, tried, fault = time.monotonic(), 0, ""
        try:
            for count in TESTS[name](asked.seed, began + asked.minutes * 60 / len(chosen)):
                tried += count
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            is_right = False
        bound = f"95 % bound {3 / tried:.2g}" if tried and not fault else ""
        print(f"{name:11} {tried:9} tries  {time.monotonic() - began:6.0f} s  {fault or bound}", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
