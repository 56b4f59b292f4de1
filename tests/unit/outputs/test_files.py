from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.checkpoint.record import PublishedFile
from agentrun.errors import DiskError, UsageError
from agentrun.item import key_digest
from agentrun.outputs.files import FILES_MOST, ItemFiles, ItemFilesError, differing_files, files_folder
from agentrun.system.disk import Disk
from agentrun.values.names import folder_name
from crash.disks import FaultyDisk, RecordingDisk
from crash.model import Model, State, Told
from needs import require

SHA_A = hashlib.sha256(b"a").hexdigest()


class Place:
    """A job's folder and an output, with one item's folder in it."""

    def __init__(self, base: Path, disk: Disk | None = None) -> None:
        self.folder, self.output = base / "job", base / "out" / "res.jsonl"
        self.folder.mkdir(mode=0o700)
        self.output.parent.mkdir()
        self.files = ItemFiles(self.folder, disk)
        self.work = self.files.work("k", 0)
        (self.work / "out").mkdir(parents=True, mode=0o700)

    def write(self, name: str, content: bytes) -> Path:
        path = self.work / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def publish(self, key: str = "k") -> list[PublishedFile]:
        return self.files.publish(self.work, self.output, key)

    def published(self) -> dict[str, bytes]:
        home = files_folder(self.output)
        return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class NoCopyRange(Disk):
    """The results are on a file system to which the system cannot copy by itself."""

    def copy_some(self, source: int, fd: int) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def as_results(files: list[PublishedFile]) -> list[PublishedFile]:
    """Without the times, which differ."""
    assert all(one.mtime_ns for one in files)
    return [one.as_result for one in files]


def test_an_items_folder_is_its_keys_and_another_in_each_generation(tmp_path: Path) -> None:
    files = ItemFiles(tmp_path)
    assert files.work("a/../b", 0) == tmp_path / "work" / key_digest("a/../b").hex()
    assert files.work("a", 2).name == f"{key_digest('a').hex()}-g2"
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("disk", [Disk(), NoCopyRange()], ids=["by the system", "piece by piece"])
def test_files_are_published_beside_the_results_and_named_with_size_and_hash(tmp_path: Path, disk: Disk) -> None:
    place = Place(tmp_path, disk)
    place.write("b/c/d.bin", b"\x00" * 5)
    place.write("a.txt", b"a")
    assert as_results(place.publish()) == [
        PublishedFile("res.files/k/a.txt", 1, SHA_A),
        PublishedFile("res.files/k/b/c/d.bin", 5, hashlib.sha256(b"\x00" * 5).hexdigest()),
    ]
    assert place.published() == {"k/a.txt": b"a", "k/b/c/d.bin": b"\x00" * 5}
    # It is still the item's, in case the checkpoint does not come.
    assert (place.work / "out" / "a.txt").read_bytes() == b"a"


def test_results_on_another_file_system_get_copies(place: Place, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    is_another = os.access(shared, os.W_OK) and shared.stat().st_dev != tmp_path.stat().st_dev
    require(is_another, "there is no second file system to write to", remedy="mount one on /dev/shm, or set TMPDIR")
    with tempfile.TemporaryDirectory(dir=shared) as elsewhere:
        place.output = Path(elsewhere) / "res.jsonl"
        place.write("sub/a", b"a")
        assert as_results(place.publish()) == [PublishedFile("res.files/k/sub/a", 1, SHA_A)]
        assert place.published() == {"k/sub/a": b"a"}


def test_where_nothing_was_left_nothing_is_made(place: Place) -> None:
    (place.work / "out" / "empty").mkdir()
    assert place.publish() == []
    assert place.files.publish(place.files.work("never ran", 0), place.output, "never ran") == []
    assert not files_folder(place.output).exists()


def test_modes_are_those_of_results_whatever_the_attempt_made_them(place: Place) -> None:
    for name, mode in (("x/secret", 0o000), ("x/tool", 0o777)):
        os.chmod(place.write(name, b"a"), mode)
    os.chmod(place.work / "out" / "x", 0o300)
    before = os.umask(0o022)
    try:
        place.publish()
    finally:
        os.umask(before)
    home = files_folder(place.output)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.rglob("*"))}
    assert modes == {"res.files": 0o755, "k": 0o755, "x": 0o755, "secret": 0o644, "tool": 0o644}


def test_a_private_umask_keeps_them_private(place: Place) -> None:
    place.write("a", b"a")
    before = os.umask(0o077)
    try:
        place.publish()
    finally:
        os.umask(before)
    home = files_folder(place.output)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "k", home / "k" / "a")] == [0o700, 0o700, 0o600]


