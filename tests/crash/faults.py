"""The n-th call to the disk fails, or the process dies there: one launch with the fault, one after it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentrun.agents.attempt import Attempt
from agentrun.errors import AgentrunError, DiskError
from crash.disks import CALLS, Call, FaultyDisk
from crash.inspection import BEFORE, Stage, check_promised, look
from crash.model import Operation, State, Told
from crash.workload import FakeAgent, Workload, key_of

ERRORS = (errno.EIO, errno.ENOSPC)


def is_ignored(call: Call, path: str) -> bool:
    """May the run go on after this failure? Only what recovery does not need is left as it is: garbage that cannot be
    unlinked (the next launch prunes it), and the log of launches."""
    name = os.path.basename(path)
    if call == "unlink":
        return name != "state.json"
    return call == "open" and name == "log.jsonl"


@dataclass(slots=True)
class Heard:
    """What a launch has promised, and when: by the number of calls to the disk that were made before."""

    disk: FaultyDisk
    told: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)

    def begin(self, attempt: Attempt) -> None:
        self.begun[attempt.item.key] = len(self.disk.calls)

    def tell(self, operation: Operation) -> None:
        if isinstance(operation, Told):
            self.told |= dict.fromkeys(operation.keys, len(self.disk.calls))


def fail_at(stage: Stage, state: State, call: Call, n: int, number: int) -> bool:
    """A launch from `state` whose n-th `call` fails with the error `number`, and what must follow. False if it had no
    n-th call of that kind."""
    workload = stage.workload

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    stage.show(state)
    before = look(workload).done
    stage.disturbed()
    disk = FaultyDisk(call, n, fail)
    heard = Heard(disk)
    agent = FakeAgent(on_attempt=heard.begin)
    what = f"{call} number {n} fails with {os.strerror(number)}"
    try:
        summary = workload.launch(agent, disk=disk, tell=heard.tell)
    except AgentrunError as error:
        assert disk.failed_at is not None, f"{what}: {error}"
        assert isinstance(error, DiskError) and error.exit_code == 74, f"{what}, and the launch ended with: {error}"
        assert str(workload.base) in error.message and "again" in error.message, f"{what}: {error}"
        for key, at in (heard.told | heard.begun).items():
            assert at <= disk.failed_at, f"{what}: {key} was begun or acknowledged after that"
        after = [path for kind, path in disk.calls[disk.failed_at + 1 :] if kind == "fsync"]
        assert call != "fsync" or not after, f"{what}: and then {after} was fsynced"
    else:
        assert summary.exit_code == 0, what
        assert workload.output.read_bytes() == workload.results, what
        if disk.failed_at is None:
            return False
        assert is_ignored(*disk.calls[disk.failed_at]), f"{what}, and the run went on: {disk.calls[disk.failed_at]}"
    go_on_after(workload, before | heard.told.keys(), what)
    return True


def go_on_after(workload: Workload, done: frozenset[str], what: str) -> None:
    """The next launch does what is left and nothing again."""
    found = look(workload)
    check_promised(workload, found, told=done, completed=False)
    if not found.is_finished:
        agent = FakeAgent()
        assert workload.launch(agent).exit_code == 0, what
        again = found.done.intersection(agent.attempted)
        assert not again, f"{what}: run again: {sorted(again)}"
    assert workload.output.read_bytes() == workload.results, what


def starting_points(workload: Workload) -> Iterator[tuple[str, State]]:
    """A first launch, and one that goes on with a run, compacts its journal and completes it."""
    yield "first launch", dict(BEFORE)
    workload.lay_out()
    odd = [key_of(n) for n in range(0, workload.total, 2)]
    workload.launch(FakeAgent(fails=odd))
    workload.launch(limit=len(odd) - 1)
    yield "launch that compacts", _read(workload)


def _read(workload: Workload) -> State:
    found: State = {}
    for folder in ("out", "state"):
        for at, folders, files in os.walk(workload.base / folder):
            if os.path.basename(at) == "logs":
                continue
            found[os.path.relpath(at, workload.base)] = None
            folders.sort()
            for name in files:
                with open(os.path.join(at, name), "rb") as file:
                    found[os.path.relpath(file.name, workload.base)] = file.read()
    return dict(sorted(found.items()))


# Only items' files are linked, and there are none here.
CALLS_AND_ERRORS = [(call, number) for call in CALLS if call != "link" for number in ERRORS]
