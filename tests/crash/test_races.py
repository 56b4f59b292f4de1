"""Several launches of one job at the same instant: one runs, the others exit 75."""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import random
import shutil
import signal
import subprocess
import time
import traceback
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.agents.agent import Agent, load_agent
from agentrun.errors import AgentrunError
from agentrun.job.job import ItemsSpec, Job
from agentrun.job.options import Options
from agentrun.launch.execute import execute
from agentrun.store.folder.store import FolderStore
from crash.command_line import Place, exit_of, place
from crash.harness import Long, again_and_again, apart, seeded
from crash.workload import scratch
from waiting import PATIENCE_SECONDS, eventually

LEAN, LEAN_AFTER_A_KILL, REAL = 150, 42, 8
"""200: most are forked from a warm process, a few are the real command."""
TOTAL = 3
MOST = 8
_OVERLAP, _HOLDS, _ENDED_AT = 1, 2, 16

# An attempt must be alone: it locks a file, and a program of its own that it leaves behind keeps the lock.
AGENT = """
async def contend(item):
    from crash import test_races
    return await test_races.attempt(item)
"""


class Scene:
    """What the contenders of one race share."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 4096)
        self.gate, self._opener = os.pipe()
        self.waits_for: list[int] = []
        self.leaves_a_program = False
        self.holds_for_ever = False
        self.base = Path()

    def reset(self) -> None:
        self.map[:] = bytes(4096)
        self.waits_for, self.leaves_a_program, self.holds_for_ever = [], False, False

    def pass_gate(self) -> None:
        """Wait until all may go."""
        os.close(self._opener)
        os.read(self.gate, 1)

    def open_gate(self) -> None:
        os.close(self._opener)
        os.close(self.gate)
        self.gate, self._opener = os.pipe()

    def has_ended(self, number: int) -> bool:
        return bool(self.map[_ENDED_AT + number])


SCENE = Scene()


async def attempt(item: Any) -> dict[str, str]:
    """In the contender that has the job: be alone, and hold the job until the others have given up."""
    fd = os.open(SCENE.base / "alone", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            SCENE.map[_OVERLAP] = 1
        with open(SCENE.base / "calls.log", "a") as log:
            log.write(f"{os.getpid()} {item.key}\n")
        if SCENE.leaves_a_program:
            subprocess.Popen(["sleep", "600"], pass_fds=[fd], start_new_session=True)
        SCENE.map[_HOLDS] = 1
        # Two that have the job would wait for each other for ever.
        while not SCENE.map[_OVERLAP] and (SCENE.holds_for_ever or not all(map(SCENE.has_ended, SCENE.waits_for))):
            await asyncio.sleep(0.001)
        return {"text": item.text}
    finally:
        os.close(fd)


def make_job(base: Path) -> tuple[Job, Agent]:
    (base / "agent.py").write_text(AGENT)
    (base / "items.txt").write_text("".join(f"{n}\n" for n in range(TOTAL)))
    spec = ItemsSpec(kind="lines", pattern="items.txt")
    agent = "agent.py:contend"
    values: dict[str, Any] = {"output": "results.jsonl", "crash_limit": 0, "params": {}}
    # All results are too old: each race runs all items.
    job = Job(name="job", base=base, items=spec, agent=agent, max_age_seconds=0.0, **values)
    return job, load_agent(job)


def contend(job: Job, agent: Agent, number: int, wait_seconds: float) -> int:
    """Fork one launch, which begins when all may go."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        SCENE.waits_for = [other for other in SCENE.waits_for if other != number]
        SCENE.pass_gate()
        store, options = FolderStore(job.base / "state" / "job"), Options(wait_seconds=wait_seconds)
        code = asyncio.run(execute(job, agent, store, options=options)).exit_code
    except AgentrunError as error:
        code = error.exit_code
        if code != 75:
            (job.base / "error.txt").write_text(error.message)
    except BaseException as error:
        (job.base / "error.txt").write_text("".join(traceback.format_exception(error)))
    finally:
        SCENE.map[_ENDED_AT + number] = 1
        os._exit(code)


