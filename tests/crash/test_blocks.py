"""Power cuts below the file system: every write and flush is logged, and what was not flushed is lost or reordered."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crash.blockdisk import Entry, Kind
from crash.blocks import CUTS_OF_ONE_RECORDING, SECTOR_BYTES, Cutter
from crash.harness import TESTS, Long, apart
from crash.mounting import FILE_SYSTEMS, PREFIX
from crash.recordings import Recording, Start
from needs import find_program, require_linux, require_program, require_root
from waiting import eventually

CONTROL_CUTS = 200
"""Within so many a missing fsync is noticed. Seen: within 32."""
NOTHING = range(0)


def cut(seed: str, kind: str, *arguments: Any) -> dict[str, Any]:
    require_linux()
    require_root()
    require_program(FILE_SYSTEMS[kind].mkfs[0])
    found: dict[str, Any] = apart("crash.blocks", "cut_again_and_again", seed, kind, *arguments)
    if found["impossible"]:
        # With CI=true too: it is the kernel that lacks something, and no package has it.
        pytest.skip(f"NOT TESTED, no power was cut: {found['impossible']}")
    return found


def test_no_power_cut_with_reordered_writes_takes_what_was_acknowledged() -> None:
    found = cut("blocks", "ext4", CUTS_OF_ONE_RECORDING)
    assert not found["faults"], found["faults"]
    assert found["cuts"] == CUTS_OF_ONE_RECORDING
    # The log is worth something only if the fsyncs are in it.
    assert found["flushes"] >= found["fsyncs"] >= found["acknowledgements"] > 0, found


@pytest.mark.parametrize("kind", FILE_SYSTEMS)
def test_a_missing_fsync_of_the_folder_is_noticed(kind: str) -> None:
    found = cut("control", kind, CONTROL_CUTS, 0, "folder")
    assert any("lost: ['document" in fault for fault in found["faults"]), found


def test_nothing_stays_mounted_when_the_test_is_killed() -> None:
    cut("before", "ext4", 1)
    process = subprocess.Popen(
        [sys.executable, "-m", "crash.blocks", "ext4", "--minutes", "5"],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        start_new_session=True,
    )
    ours = f"/{PREFIX}{process.pid}-"
    try:
        # The loop device is above the served disk, so that both are mounted.
        eventually(lambda: _mounted(ours) >= 2, "a run is recorded", alive=process)
    finally:
        process.kill()
        process.wait()
    eventually(lambda: _mounted(ours) == 0, "all is unmounted")
    eventually(lambda: not list(Path("/dev/shm").glob(f"{ours[1:]}*")), "all is removed")


def _mounted(ours: str) -> int:
    return Path("/proc/self/mountinfo").read_text().count(ours)


# ---- the cut itself


def test_a_cut_keeps_what_was_flushed_and_any_of_the_rest_before_it(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(bytes(4 * SECTOR_BYTES))
    writes = [_write(0, "a"), Entry(Kind.FLUSH, 0, b""), _write(0, "b"), _write(1, "cd"), _write(3, "e")]
    recording = Recording(Start(tmp_path / "empty"), writes)
    seen = set()
    for seed in range(500):
        Cutter(recording, tmp_path / "durable", NOTHING).cut(4, seed, tmp_path / "left")
        left = (tmp_path / "left").read_bytes()
        assert all(len(set(left[at : at + SECTOR_BYTES])) == 1 for at in range(0, len(left), SECTOR_BYTES))
        seen.add(left[::SECTOR_BYTES].replace(b"\0", b".").decode())
    # The second write may be there before the first one, and torn; the last one came after the cut.
    assert seen == {f"{first}{second}{third}." for first in "ab" for second in ".c" for third in ".d"}


def test_a_superblock_is_never_torn(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(bytes(4 * SECTOR_BYTES))
    recording = Recording(Start(tmp_path / "empty"), [_write(0, "abcd")])
    seen = set()
    for seed in range(500):
        superblock = range(SECTOR_BYTES, 3 * SECTOR_BYTES)
        Cutter(recording, tmp_path / "durable", superblock).cut(1, seed, tmp_path / "left")
        seen.add((tmp_path / "left").read_bytes()[::SECTOR_BYTES].replace(b"\0", b".").decode())
    assert seen == {f"{first}{middle}{last}" for first in ".a" for middle in ("..", "bc") for last in ".d"}


def _write(sector: int, letters: str) -> Entry:
    return Entry(Kind.WRITE, sector * SECTOR_BYTES, b"".join(letter.encode() * SECTOR_BYTES for letter in letters))


# ---- the long set


def _long(kind: str) -> Long:
    def long(rng: random.Random, minutes: float) -> tuple[int, int]:
        """The controls first: without them, finding nothing would say nothing."""
        if sys.platform != "linux" or os.geteuid() != 0 or find_program(FILE_SYSTEMS[kind].mkfs[0]) is None:
            print(f"SKIPPED, no power was cut: needs Linux, root and {FILE_SYSTEMS[kind].mkfs[0]}", file=sys.stderr)
            return 0, 0
        deadline, tried, failed = time.monotonic() + minutes * 60, 0, 0
        for without in ("folder", "file"):
            found = _cut(f"{rng.getrandbits(64):x}", kind, CONTROL_CUTS, 0, without)
            if found["impossible"]:
                print(f"SKIPPED, no power was cut: {found['impossible']}", file=sys.stderr)
                return 0, 0
            if not found["faults"]:
                failed += 1
                print(f"FAILED: in {found['cuts']} cuts no fsync of a {without} was missed", file=sys.stderr)
        while (left := (deadline - time.monotonic()) / 60) > 0:
            seed = f"{rng.getrandbits(64):x}"
            found = _cut(seed, kind, 0, min(left, 1.0))
            tried += found["cuts"]
            failed += len(found["faults"])
            for fault in found["faults"]:
                print(f"FAILED with the seed {seed!r}: {fault}", file=sys.stderr)
        return tried, failed

    return long


def _cut(*arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = apart("crash.blocks", "cut_again_and_again", *arguments)
    return found


LONG: dict[str, Long] = {kind: _long(kind) for kind in FILE_SYSTEMS}
