"""The kill harness: start a launch, kill it, check, start the next one, until the run is complete; and again.

    PYTHONPATH=tests python -m crash.harness steps --set kind=thread --kills 300 --seed 1

prints what was found as JSON, and exits 1 where a promise was broken. What is run, when it is killed and what must hold
is a scenario's to say: a module in `scenarios/` with a function `make`, which gets the values of `--set`.

Launches that are forked need a process without threads, so tests run these scenarios by `run_apart`.
"""

from __future__ import annotations

import argparse
import gc
import importlib
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from agentrun.system.disk import Disk
from crash.disks import Call, FaultyDisk
from waiting import PATIENCE_SECONDS, happens_before

TESTS = Path(__file__).resolve().parent.parent
DIED = 9
"""The exit code of a launch that ends itself at a call to the disk."""
COMPLAINED = 99
FORKED_PAUSE_SECONDS = 0.0002
"""How often a forked launch is looked at: a few times in one of its commits."""


class Fault(Exception):
    """A promise that was broken."""


# ---- launches


class Launched(Protocol):
    """A launch, as a process of its own."""

    def kill(self) -> None: ...

    def wait(self) -> int:
        """Its exit code, or minus the signal."""

    def reaches(self, condition: Callable[[], Any], what: str) -> bool:
        """Wait for the condition; False if the launch ended before."""


