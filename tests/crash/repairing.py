"""Repair: a folder damaged at random, repaired, perhaps killed meanwhile, and resumed."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from zlib import crc32

import orjson

from agentrun.errors import CheckpointError
from agentrun.store.salvage import Damage
from agentrun.system.disk import Disk
from crash.damage import STATE
from crash.disks import RecordingDisk
from crash.inspection import Stage, check_filed, distinct_states, go_on
from crash.model import Model, Operation, State
from crash.workload import FakeAgent, Workload

FOLDER = "state/job"


# ---- what is whole, without any of the code under test


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole record."""

    seq: int
    key: str
    kind: str


def whole_in(text: bytes) -> list[Whole]:
    """The whole records among the lines of a journal or a state.json."""
    found = []
    for line in text.split(b"\n"):
        line = line.removesuffix(b",")
        if line[:8] == b'{"crc":"' and line[8:18] == b'%08x",' % crc32(line[18:]):
            record = orjson.loads(line)
            found.append(Whole(record["seq"], record["key"], record["kind"]))
    return found


def whole_records(state: State) -> list[Whole]:
    texts = [content for path, content in state.items() if content and _is_of_run(path)]
    return [one for text in texts for one in whole_in(text)]


def _is_of_run(path: str) -> bool:
    return path == STATE or path.startswith(f"{FOLDER}/journal-")


def newest(records: Iterable[Whole]) -> dict[str, Whole]:
    found: dict[str, Whole] = {}
    for one in sorted(records, key=lambda one: one.seq):
        found[one.key] = one
    return found


def still_done(right: State, damaged: State) -> set[str]:
    """The items that are done, and whose record of that is whole in the damaged folder."""
    truth, left = newest(whole_records(right)), newest(whole_records(damaged))
    if is_from_before_a_compaction(damaged):
        # Nothing here says that the two are of one run: there is no log.
        left = newest(whole_records({path: content for path, content in damaged.items() if path != STATE}))
    return {key for key, one in truth.items() if one.kind == "done" and left.get(key) == one}


def is_from_before_a_compaction(state: State) -> bool:
    name = re.search(rb'"journal": {"name":"([^"]+)"', state.get(STATE) or b"")
    journals = [path for path in state if path.startswith(f"{FOLDER}/journal-")]
    return name is not None and bool(journals) and f"{FOLDER}/{name[1].decode(errors='replace')}" not in journals


# ---- damage


def _cut(chance: random.Random, text: bytes) -> bytes:
    return text[: chance.randrange(len(text) + 1)]


def _flip(chance: random.Random, text: bytes) -> bytes:
    changed = bytearray(text)
    for _ in range(chance.choice((1, 1, 3))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _zero(chance: random.Random, text: bytes) -> bytes:
    """A block that never reached the disk."""
    at, size = chance.randrange(len(text)), chance.choice((64, 512))
    return text[:at] + bytes(len(text[at : at + size])) + text[at + size :]


def _drop_line(chance: random.Random, text: bytes) -> bytes:
    lines = text.split(b"\n")
    del lines[chance.randrange(len(lines))]
    return b"\n".join(lines)


WAYS: tuple[Callable[[random.Random, bytes], bytes], ...] = (_cut, _flip, _zero, _drop_line)


def damage(chance: random.Random, found: list[State], now: int) -> State:
    """The folder at one moment, with one or two of its files damaged, gone, or replaced by an older copy."""
    state = dict(found[now])
    for _ in range(chance.choice((1, 1, 2))):
        paths = [path for path, content in state.items() if _is_of_run(path) and content]
        if not paths:
            break
        path = chance.choice(paths)
        how = chance.randrange(6)
        if how == 0:
            del state[path]
        elif how == 1 and (older := found[chance.randrange(now + 1)].get(path)):
            state[path] = older
        else:
            state[path] = chance.choice(WAYS)(chance, state[path] or b"")
    return state


# ---- repair


def repair(workload: Workload, disk: Disk | None = None) -> Damage:
    """What `agentrun repair --yes` does."""
    store = workload.store(disk)
    lease = store.lock(wait_seconds=0)
    try:
        salvage = store.salvage()
        found = salvage.examine()
        salvage.rebuild()
        return found
    finally:
        lease.release()


def repair_and_resume(stage: Stage, damaged: State, kept: set[str], what: str) -> bool:
    """From a damaged folder to the results of an undisturbed run; nothing of `kept` is run again. False if the damage
    is such that nothing can be repaired."""
    workload = stage.workload
    stage.show(damaged)
    stage.disturbed()
    try:
        found = repair(workload)
    except CheckpointError as error:
        is_hopeless = not whole_records(damaged) or "newer agentrun" in error.message
        assert is_hopeless, f"{what}: not repaired: {error}"
        return False
    if found.problem:
        check_kept(workload, damaged, what)
    agent = FakeAgent()
    try:
        summary = go_on(workload, agent)
    except CheckpointError as error:
        raise AssertionError(f"{what}: repaired, and then: {error}") from error
    assert summary.exit_code == 0, what
    assert workload.output.read_bytes() == workload.results, f"{what}: wrong results"
    # An older state.json that shows nothing of its age is no damage that anybody could see.
    again = kept.intersection(agent.attempted) if found.problem else set()
    assert not again, f"{what}: run again: {sorted(again)}"
    check_filed(workload)
    return bool(found.problem)


def check_kept(workload: Workload, damaged: State, what: str) -> None:
    """Every file of the run is as it was, in its place or beside the runs that ended."""
    there = set()
    for folder in (workload.folder, workload.folder / "runs"):
        for entry in os.scandir(folder) if folder.exists() else ():
            if entry.is_file():
                with open(entry, "rb") as file:
                    there.add(file.read())
    lost = [path for path, content in damaged.items() if _is_of_run(path) and content not in there]
    assert not lost, f"{what}: not kept: {lost}"


def record_repair(stage: Stage, damaged: State) -> list[Operation]:
    """What a repair does to the disk."""
    stage.show(damaged)
    stage.disturbed()
    disk = RecordingDisk(stage.workload.base, Model.of(damaged))
    repair(stage.workload, disk)
    return disk.log


def kill_at_each_call(stage: Stage, damaged: State, kept: set[str], *, brief: bool = False) -> int:
    """The power goes at each operation of a repair, and then it is repaired again; how many states that left."""
    history = record_repair(stage, damaged)
    states = distinct_states(history, Model.of(damaged), brief=brief)
    for number, (state, _, _) in enumerate(states.values()):
        stage.show(state)
        stage.disturbed()
        check_kept(stage.workload, damaged, f"state {number}")
        repair_and_resume(stage, state, kept, f"state {number}")
    return len(states)