def test_what_was_there_is_replaced_as_a_whole(place: Place) -> None:
    place.write("old", b"1")
    place.publish()
    (place.work / "out" / "old").unlink()
    place.write("new", b"2")
    place.publish()
    assert place.published() == {"k/new": b"2"}
    assert os.listdir(files_folder(place.output)) == ["k"]


def test_whoever_still_has_a_file_open_does_not_change_what_was_published(place: Place) -> None:
    with place.write("a", b"before").open("r+b") as kept_open:
        (listed,) = place.publish()
        kept_open.write(b"after!")
    assert place.published() == {"k/a": b"before"}
    assert listed.sha256 == hashlib.sha256(b"before").hexdigest()
    assert os.stat(place.output.parent / listed.path).st_nlink == 1


def test_a_file_that_is_somebody_elses_too_keeps_its_mode(place: Place) -> None:
    theirs = place.folder / "theirs"
    theirs.write_bytes(b"before")
    os.chmod(theirs, 0o600)
    os.link(theirs, place.work / "out" / "a")
    place.publish()
    theirs.write_bytes(b"after")
    assert place.published() == {"k/a": b"before"}
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o600


def test_the_hash_is_of_what_was_published_even_if_the_file_changes_meanwhile(tmp_path: Path) -> None:
    class Meanwhile(Disk):
        def copy_some(self, source: int, fd: int) -> int:
            copied = super().copy_some(source, fd)
            (busy.work / "out" / "a").write_bytes(b"later, and longer")
            return copied

    busy = Place(tmp_path, Meanwhile())
    busy.write("a", b"before")
    (listed,) = busy.publish()
    (content,) = busy.published().values()
    assert (listed.size, listed.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_a_descriptor_that_an_agent_closed_meanwhile_is_told_and_its_own_file_left_alone(tmp_path: Path) -> None:
    class Closing(Disk):
        def copy_some(self, source: int, fd: int) -> int:
            copied = super().copy_some(source, fd)
            if copied:
                # Twice closed: the number was ours by then, and is the agent's now.
                os.close(fd)
                assert os.open(agents, os.O_RDWR) == fd
                numbers.append(fd)
            return copied

    agents, numbers = tmp_path / "agents", list[int]()
    agents.write_bytes(b"the agent's own")
    place = Place(tmp_path, Closing())
    place.write("a", b"a")
    with pytest.raises(DiskError, match="closed by other code in this process"):
        place.publish()
    assert agents.read_bytes() == b"the agent's own" and place.published() == {}
    os.close(numbers[0])


# ---- the published files, afterwards


def test_published_files_that_are_as_recorded_are_not_read_again(place: Place) -> None:
    place.write("a", b"a")
    (listed,) = place.publish()
    assert not list(differing_files(place.output.parent, [listed]))
    # With another hash on record nobody would notice.
    wrong = PublishedFile(listed.path, listed.size, "0" * 64, listed.mtime_ns)
    assert not list(differing_files(place.output.parent, [wrong]))


def test_a_published_file_that_was_only_touched_or_moved_is_known_by_its_hash(place: Place) -> None:
    place.write("a", b"a")
    (listed,) = place.publish()
    os.utime(place.output.parent / listed.path)
    assert not list(differing_files(place.output.parent, [listed, listed.as_result]))


def overwrite(path: Path) -> None:
    path.write_bytes(b"b")


def lengthen(path: Path) -> None:
    path.write_bytes(b"aa")


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (overwrite, "was changed"),
        (lengthen, "has 2 bytes instead of 1"),
        (Path.unlink, "is missing"),
        (replace_by_link, "cannot be read"),
        (replace_by_pipe, "cannot be read"),
    ],
)
def test_a_published_file_that_differs_or_is_missing_is_named(
    place: Place, act: Callable[[Path], None], what: str
) -> None:
    place.write("a", b"a")
    place.write("b", b"b")
    first, second = place.publish()
    act(place.output.parent / first.path)
    assert list(differing_files(place.output.parent, [first, second])) == [(first, what)]
    assert place.files.carry_over([first, second], place.output, place.output.with_name("new.jsonl"), "k") is None
    assert not files_folder(place.output.with_name("new.jsonl")).exists() or not os.listdir(
        files_folder(place.output.with_name("new.jsonl"))
    )


def test_files_are_carried_over_to_another_output(place: Place, tmp_path: Path) -> None:
    place.write("a", b"a")
    place.write("sub/deep/b", b"b")
    before = place.publish()
    new = tmp_path / "elsewhere" / "next.jsonl"
    new.parent.mkdir()
    carried = place.files.carry_over(before, place.output, new, "k")
    assert carried is not None
    assert [one.path for one in carried] == ["next.files/k/a", "next.files/k/sub/deep/b"]
    assert [(one.size, one.sha256) for one in carried] == [(one.size, one.sha256) for one in before]
    assert not list(differing_files(new.parent, carried)) and not list(differing_files(place.output.parent, before))
    assert (new.parent / carried[1].path).read_bytes() == b"b"
    assert not os.path.samefile(new.parent / carried[0].path, place.output.parent / before[0].path)


