"""File systems on loop devices, for the tests that cut the power. Needs root.

A loop device detaches itself when nobody has it open or mounted, and a `workbench` is cleared away by a process of its
own: nothing stays mounted, however the test ends.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crash.workload import tmpfs
from needs import find_program
from waiting import eventually

DETACH = 2
PREFIX = "agentrun-mounts-"
"""Of the folder in which everything is mounted; the pid of its maker follows."""
_PDEATHSIG = 1
_GET_FREE, _CONFIGURE = 0x4C82, 0x4C0A
_LOOP_MAJOR = 7
_AUTOCLEAR = 4
# struct loop_config: descriptor, block size; of its struct loop_info64 only the flags are set.
_LOOP_CONFIG = struct.Struct("<II52xI240x")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class FileSystem:
    """How one is made and mounted for a power cut, and what it may expect of a disk."""

    name: str
    mkfs: tuple[str, ...]
    size_bytes: int
    options: tuple[str, ...]
    """What it is mounted with, one of them at random. For ext4 they are those with which it writes nothing for us:
    without the flush that it does for a rename over a file, and with data in no order."""
    superblock: range
    """Bytes that the disk writes at once or not at all. Those of ext4 and btrfs are larger than a sector, are written
    over in place, and have one checksum: torn inside, they cannot be mounted (seen), and nothing is left to test."""


FILE_SYSTEMS = {
    "ext4": FileSystem(
        "ext4",
        ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0"),
        24 << 20,
        ("noauto_da_alloc,data=writeback", "noauto_da_alloc,data=ordered", ""),
        range(1024, 2048),
    ),
    "xfs": FileSystem("xfs", ("mkfs.xfs", "-q", "-f"), 320 << 20, ("",), range(512)),
    "btrfs": FileSystem("btrfs", ("mkfs.btrfs", "-q", "-f"), 128 << 20, ("",), range(65536, 69632)),
}


def make(system: FileSystem, image: Path) -> None:
    """An image that holds an empty file system."""
    with open(image, "wb") as file:
        file.truncate(system.size_bytes)
    program, *options = system.mkfs
    subprocess.run([find_program(program) or program, *options, str(image)], check=True, capture_output=True)


def attach(image: Path) -> tuple[int, str]:
    """A loop device over the image: its descriptor, and its path. It stays as long as it is open or mounted."""
    with open(image, "r+b") as file, open("/dev/loop-control", "rb") as control:
        while True:
            number = fcntl.ioctl(control, _GET_FREE)
            path = f"/dev/loop{number}"
            if not os.path.exists(path):
                os.mknod(path, 0o600 | 0o060000, os.makedev(_LOOP_MAJOR, number))
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(fd, _CONFIGURE, _LOOP_CONFIG.pack(file.fileno(), 0, _AUTOCLEAR))
                return fd, path
            except OSError as error:
                os.close(fd)
                # Another process has taken it meanwhile.
                if error.errno != errno.EBUSY:
                    raise


def mount(source: str, target: Path, kind: str, options: str = "") -> None:
    given = (os.fsencode(one) for one in (source, target, kind))
    if _libc.mount(*given, 0, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}, when mounting {kind}", str(target))


def unmount(target: Path, flags: int = 0) -> bool:
    """Whether it was done; not where it is in use, or nothing is mounted."""
    return bool(_libc.umount2(os.fsencode(target), flags) == 0)


@contextmanager
def mounted(image: Path, target: Path, system: FileSystem, options: str) -> Iterator[Path]:
    fd, device = attach(image)
    try:
        mount(device, target, system.name, options)
    finally:
        os.close(fd)
    try:
        yield target
    finally:
        eventually(lambda: unmount(target), f"{target} unmounted")
        # Whoever else looked at the mount just then may be the one who ends it, later, and it still writes then.
        eventually(lambda: not _is_attached(device, image), f"{device} detached")


def _is_attached(device: str, image: Path) -> bool:
    try:
        return Path(f"/sys/block/{os.path.basename(device)}/loop/backing_file").read_text().startswith(str(image))
    except OSError:
        return False


def die_with_parent(parent: int) -> None:
    """To be called first in a forked child of the process `parent`."""
    _libc.prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


# ---- cleared away whatever happens


@contextmanager
def workbench() -> Iterator[Path]:
    """A folder in memory for images and mount points.

    Another process waits for the end of a pipe that ours and its children have open, then unmounts and removes
    everything. It does so after `kill -9` as well, in a session of its own, which no Ctrl-C reaches.
    """
    sweep()
    folder, held = _new_folder()
    until, alive = os.pipe()
    cleaner = os.fork()
    if not cleaner:
        try:
            os.setsid()
            os.close(alive)
            os.read(until, 1)
            _clear(folder)
        finally:
            os._exit(0)
    os.close(until)
    os.close(held)
    try:
        yield folder
    finally:
        os.close(alive)
        os.waitpid(cleaner, 0)
    assert not folder.exists(), f"{folder} is left behind"


def _new_folder() -> tuple[Path, int]:
    """And a descriptor that locks it: while its cleaner lives, nobody sweeps it away."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=tmpfs())).resolve()
        held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_EX)
        if folder.exists():
            return folder, held
        # Swept away before it was locked.
        os.close(held)


def sweep() -> None:
    """Clear away benches whose cleaner was killed too: those that nobody holds."""
    for folder in Path(tmpfs() or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            fd = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(folder)
        except BlockingIOError:
            pass
        finally:
            os.close(fd)


def _clear(folder: Path) -> None:
    # The last one mounted first: a loop device's file may lie in a file system that was mounted before it.
    for point in reversed(_mounted_below(folder)):
        unmount(point, DETACH)
    shutil.rmtree(folder, ignore_errors=True)


def _mounted_below(folder: Path) -> list[Path]:
    points = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if point.is_relative_to(folder)]


def copy_sparsely(source: Path, target: Path) -> None:
    """Without its holes, which are most of an image."""
    with open(source, "rb") as old, open(target, "wb") as new:
        size, at = os.fstat(old.fileno()).st_size, 0
        new.truncate(size)
        while at < size:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break
            end = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            while at < end:
                at += os.pwrite(new.fileno(), os.pread(old.fileno(), min(end - at, 1 << 20), at), at)