class Forked:
    """A launch in a fork of this process: it need not import anything, and begins at once."""

    def __init__(self, launch: Callable[[], int], complaints: Path) -> None:
        self._complaints = complaints
        complaints.unlink(missing_ok=True)
        self._pid = os.fork()
        if self._pid:
            return
        try:
            os._exit(launch())
        except BaseException:
            complaints.write_text(traceback.format_exc())
            os._exit(COMPLAINED)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        ended = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if ended == COMPLAINED:
            raise Fault(f"a launch raised: {self._complaints.read_text()}")
        return ended

    def is_over(self) -> bool:
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reaches(self, condition: Callable[[], Any], what: str) -> bool:
        return happens_before(self.is_over, condition, what, pause_seconds=FORKED_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class Started:
    """A launch by the real command."""

    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def reaches(self, condition: Callable[[], Any], what: str) -> bool:
        return happens_before(lambda: self.process.poll() is not None, condition, what)


class Memory:
    """A few numbers that outlive a killed child: what it has promised, and what it did."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def __getitem__(self, place: int) -> int:
        return int(struct.unpack_from("Q", self._memory, place * 8)[0])

    def __setitem__(self, place: int, value: int) -> None:
        struct.pack_into("Q", self._memory, place * 8, value)

    def clear(self) -> None:
        self._memory[:] = bytes(mmap.PAGESIZE)


# ---- scenarios


class Scenario:
    """What is run, when it is killed, and what must hold. Whatever it raises is a broken promise."""

    exits: tuple[int, ...] = (0,)
    """Of a launch that ended before it was killed."""
    ends: tuple[int, ...] = (0,)
    """Of a launch that nobody meant to kill."""

    @property
    def is_complete(self) -> bool:
        """There is nothing more to launch in this run."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Once before all: see that an undisturbed run is as expected, and load what launches need."""

    def begin(self, chance: random.Random) -> None:
        """A new run, of which there has been no launch."""
        raise NotImplementedError

    def between(self, chance: random.Random) -> None:
        """Before a launch, while none is alive."""

    def start(self, chance: random.Random) -> Launched:
        raise NotImplementedError

    def wait_for_a_moment(self, launched: Launched, chance: random.Random) -> None:
        """Until it is time to kill it."""
        raise NotImplementedError

    def let_end(self) -> None:
        """The next launches are not killed any more."""

    def check(self, ended: int) -> None:
        """Nothing that was promised is lost, now that no launch is alive; the last one ended so."""
        raise NotImplementedError

    def check_complete(self) -> None:
        """A complete run is as if it had never been disturbed."""

    def report(self) -> dict[str, Any]:
        """What else there is to tell of all runs."""
        return {}

    def close(self) -> None:
        """Leave nothing behind."""


class DyingScenario(Scenario):
    """One whose launches can also be made to die at a call to the disk."""

    moments: tuple[tuple[Call, bool], ...]
    """At which calls, and whether right after them instead of right before."""

    def starting_points(self) -> Iterable[str]:
        raise NotImplementedError

    def go_to(self, point: str) -> None:
        """Everything is as it was at that point: the disk, and what was promised."""
        raise NotImplementedError

    def start_on(self, disk: Disk | None) -> Launched:
        raise NotImplementedError

    def answer_all(self) -> None:
        """After each launch that has not completed the run: what it waits for happens."""


# ---- what is done to them


@dataclass(slots=True)
class Tally:
    kills: int = 0
    runs: int = 0
    """Completed, in however many launches."""
    survived: int = 0
    """Launches that came to their end before the kill."""
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """When to stop killing: what was begun is still completed."""

    kills: int
    seed: object = 1
    seconds: float = 0.0
    """However many kills; 0 for no limit."""
    tries: int = 0
    """So many launches that are to be killed, whether or not they end before; 0 for no limit."""


def kill_at_random(scenario: Scenario, plan: Plan) -> dict[str, Any]:
    """Kill, check and go on; what was found."""
    chance, tally, began, tried = random.Random(str(plan.seed)), Tally(), time.monotonic(), 0

    def goes_on() -> bool:
        is_late = bool(plan.seconds) and time.monotonic() > began + plan.seconds
        return tally.kills < plan.kills and (not plan.tries or tried < plan.tries) and not is_late

    try:
        scenario.warm_up()
        is_first = True
        while is_first or goes_on():
            is_first = False
            scenario.begin(chance)
            while not scenario.is_complete:
                scenario.between(chance)
                is_hunted = goes_on()
                if not is_hunted:
                    scenario.let_end()
                launched = scenario.start(chance)
                if is_hunted:
                    tried += 1
                    scenario.wait_for_a_moment(launched, chance)
                    launched.kill()
                ended = launched.wait()
                if ended == -signal.SIGKILL and is_hunted:
                    tally.kills += 1
                elif ended in (scenario.exits if is_hunted else scenario.ends):
                    tally.survived += is_hunted
                else:
                    raise Fault(f"a launch ended with {ended}")
                scenario.check(ended)
            scenario.check_complete()
            tally.runs += 1
    except Exception as error:
        words = f"after {tally.kills} kills (seed {plan.seed!r}): {type(error).__name__}: {error}"
        tally.faults.append(words)
    finally:
        scenario.close()
    return {**asdict(tally), **scenario.report(), "seconds": round(time.monotonic() - began, 1)}


def die_at_each_call(scenario: DyingScenario) -> dict[str, Any]:
    """Not at random: the process ends at the n-th call of each kind, for every n, and the run is then completed."""
    tally, began = Tally(), time.monotonic()
    try:
        scenario.warm_up()
        for point in scenario.starting_points():
            for call, after in scenario.moments:
                for n in count(1):
                    if not _die(scenario, point, FaultyDisk(call, n, lambda: os._exit(DIED), after=after), tally):
                        break
    except Exception as error:
        tally.faults.append(f"{type(error).__name__}: {error}")
    finally:
        scenario.close()
    return {**asdict(tally), **scenario.report(), "seconds": round(time.monotonic() - began, 1)}


def _die(scenario: DyingScenario, point: str, disk: FaultyDisk, tally: Tally) -> bool:
    """False if the launch has no such call."""
    scenario.go_to(point)
    ended = scenario.start_on(disk).wait()
    if ended in scenario.ends:
        return False
    tally.kills += 1
    try:
        if ended != DIED:
            raise Fault(f"it ended with {ended}")
        scenario.check(ended)
        while not scenario.is_complete:
            ended = scenario.start_on(None).wait()
            if ended not in scenario.ends:
                raise Fault(f"the next launch ended with {ended}")
            scenario.check(ended)
            if not scenario.is_complete:
                scenario.answer_all()
        scenario.check_complete()
    except Exception as error:
        raise Fault(f"{point}, death at {disk}: {error}") from error
    tally.runs += 1
    return True


def freeze() -> None:
    """Before many forks: what is there now is not copied when a child collects its garbage."""
    gc.collect()
    gc.freeze()


# ---- in a process of its own


def run(scenario: str, values: dict[str, Any], plan: dict[str, Any] | None) -> dict[str, Any]:
    """By the scenario's name; without a plan it dies at each call."""
    made = importlib.import_module(f"crash.scenarios.{scenario}").make(**values)
    if plan is None:
        return die_at_each_call(made)
    return kill_at_random(made, Plan(**plan))


def run_apart(scenario: str, values: dict[str, Any] | None = None, **plan: Any) -> dict[str, Any]:
    """The same in a process of its own, from which it can fork."""
    limit = 600.0 + plan.get("seconds", 0.0)
    found: dict[str, Any] = apart("crash.harness", "run", scenario, values or {}, plan or None, timeout_seconds=limit)
    return found


def apart(module: str, function: str, *arguments: Any, timeout_seconds: float = 600.0) -> Any:
    """Call a function of ours in a process of its own, which has one thread. Arguments and result are JSON."""
    code = (
        "import json, sys, importlib; found = getattr(importlib.import_module(sys.argv[1]), sys.argv[2]); "
        "print(json.dumps(found(*json.loads(sys.argv[3]))))"
    )
    path = os.pathsep.join([*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(TESTS)])
    ended = subprocess.run(
        [sys.executable, "-c", code, module, function, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads(ended.stdout.splitlines()[-1])


# ---- for as long as asked

Long = Callable[[random.Random, float], tuple[int, int]]
"""A test of the long set: it gets its chances and its minutes, and says how often it tried and failed."""


@contextmanager
def seeded(seed: object) -> Iterator[random.Random]:
    """The moments of a test; a failure says how to have them again."""
    try:
        yield random.Random(str(seed))
    except BaseException as error:
        error.add_note(f"with the seed {seed!r}")
        raise


def again_and_again(one: Callable[[random.Random], int]) -> Long:
    """For the long set: `one`, which says how often it tried, with new seeds until the time is over."""

    def long(rng: random.Random, minutes: float) -> tuple[int, int]:
        deadline, tried, failed = time.monotonic() + minutes * 60, 0, 0
        while time.monotonic() < deadline:
            seed = rng.getrandbits(64)
            try:
                with seeded(seed) as inner:
                    tried += one(inner)
            except Exception as error:
                tried, failed = tried + 1, failed + 1
                print(f"FAILED with the seed {str(seed)!r}: {type(error).__name__}: {error}", file=sys.stderr)
        return tried, failed

    return long


def main() -> int:
    # Nothing is registered for `status --all`.
    os.environ.setdefault("XDG_STATE_HOME", os.devnull)
    parser = argparse.ArgumentParser(
        prog="crash.harness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted(path.stem for path in (TESTS / "crash" / "scenarios").glob("*.py"))
    parser.add_argument("scenario", choices=names)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="of the scenario, as JSON or text"
    )
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so long, however many kills")
    parser.add_argument("--each-call", action="store_true", help="not at random: at the n-th call, for every n")
    asked = parser.parse_args()
    values = {name: _value(text) for name, _, text in (one.partition("=") for one in asked.set)}
    plan = {"kills": asked.kills, "seed": asked.seed, "seconds": asked.minutes * 60}
    found = run(asked.scenario, values, None if asked.each_call else plan)
    print(json.dumps(found))
    return 1 if found["faults"] else 0


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(main())