def collect(pids: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def check(job: Job) -> None:
    error = job.base / "error.txt"
    assert not error.exists(), error.read_text()
    assert not SCENE.map[_OVERLAP], "two attempts were alive at the same time"
    expected = b"".join(
        orjson.dumps({"index": n, "key": str(n), "output": {"text": str(n)}}) + b"\n" for n in range(TOTAL)
    )
    assert (job.base / "results.jsonl").read_bytes() == expected
    assert not (job.base / "state/job/state.json").exists()


def race(job: Job, agent: Agent, rng: random.Random) -> None:
    count = rng.randint(2, MOST)
    SCENE.reset()
    SCENE.waits_for = list(range(count))
    pids = [contend(job, agent, number, 0.0) for number in range(count)]
    SCENE.open_gate()
    codes = sorted(collect(pids))
    check(job)
    assert codes == [0] + [75] * (count - 1), codes


def race_after_a_kill(job: Job, agent: Agent, rng: random.Random) -> None:
    """The holder is killed while a program of its own is alive: nobody begins before the guardian has ended it."""
    SCENE.reset()
    SCENE.leaves_a_program = SCENE.holds_for_ever = True
    holder = contend(job, agent, MOST, 0.0)
    SCENE.open_gate()
    eventually(lambda: SCENE.map[_HOLDS], "the holder begins")
    SCENE.reset()
    count = rng.randint(2, MOST)
    # The last is patient; the others give up soon, and whoever runs waits for them.
    SCENE.waits_for = list(range(count - 1))
    waits = [rng.choice([0.0, 0.0, 0.05]) for _ in range(count - 1)] + [PATIENCE_SECONDS]
    pids = [contend(job, agent, number, wait) for number, wait in enumerate(waits)]
    os.kill(holder, signal.SIGKILL)
    time.sleep(rng.choice([0.0, rng.uniform(0, 0.05)]))
    SCENE.open_gate()
    codes = collect(pids)
    os.waitpid(holder, 0)
    check(job)
    assert set(codes) <= {0, 75} and codes[-1] == 0, codes


def hold_races(seed: str, plain: int, after_a_kill: int) -> int:
    """Called in a process of its own. Half of the races are about a folder that is not there yet."""
    rng = random.Random(seed)
    kinds = [race] * plain + [race_after_a_kill] * after_a_kill
    rng.shuffle(kinds)
    with scratch() as base:
        SCENE.base = base
        job, agent = make_job(base)
        # Once here, so that what is forked has imported everything.
        asyncio.run(execute(job, agent, FolderStore(base / "state" / "job")))
        for number, kind in enumerate(kinds):
            if rng.random() < 0.5:
                shutil.rmtree(base / "state", ignore_errors=True)
                (base / "results.jsonl").unlink(missing_ok=True)
            try:
                kind(job, agent, rng)
            except BaseException as error:
                error.add_note(f"in race {number} with the seed {seed!r}")
                raise
    return len(kinds)


@pytest.mark.parametrize("part", range(2))
def test_of_launches_at_the_same_instant_one_runs_and_the_others_exit_75(part: int) -> None:
    apart("crash.test_races", "hold_races", f"races {part}", LEAN // 2, LEAN_AFTER_A_KILL // 2)


# ---- through the real command

HOLDING_AGENT = """
import asyncio, os

async def async_agent(item):
    with open(os.environ["CRASH_CALLS"], "a") as log:
        log.write(f"{os.environ['CRASH_LAUNCH']} {item.text}\\n")
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
    return int(item.text)
"""


def start_together(job: Place, count: int) -> list[subprocess.Popen[bytes]]:
    job.agent = HOLDING_AGENT
    job.run = {"max_age": "0s"}
    job.lay_out()
    return [job.start() for _ in range(count)]


def check_together(job: Place, processes: list[subprocess.Popen[bytes]]) -> None:
    """All but one have given up after five seconds; then the one may go on."""

    def losers() -> int:
        return sum(process.poll() == 75 for process in processes)

    eventually(lambda: losers() == len(processes) - 1, "all but one give up")
    (job.base / "go").touch()
    assert sorted(map(exit_of, processes)) == [0] + [75] * (len(processes) - 1), job.said
    assert "another runner has this job (pid" in job.said
    assert len(job.calls()) == 1, "two launches ran"
    assert job.begun() == job.total
    job.check_words()


def test_so_it_is_with_the_real_command() -> None:
    with (
        seeded("real races") as rng,
        place(total=2) as a,
        place(total=2) as b,
        place(total=2) as c,
        place(total=2) as d,
    ):
        for _ in range(REAL // 4):
            racing = [(job, start_together(job, rng.randint(2, 4))) for job in (a, b, c, d)]
            for job, processes in racing:
                check_together(job, processes)
            for job, _ in racing:
                (job.base / "go").unlink()
                (job.base / "calls.log").unlink()


def _one(rng: random.Random) -> int:
    return int(apart("crash.test_races", "hold_races", f"{rng.getrandbits(64):x}", 60, 20))


LONG: dict[str, Long] = {"races": again_and_again(_one)}
