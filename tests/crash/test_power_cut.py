"""Power cuts: a file system on a loop device is shut down without flushing its log, mounted again, and recovered.

`kill -9` alone can't see a missing fsync, as the page cache survives it. What is lost here is what the file system had
not written; `test_blocks` is about what it had written and not flushed.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentrun.events import Began
from agentrun.store.folder.store import FolderStore
from crash.harness import Long, apart
from crash.model import Operation, Told
from crash.mounting import DETACH, FILE_SYSTEMS, attach, make, mount, unmount
from crash.workload import FakeAgent, Workload, scratch
from needs import find_program, require, require_linux, require_program, require_root
from waiting import PATIENCE_SECONDS, eventually

CUTS = 300
TOTAL = 30
_SHUTDOWN, _WITHOUT_LOG_FLUSH = 0x8004587D, 2
_MARKS_AT = 16


class Shared:
    """Memory that the launches and we see, and no crash takes: which items are promised, and what went wrong."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 4096)

    def forget(self) -> None:
        self._map[:] = bytes(4096)

    def promise(self, index: int) -> None:
        self._map[_MARKS_AT + index] = 1

    def is_promised(self, index: int) -> bool:
        return bool(self._map[_MARKS_AT + index])

    @property
    def promised(self) -> set[int]:
        return {n for n in range(TOTAL) if self.is_promised(n)}

    def _flag(at: int) -> property:  # type: ignore[misc]
        def get(self: Shared) -> bool:
            return bool(self._map[at])

        def set_to(self: Shared, value: bool) -> None:
            self._map[at] = int(value)

        return property(get, set_to)

    run_again = _flag(0)
    finished = _flag(1)
    failed = _flag(2)


class Device:
    """An image on a loop device, and its mount."""

    def __init__(self, base: Path, kind: str) -> None:
        self.mount_point = base / "mnt"
        self.mount_point.mkdir()
        self._system = FILE_SYSTEMS[kind]
        make(self._system, base / "image")
        self._fd, self._loop = attach(base / "image")

        self._probe = self.mount_point / "probe"

    def mount(self, options: str = "") -> None:
        mount(self._loop, self.mount_point, self._system.name, options)
        self._probe.touch()

    def mount_again(self, chance: random.Random) -> None:
        """As after a reboot: not before the file system that was shut down is gone.

        A process that was given a copy of all mounts (`unshare -m`) keeps it for a while, and until then each mount of
        the device is that same file system, in which no file can be opened.
        """
        options = chance.choice(self._system.options)
        eventually(lambda: self._is_mounted_anew(options), "mounted anew")

    def _is_mounted_anew(self, options: str) -> bool:
        mount(self._loop, self.mount_point, self._system.name, options)
        try:
            os.close(os.open(self._probe, os.O_RDONLY))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.unmount()
            return False
        return True

    def cut(self) -> None:
        fd = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        eventually(lambda: unmount(self.mount_point), "unmounted")

    def close(self) -> None:
        # Not asked whether it is mounted: a file system that was shut down has no answer to that.
        unmount(self.mount_point, DETACH)
        os.close(self._fd)


@contextmanager
def device(kind: str) -> Iterator[Device]:
    with scratch() as base:
        made = Device(base, kind)
        try:
            yield made
        finally:
            made.close()


def launch(work: Workload, shared: Shared) -> None:
    """One launch in a process of its own. What its commits acknowledge is promised from then on."""
    found = done_on_disk(work)

    def tell(operation: Operation) -> None:
        if isinstance(operation, Told):
            for key in operation.keys:
                shared.promise(index_of(key))

    def watch(event: object) -> None:
        # After the launch's first commit, what it found is promised too, though a kill may have come before.
        if isinstance(event, Began):
            for index in found:
                shared.promise(index)

    agent = FakeAgent()
    agent.on_attempt = lambda attempt: setattr(
        shared, "run_again", shared.run_again or shared.is_promised(attempt.item.index)
    )
    summary = work.launch(agent, tell=tell, watcher=watch)
    if summary.exit_code == 0:
        shared.finished = True


def index_of(key: str) -> int:
    return int(key.rpartition(" ")[2])


def done_on_disk(work: Workload) -> set[int]:
    store = FolderStore(work.folder)
    loaded = store.load()
    if loaded.checkpoint is None or loaded.finished is not None:
        return set()
    return {index_of(record.key) for _, record in store.scan() if record.kind == "done"}