def test_files_that_are_there_already_are_not_copied(place: Place) -> None:
    place.write("a", b"a")
    before = place.publish()
    assert place.files.carry_over(before, place.output, place.output.with_suffix(".txt"), "k") == before
    assert place.files.carry_over([], place.output, place.output.with_name("new.jsonl"), "k") == []
    lengthen(place.output.parent / before[0].path)
    assert place.files.carry_over(before, place.output, place.output, "k") is None


@pytest.mark.parametrize("path", ["res.files/k/../../secret", "res.files/other/a", "/etc/hostname"])
def test_only_an_items_own_files_are_carried_over(place: Place, path: str) -> None:
    (place.output.parent / "secret").write_bytes(b"a")
    place.write("a", b"a")
    place.publish("other")
    named = PublishedFile(path, 1, SHA_A)
    assert place.files.carry_over([named], place.output, place.output.with_name("new.jsonl"), "k") is None


def test_a_full_disk_while_files_are_carried_over_is_told(place: Place) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place.write("a", b"a")
    listed, new = place.publish(), place.output.with_name("new.jsonl")
    for n in range(1, 50):
        try:
            ItemFiles(place.folder, FaultyDisk("fsync", n, full)).carry_over(listed, place.output, new, "k")
        except DiskError as error:
            assert "the disk is full" in error.message
        else:
            break
    assert n > 1
    assert (files_folder(new) / "k" / "a").read_bytes() == b"a"


# ---- what is refused


def make_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        at = os.getcwd()
        os.chdir(path.parent)
        try:
            server.bind(path.name)
        finally:
            os.chdir(at)


@pytest.mark.parametrize("make", [make_link, os.mkfifo, make_socket])
def test_what_is_no_file_is_refused_by_name(place: Place, make: Callable[[Path], None]) -> None:
    place.write("sub/good", b"a")
    make(place.work / "out" / "sub" / "bad")
    with pytest.raises(ItemFilesError, match=r"out/sub/bad: is (a symbolic link|not a regular file)"):
        place.publish()
    assert not files_folder(place.output).exists()


def test_a_name_that_no_result_could_hold_is_refused(place: Place) -> None:
    (place.work / "out" / os.fsdecode(b"\xff")).write_bytes(b"")
    with pytest.raises(ItemFilesError, match="is not UTF-8"):
        place.publish()


def test_too_many_files_and_too_deep_ones_are_refused(place: Place) -> None:
    for number in range(FILES_MOST + 1):
        place.write(f"{number}", b"")
    with pytest.raises(ItemFilesError, match="more than 1,000 files"):
        place.publish()
    place.files.forget("k", 0)
    place.write("/".join(["x" * 100] * 11), b"")
    with pytest.raises(ItemFilesError, match="its path is longer than 1,024 bytes"):
        place.publish()


@pytest.mark.parametrize("level", ["work", "item", "out"])
def test_a_planted_link_is_not_followed(place: Place, tmp_path: Path, level: str) -> None:
    planted = {"work": place.work.parent, "item": place.work, "out": place.work / "out"}[level]
    elsewhere = tmp_path / "elsewhere"
    planted.rename(elsewhere)
    planted.symlink_to(elsewhere)
    (elsewhere / "secret").write_bytes(b"")
    with pytest.raises((UsageError, ItemFilesError), match=r"is (not|no longer) a folder"):
        place.publish()
    if level == "work":
        with pytest.raises(UsageError, match="is not a folder"):
            place.files.sweep(lambda digest: True)
    else:
        place.files.forget("k", 0)
    assert (elsewhere / "secret").exists()


def test_a_link_in_place_of_the_published_files_is_not_followed(place: Place, tmp_path: Path) -> None:
    place.write("a", b"a")
    (tmp_path / "elsewhere").mkdir()
    files_folder(place.output).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"res\.files: is not a folder"):
        place.publish()


def test_a_link_in_place_of_an_items_published_files_is_replaced_not_followed(place: Place, tmp_path: Path) -> None:
    place.write("a", b"a")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"")
    files_folder(place.output).mkdir()
    (files_folder(place.output) / "k").symlink_to(elsewhere)
    place.publish()
    assert place.published() == {"k/a": b"a"}
    assert os.listdir(elsewhere) == ["precious"]


def test_keys_that_are_no_names_get_a_readable_one(place: Place) -> None:
    place.write("a", b"a")
    (one,) = place.publish("../../docs/ü 1.txt")
    assert one.path == f"res.files/{folder_name('../../docs/ü 1.txt')}/a"
    assert (place.output.parent / one.path).read_bytes() == b"a"


