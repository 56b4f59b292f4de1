"""Random kill -9 of forked runners: a program of its own, because only a process without threads may fork.

    python -m crash.kills --kills 10000 --seed 1

prints what was found as JSON, and exits 1 where anything was lost, run twice or out of order.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from agentrun.agents.attempt import Attempt
from agentrun.checkpoint.ledger import PENDING
from agentrun.checkpoint.summary import new_checkpoint, summarise
from agentrun.items.open import open_source
from agentrun.job.options import Options
from agentrun.outputs.results import write_results
from agentrun.runs.feed import feed
from agentrun.runs.recovery import recover
from agentrun.runs.units import Ended, Unit
from agentrun.system.disk import Disk
from crash.disks import CALLS, FaultyDisk
from crash.faults import starting_points
from crash.inspection import Stage, check_promised, go_on, look
from crash.model import Operation, Told
from crash.workload import FakeAgent, Workload, key_of, output_of, results_of, scratch

TESTS = Path(__file__).parent.parent


class Shared:
    """A few numbers in memory that outlives a killed child."""

    ACKNOWLEDGED, COMPLETED, BEGUN_AGAIN, BEGAN = range(4)
    PLACES = range(4)

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def __getitem__(self, place: int) -> int:
        return int(struct.unpack_from("Q", self._memory, place * 8)[0])

    def __setitem__(self, place: int, value: int) -> None:
        struct.pack_into("Q", self._memory, place * 8, value)

    def clear(self) -> None:
        for place in Shared.PLACES:
            self[place] = 0


@dataclass(slots=True)
class Tally:
    kills: int = 0
    runs: int = 0
    """Completed, in however many launches."""
    survived: int = 0
    """Launches that came to their end before the kill."""
    faults: list[str] = field(default_factory=list)


def fork(child: Callable[[], object], complaints: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        child()
        os._exit(0)
    except BaseException:
        complaints.write_text(traceback.format_exc())
        os._exit(99)


def run_once(workload: Workload, shared: Shared) -> None:
    """In the child: one launch that says in shared memory what it has promised."""

    def tell(operation: Operation) -> None:
        if isinstance(operation, Told) and operation.keys:
            shared[Shared.ACKNOWLEDGED] += len(operation.keys)

    def on_attempt(attempt: Attempt) -> None:
        index = attempt.item.index
        shared[Shared.BEGAN] = 1
        if index < shared[Shared.ACKNOWLEDGED]:
            shared[Shared.BEGUN_AGAIN] = index + 1
        # A slot takes the next item only when the last one's checkpoint is on disk.
        shared[Shared.ACKNOWLEDGED] = max(shared[Shared.ACKNOWLEDGED], index)

    summary = go_on(workload, FakeAgent(on_attempt=on_attempt), tell=tell)
    if summary["exit_code"] == 0:
        shared[Shared.COMPLETED] = 1


def run_lightly(workload: Workload, shared: Shared) -> None:
    """In the child: the same with the parts of a launch, one after another, without a loop and a thread."""
    job, store = workload.job(), workload.store()
    store.lock(wait_seconds=0.0)
    loaded = store.load()
    if loaded.finished is not None:
        store.finish(loaded.finished)
    if loaded.finished is not None or (loaded.checkpoint is None and store.summaries()):
        shared[Shared.COMPLETED] = 1
        return
    checkpoint = loaded.checkpoint or new_checkpoint(job)
    source = open_source(job.items, job.base)
    run = recover(store, job, source, checkpoint, resumed=loaded.checkpoint is not None, agent="v1", options=Options())
    ledger = run.ledger
    checkpoint.context |= {"identity": job.identity(), "launches": run.launch + 1}
    store.commit(run.next_checkpoint({}))
    store.prune()
    shared[Shared.BEGAN] = 1
    for work in feed(source, ledger, lambda row: ledger.states[row] == PENDING):
        if work.item.index < shared[Shared.ACKNOWLEDGED]:
            shared[Shared.BEGUN_AGAIN] = work.item.index + 1
        ended = Ended("done", orjson.dumps(output_of(work.item.key)), tries=[{"at": 0.0, "seconds": 0.0}])
        unit = Unit(work.row, 0, run.record(work, ended))
        run.settle([unit])
        (ledger.refs[work.row],) = store.commit(run.next_checkpoint({}), [unit.entry])
        shared[Shared.ACKNOWLEDGED] = work.item.index + 1
    store.commit(run.next_checkpoint({}), flush=True)
    output = write_results(ledger, store, run.output, Disk())
    store.finish(summarise(checkpoint, status="finished") | {"output": output})
    shared[Shared.COMPLETED] = 1


def find_fault(workload: Workload, shared: Shared) -> str | None:
    """What is wrong in the folder of a killed launch, in a few words."""
    acknowledged = shared[Shared.ACKNOWLEDGED]
    if shared[Shared.BEGUN_AGAIN]:
        return f"item {shared[Shared.BEGUN_AGAIN] - 1} was begun again when it was finished"
    store = workload.store()
    loaded = store.load()
    if loaded.checkpoint is None or loaded.finished is not None:
        if not store.summaries():
            return f"{acknowledged} items lost: there is no run" if acknowledged else None
        if workload.output.read_bytes() != workload.results:
            return "the results are wrong"
        return None
    if shared[Shared.COMPLETED]:
        return "a run that was complete is not"
    found = [record["key"] for _, record in store.scan()]
    if found != [key_of(n) for n in range(len(found))]:
        return f"lost, twice or out of order: {found}"
    if len(found) < acknowledged:
        return f"lost: {acknowledged} were acknowledged, {len(found)} are there"
    shared[Shared.ACKNOWLEDGED] = len(found)
    return None


def kill_at_random(
    base: Path, *, kills: int, seed: int, items: int, most_ms: float, lightly: bool, deadline: float = 0.0
) -> Tally:
    """Fork, kill within `most_ms`, check, go on in the same folder; a new folder for each run.

    The time is counted from the fork at every other kill on average, else from the first item, so that kills fall
    everywhere, however slow the machine is."""
    launch = run_lightly if lightly else run_once
    chance, tally, shared = random.Random(seed), Tally(), Shared()
    complaints = base / "complaints"
    workload = Workload(base / "run", items, compact_over_bytes=1 << 30)
    workload.lay_out()
    stage = Stage(workload)
    # Once without a fork, so that a child need not import anything.
    launch(workload, shared)
    shared.clear()
    stage.show({"out": None})
    gc.collect()
    gc.freeze()
    while tally.kills < kills and not tally.faults and (not deadline or time.monotonic() < deadline):
        shared[Shared.BEGAN] = 0
        pid = fork(lambda: launch(workload, shared), complaints)
        if chance.random() < 0.5:
            until = time.monotonic() + 5
            while not shared[Shared.BEGAN] and time.monotonic() < until and not _is_over(pid):
                time.sleep(0.0002)
        time.sleep(chance.uniform(0.0, most_ms / 1000))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        ended = os.waitstatus_to_exitcode(status)
        tally.kills += ended == -signal.SIGKILL
        tally.survived += ended == 0
        try:
            fault = complaints.read_text() if ended not in (0, -signal.SIGKILL) else find_fault(workload, shared)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if fault:
            tally.faults.append(f"after {tally.kills} kills (seed {seed}): {fault}")
        if shared[Shared.COMPLETED]:
            tally.runs += 1
            shared.clear()
            stage.disturbed()
            stage.show({"out": None})
    return tally


def _is_over(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def die_at_each_call(base: Path, *, items: int) -> Tally:
    """The process ends at the n-th call of each kind, right before and right after it, for every n."""
    tally = Tally()
    complaints = base / "complaints"
    workload = Workload(base / "run", items)
    workload.lay_out()
    stage = Stage(workload)
    for name, state in list(starting_points(workload)):
        for call in CALLS:
            for after in (False, True):
                n = 0
                while True:
                    n += 1
                    shared = Shared()
                    stage.show(state)
                    done = look(workload).done
                    stage.disturbed()
                    ended = _die(workload, shared, FaultyDisk(call, n, lambda: os._exit(9), after=after), complaints)
                    if ended == 0:
                        break
                    tally.kills += 1
                    what = f"{name}, death at {call} number {n}{' when it was done' if after else ''}"
                    try:
                        assert ended == 9, complaints.read_text()
                        _go_on(workload, done, shared[Shared.ACKNOWLEDGED])
                    except Exception as error:
                        tally.faults.append(f"{what}: {type(error).__name__}: {error}")
                        return tally
                tally.runs += 1
    return tally


def _die(workload: Workload, shared: Shared, disk: FaultyDisk, complaints: Path) -> int:
    def tell(operation: Operation) -> None:
        if isinstance(operation, Told):
            shared[Shared.ACKNOWLEDGED] += len(operation.keys)

    pid = fork(lambda: workload.launch(FakeAgent(), disk=disk, tell=tell), complaints)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _go_on(workload: Workload, done: frozenset[str], acknowledged: int) -> None:
    found = look(workload)
    check_promised(workload, found, told=done, completed=False)
    assert found.is_finished or len(found.done) >= len(done) + acknowledged, "an acknowledged item is lost"
    agent = FakeAgent()
    if not found.is_finished:
        assert workload.launch(agent)["exit_code"] == 0
    assert not found.done.intersection(agent.attempted), "a finished item was run again"
    assert workload.output.read_bytes() == results_of(workload.total)


def in_processes_of_their_own(each: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """What this program says with each of these arguments, all at the same time."""
    paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(TESTS)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "crash.kills", *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
        )
        for arguments in each
    ]
    found: list[dict[str, Any]] = []
    for one in running:
        said, _ = one.communicate()
        assert said, f"crash.kills ended with {one.returncode} and said nothing"
        found.append(json.loads(said))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="crash.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--most-ms", type=float, default=5.0)
    parser.add_argument("--lightly", action="store_true", help="without the event loop and the commit thread")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long, however many kills")
    parser.add_argument("--each-call", action="store_true", help="not at random: at the n-th call, for every n")
    asked = parser.parse_args()
    began = time.monotonic()
    with scratch() as base:
        if asked.each_call:
            tally = die_at_each_call(base, items=asked.items)
        else:
            tally = kill_at_random(
                base,
                kills=asked.kills,
                seed=asked.seed,
                items=asked.items,
                most_ms=asked.most_ms,
                lightly=asked.lightly,
                deadline=began + asked.seconds if asked.seconds else 0.0,
            )
    print(
        json.dumps(
            {
                "kills": tally.kills,
                "runs": tally.runs,
                "survived": tally.survived,
                "seconds": round(time.monotonic() - began, 1),
                "faults": tally.faults,
            }
        )
    )
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