def begin(work: Workload, shared: Shared) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        launch(work, shared)
        code = 0
    except BaseException as error:
        # After a cut every error is as it should be; before, none is.
        (work.base.parent.parent / "error.txt").write_text("".join(traceback.format_exception(error)))
        shared.failed = True
    finally:
        os._exit(code)


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def check(work: Workload, promised: set[int], *, finished: bool) -> None:
    """After a cut: what was promised before it is there."""
    if work.output.exists():
        assert work.output.read_bytes() == work.results, "the results are there, and not whole"
    if finished:
        assert work.output.exists(), "a finished run has lost its results"
        assert not (work.folder / "state.json").exists(), "a finished run has come back"
        return
    if not (work.folder / "state.json").exists():
        assert work.output.exists() or not promised, f"all is lost, of {len(promised)} promised"
        return
    if FolderStore(work.folder).load().finished is None:
        lost = promised - done_on_disk(work)
        assert not lost, f"lost, although acknowledged: {sorted(lost)}"


def cut_again_and_again(seed: str, cuts: int, kind: str, minutes: float = 0) -> int:
    """Cut the power so many times, or for so long; returns how often. Called in a process of its own."""
    rng, shared, done, runs = random.Random(seed), Shared(), 0, 0
    deadline = time.monotonic() + minutes * 60
    with device(kind) as disk:
        disk.mount()
        work: Workload | None = None
        while done < cuts or time.monotonic() < deadline:
            if work is None:
                runs += 1
                work = Workload(disk.mount_point / f"run-{runs}", TOTAL, concurrency=rng.choice([1, 1, 4]))
                work.lay_out()
                os.sync()
                shared.forget()
            pid = begin(work, shared)
            try:
                wait_a_little(shared, rng)
                assert not shared.failed, (disk.mount_point.parent / "error.txt").read_text()
            except BaseException:
                end(pid)
                raise
            if rng.random() < 0.25:
                # Killed only: what the next launch reads may be visible and not durable.
                end(pid)
            else:
                promised, finished = shared.promised, shared.finished
                disk.cut()
                end(pid)
                disk.unmount()
                disk.mount_again(rng)
                shared.failed = False
                done += 1
                check(work, promised, finished=finished)
            assert not shared.run_again, "a finished item was run again"
            if shared.finished and work.output.exists() and not (work.folder / "state.json").exists():
                shutil.rmtree(work.base)
                work = None
    return done


def wait_a_little(shared: Shared, rng: random.Random) -> None:
    """For a random time, for some promises, or for the end and a little more."""
    chance = rng.random()
    if chance < 0.4:
        time.sleep(rng.uniform(0, 0.02))
        return
    wanted = TOTAL if chance < 0.6 else len(shared.promised) + rng.randint(1, 12)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(shared.promised) < min(wanted, TOTAL) and not shared.finished and not shared.failed:
        assert time.monotonic() < deadline, "the launch does not get on"
        time.sleep(0)
    time.sleep(rng.choice([0, rng.uniform(0, 0.001), rng.uniform(0, 0.01)]))


def why_not(kind: str) -> str:
    """Why no power can be cut here; empty if it can."""
    if sys.platform != "linux":
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root"
    if find_program(FILE_SYSTEMS[kind].mkfs[0]) is None:
        return f"needs {FILE_SYSTEMS[kind].mkfs[0]}"
    try:
        with device(kind) as disk:
            disk.mount()
            disk.cut()
    except (OSError, subprocess.SubprocessError) as error:
        return f"needs loop devices, mount and FS_IOC_SHUTDOWN ({error})"
    return ""


@pytest.mark.parametrize("part", range(3))
def test_no_power_cut_takes_what_was_acknowledged(part: int) -> None:
    require_linux()
    require_root()
    require_program(FILE_SYSTEMS["ext4"].mkfs[0])
    reason = why_not("ext4")
    require(not reason, f"no power was cut: {reason}", remedy="run it in a container that may mount loop devices")
    assert apart("crash.test_power_cut", "cut_again_and_again", f"power {part}", CUTS // 3, "ext4") >= 100


def _long(kind: str) -> Long:
    def long(rng: random.Random, minutes: float) -> tuple[int, int]:
        if reason := why_not(kind):
            print(f"SKIPPED, no power was cut on {kind}: {reason}", file=sys.stderr)
            return 0, 0
        deadline, tried, failed = time.monotonic() + minutes * 60, 0, 0
        while time.monotonic() < deadline:
            seed, left = f"{rng.getrandbits(64):x}", (deadline - time.monotonic()) / 60
            arguments = (seed, 1, kind, min(left, 1.0))
            try:
                tried += apart("crash.test_power_cut", "cut_again_and_again", *arguments)
            except AssertionError as error:
                tried, failed = tried + 1, failed + 1
                print(f"FAILED with the seed {seed!r}: {error}", file=sys.stderr)
        return tried, failed

    return long


LONG: dict[str, Long] = {"power cut, ext4": _long("ext4"), "power cut, XFS": _long("xfs")}