@pytest.mark.parametrize("key", ["a", "0001.txt", "A-b_c.d", "x" * 100])
def test_a_plain_key_is_its_own_name(key: str) -> None:
    assert folder_name(key) == key


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "-x", ".x", "x" * 101, "a\n", "é", "\ud800", "a_b-0123abcd"])
def test_any_other_key_has_its_digest_in_its_name(key: str) -> None:
    name = folder_name(key)
    assert name.endswith("-" + key_digest(key).hex()[:8]) and name != key
    assert name.isascii() and name[0] not in ".-" and "/" not in name and len(name) <= 100


def test_what_is_done_is_forgotten_with_the_generations_before(place: Place) -> None:
    for generation in range(3):
        (place.files.work("k", generation) / "dir" / "deep").mkdir(parents=True, exist_ok=True)
    other = place.files.work("other", 0)
    other.mkdir()
    locked = place.files.work("k", 1) / "dir"
    (locked / "deep" / "f").write_bytes(b"")
    os.chmod(locked, 0o500)
    place.files.forget("k", 2)
    place.files.forget("never seen", 0)
    assert os.listdir(place.folder / "work") == [other.name]


def test_a_sweep_removes_the_folders_of_done_items_and_what_was_half_published(place: Place) -> None:
    kept, stray = place.files.work("pending", 3), place.folder / "work" / "not-ours"
    kept.mkdir()
    stray.mkdir()
    home = files_folder(place.output)
    (home / ".k.0123456789ab.tmp").mkdir(parents=True)
    (home / ".k.0123456789ab.tmp" / "f").write_bytes(b"")
    (home / "k").mkdir()
    place.files.sweep(lambda digest: digest == key_digest("k"), place.output)
    assert sorted(os.listdir(place.folder / "work")) == sorted([kept.name, stray.name])
    assert os.listdir(home) == ["k"]
    ItemFiles(place.folder / "nowhere").sweep(lambda digest: True, place.folder / "nowhere" / "r.jsonl")


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir", "open", "write"])
def test_an_error_of_the_disk_is_told_and_leaves_the_items_files_as_they_were(tmp_path: Path, call: str) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place = Place(tmp_path)
    place.write("sub/a", b"a")
    for n in range(1, 50):
        files = ItemFiles(place.folder, FaultyDisk(call, n, full))  # type: ignore[arg-type]
        try:
            files.publish(place.work, place.output, "k")
        except DiskError as error:
            assert "the disk is full" in error.message
            assert (place.work / "out" / "sub" / "a").read_bytes() == b"a"
            assert place.published() in ({}, {"k/sub/a": b"a"})
        else:
            break
    assert n > 1
    assert place.published() == {"k/sub/a": b"a"}


@pytest.mark.parametrize("by_the_system", [True, False])
def test_after_a_power_cut_files_that_were_named_are_whole_and_others_whole_or_absent(
    tmp_path: Path, by_the_system: bool
) -> None:
    class Recording(RecordingDisk):
        def copy_some(self, source: int, fd: int) -> int:
            if not by_the_system:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            return super().copy_some(source, fd)

    place = Place(tmp_path)
    state: State = {"job": None, "job/work": None, "out": None}
    for generation in range(2):
        for folder in ("", "/out", "/out/sub"):
            item = place.files.work("k", generation)
            state[str(item.relative_to(tmp_path)) + folder] = None
            os.makedirs(f"{item}{folder}", exist_ok=True)
    disk = Recording(tmp_path, Model.of(state))
    files = ItemFiles(place.folder, disk)
    for generation, content in enumerate((b"first", b"second")):
        for name in ("a", "sub/b"):
            # The agent's own writes: nobody has fsynced them.
            fd = disk.open(str(files.work("k", generation) / "out" / name), os.O_WRONLY | os.O_CREAT)
            disk.write(fd, content)
            disk.close(fd)
        files.publish(files.work("k", generation), place.output, "k")
        disk.add(Told(frozenset({content.decode()})))
        files.forget("k", generation)

    model, seen, states = Model.of(state), set(), 0
    for operation in disk.log:
        model.apply(operation)
        for after in [model.after_kill(), *model.after_power_cut()]:
            found = [after.get(f"out/res.files/k/{name}") for name in ("a", "sub/b")]
            states += 1
            assert found in ([None, None], [b"first", b"first"], [b"second", b"second"]), after
            # While the second is put in its place the first, which nothing names any more, may be gone.
            if "second" in model.told:
                assert found == [b"second", b"second"], after
            elif model.told and not any("res.files/.k" in path for path in after):
                assert found[0] is not None, after
            seen.add(found[0])
    assert seen == {None, b"first", b"second"}
    assert states > 100
