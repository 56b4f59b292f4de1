"""Power cuts below the file system: every write and flush that reaches the disk is logged, and cut with reordering.

A run is recorded on a disk that writes down what reaches it (`blockdisk`), with the moments at which items were
acknowledged in the same log. A cut is a position in that log: what came before the last flush is there; of the writes
since then any part is, down to single sectors, in any order. Such a disk is mounted, so that the file system
recovers, and then the run must recover too: everything that was acknowledged is there and is not run again.

A cut is sometimes the start of the next recording, which then has the file system's own recovery in its log.

    PYTHONPATH=tests python -m crash.blocks ext4 --minutes 5 [--without folder] [--seed 7]

The seed decides about kills and cuts, but not when the file system writes what: a fault keeps the disk it was found on.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from crash.blockdisk import Entry, Kind, check_served
from crash.harness import Fault
from crash.mounting import FILE_SYSTEMS, FileSystem, copy_sparsely, workbench
from crash.recordings import Bench, Recording, Start, Without

CUTS_OF_ONE_RECORDING = 40
SECTOR_BYTES = 512
_IMPOSSIBLE = (errno.ENODEV, errno.ENOENT, errno.ENXIO, errno.EPERM, errno.EACCES)
"""The kernel does not know FUSE, loop devices or the file system, or forbids them."""


# ---- a cut


def survivors(writes: list[Entry], whole: range, chance: random.Random) -> list[tuple[int, bytes]]:
    """What a disk has kept of the writes since the last flush, in the order in which it wrote them; each write is whole
    or torn, but never inside a sector or inside `whole`."""
    is_torn, share = chance.random() < 0.5, chance.choice([0.0, 0.1, 0.5, 0.5, 0.9, 1.0])
    pieces = [piece for write in writes for piece in (_torn(write, whole) if is_torn else [write])]
    chance.shuffle(pieces)
    return [(piece.offset, piece.data) for piece in pieces if chance.random() < share]


def _torn(write: Entry, whole: range) -> Iterator[Entry]:
    at, end = write.offset, write.offset + len(write.data)
    while at < end:
        until = min(end, whole.stop if at in whole else (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield Entry(Kind.WRITE, at, write.data[at - write.offset : until - write.offset])
        at = until


class Cutter:
    """Disks that power cuts leave, at ascending positions of one recording."""

    def __init__(self, recording: Recording, durable: Path, whole: range) -> None:
        self.recording = recording
        self._log = recording.log
        self._durable = durable
        self._whole = whole
        self._until = 0
        copy_sparsely(recording.start.image, durable)

    def cut(self, position: int, seed: int, image: Path) -> None:
        """Cut when so many entries have reached the disk."""
        volatile = [entry for entry in self._pass(position) if entry.kind is Kind.WRITE]
        copy_sparsely(self._durable, image)
        _write(image, survivors(volatile, self._whole, random.Random(seed)))

    def _pass(self, position: int) -> list[Entry]:
        """Make everything before the last flush durable; returns the rest."""
        flushed = max((n for n in range(position) if self._log[n].kind is Kind.FLUSH), default=0)
        new = self._log[self._until : flushed]
        _write(self._durable, [(entry.offset, entry.data) for entry in new if entry.kind is Kind.WRITE])
        self._until = max(self._until, flushed)
        return self._log[flushed:position]


def _write(image: Path, pieces: list[tuple[int, bytes]]) -> None:
    with open(image, "r+b", buffering=0) as file:
        for offset, data in pieces:
            os.pwrite(file.fileno(), data, offset)


def positions(recording: Recording, count: int, chance: random.Random) -> list[int]:
    """Where to cut: anywhere, and a third of the times right after something was promised."""
    promises = [
        n + 1
        for n, entry in enumerate(recording.log)
        if entry.kind is Kind.MARK and orjson.loads(entry.data)[0] in ("told", "completed")
    ]
    anywhere = range(1, len(recording.log) + 1)
    return sorted(chance.choice(promises if chance.random() < 1 / 3 else anywhere) for _ in range(count))


# ---- again and again


@dataclass(slots=True)
class Tally:
    impossible: str = ""
    """Why this machine cannot do it: its kernel, or what we may do."""
    recordings: int = 0
    cuts: int = 0
    writes: int = 0
    flushes: int = 0
    fsyncs: int = 0
    acknowledgements: int = 0
    recording_seconds: float = 0.0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, recording: Recording) -> None:
        self.recordings += 1
        self.writes += recording.count(Kind.WRITE)
        self.flushes += recording.count(Kind.FLUSH)
        marks = [what for what, value in recording.marks() if value]
        self.fsyncs += marks.count("fsync")
        self.acknowledgements += marks.count("told")


def cut_again_and_again(seed: str, kind: str, cuts: int, minutes: float = 0, without: Without = "") -> dict[str, Any]:
    """Cut so many times, or for so long, until a fault is found. Called in a process of its own."""
    chance, system, tally, began = random.Random(seed), FILE_SYSTEMS[kind], Tally(), time.monotonic()

    def goes_on() -> bool:
        is_wanted = time.monotonic() < began + minutes * 60 if minutes else tally.cuts < cuts
        return is_wanted and not tally.faults

    with workbench() as folder:
        try:
            check_served()
            bench = Bench(folder, system, chance)
        except OSError as error:
            if error.errno not in _IMPOSSIBLE:
                raise
            tally.impossible = f"no disk with {kind} can be served and mounted here: {error}"
            return asdict(tally)
        start: Start | None = None
        while goes_on():
            since = time.monotonic()
            try:
                recording = bench.record(start, without)
            except (Fault, AssertionError) as error:
                began_on = f"\nthe disk it began on: {_keep(start.image)}" if start and not without else ""
                tally.faults.append(f"while a run was recorded: {error}{began_on}")
                break
            tally.recording_seconds += time.monotonic() - since
            tally.add(recording)
            cutter = Cutter(recording, folder / "durable", system.superblock)
            for position in positions(recording, CUTS_OF_ONE_RECORDING, chance):
                if goes_on():
                    fault = cut_once(bench, cutter, position, chance.getrandbits(32), folder / "left", keep=not without)
                    tally.cuts += 1
                    tally.faults += [f"cut {tally.cuts}: {fault}"] if fault else []
            start = next_start(recording, system, folder, chance)
    tally.seconds = round(time.monotonic() - began, 1)
    tally.recording_seconds = round(tally.recording_seconds, 1)
    return asdict(tally)


def cut_once(bench: Bench, cutter: Cutter, position: int, seed: int, image: Path, *, keep: bool) -> str:
    """Cut there and recover; returns what was broken, or nothing. To keep: the disk on which that was seen."""
    told, completed = cutter.recording.promised_before(position)
    cutter.cut(position, seed, image)
    try:
        bench.recover(image, told, completed)
    except (Fault, OSError) as error:
        fault = f"at {position} of {len(cutter.recording.log)} entries, {len(told)} items acknowledged: {error}"
        if keep:
            cutter.cut(position, seed, image)
            fault += f"\nthe disk as the cut left it: {_keep(image)}"
        return fault
    return ""


def next_start(recording: Recording, system: FileSystem, folder: Path, chance: random.Random) -> Start | None:
    """What another cut of this recording left, every other time; or an empty disk."""
    position = chance.randrange(1, len(recording.log) + 1)
    told, completed = recording.promised_before(position)
    if completed or chance.random() < 0.5:
        return None
    image = folder / "next"
    Cutter(recording, folder / "durable", system.superblock).cut(position, chance.getrandbits(32), image)
    # The recording that ends here may itself have begun with the one that is replaced.
    os.replace(image, folder / "start")
    return Start(folder / "start", told)


def _keep(image: Path) -> str:
    fd, path = tempfile.mkstemp(prefix="agentrun-power-cut-", suffix=".img")
    os.close(fd)
    copy_sparsely(image, Path(path))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="crash.blocks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=list(FILE_SYSTEMS))
    parser.add_argument("--seed", default="1")
    parser.add_argument("--cuts", type=int, default=CUTS_OF_ONE_RECORDING)
    parser.add_argument("--minutes", type=float, default=0.0, help="instead of a number of cuts")
    parser.add_argument("--without", choices=["", "folder", "file"], default="", help="a control: no fsync of these")
    asked = parser.parse_args()
    found = cut_again_and_again(asked.seed, asked.kind, asked.cuts, asked.minutes, asked.without)
    print(json.dumps(found, indent=1))
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
