"""The folder of the results: made where it is missing, and durably."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agentrun.errors import DiskError, JobError
from agentrun.outputs.place import check_output_folder, make_output_folder
from agentrun.system.disk import Disk


class SeenDisk(Disk):
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        super().mkdir(path, mode)
        self.calls.append(("mkdir", path))

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self.calls.append(("fsync", os.readlink(f"/proc/self/fd/{fd}") if os.path.isdir("/proc/self/fd") else "?"))


def make(folder: Path, base: Path, disk: Disk | None = None) -> None:
    check_output_folder(folder, folder / "out.jsonl")
    make_output_folder(folder, folder / "out.jsonl", base=base, disk=disk or Disk())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the names of open folders are read from /proc")
def test_each_folder_that_is_made_is_synced_into_the_one_above_it(tmp_path: Path) -> None:
    disk, base = SeenDisk(), tmp_path.resolve()
    make(base / "a" / "b", base, disk)
    assert disk.calls == [
        ("mkdir", f"{base}/a"),
        ("mkdir", f"{base}/a/b"),
        ("fsync", f"{base}/a"),
        ("fsync", f"{base}"),
    ]
    # By a launch that was killed before it had synced them, for all we know.
    disk.calls.clear()
    make(base / "a" / "b", base, disk)
    assert disk.calls == [("fsync", f"{base}/a"), ("fsync", f"{base}")]
    disk.calls.clear()
    make(base, base, disk)
    assert disk.calls == []


def test_checking_makes_nothing(tmp_path: Path) -> None:
    check_output_folder(tmp_path / "a" / "b", tmp_path / "a" / "b" / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_others_can_read_the_folder_as_they_can_the_results(tmp_path: Path) -> None:
    make(tmp_path / "out", tmp_path)
    assert (tmp_path / "out").stat().st_mode & 0o700 == 0o700
    assert (tmp_path / "out").stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("inside", ["file", "file/a/b", "broken", "broken/a"])
def test_a_file_or_a_broken_link_in_the_way_is_named(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    at = tmp_path / inside.partition("/")[0]
    with pytest.raises(JobError, match=f"out.jsonl: {at} is not a folder; choose another output with -o"):
        make(tmp_path / inside, tmp_path)


def test_a_folder_that_cannot_be_made_says_where_and_why(ordinary_folder: Path) -> None:
    ordinary_folder.chmod(0o500)
    with pytest.raises(
        JobError, match=f"the folder .*/a/b cannot be made, because {ordinary_folder} cannot be written"
    ):
        make(ordinary_folder / "a" / "b", ordinary_folder)


@pytest.mark.parametrize(("number", "error"), [(errno.EROFS, JobError), (errno.ENOSPC, DiskError)])
def test_what_only_the_disk_knows_is_told_too(tmp_path: Path, number: int, error: type[Exception]) -> None:
    class Failing(Disk):
        def mkdir(self, path: str, mode: int = 0o700) -> None:
            raise OSError(number, os.strerror(number), path)

    with pytest.raises(error, match="/a"):
        make(tmp_path / "a", tmp_path, Failing())
