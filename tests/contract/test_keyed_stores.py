"""What every store must do, on the stores that are not a folder and need no server; and what only a file can do."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentrun.errors import BrokenStoreError, StoreError, UsageError
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.catalogue import KeyedCatalogue
from agentrun.store.keyed.home import Head
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.port import Catalogue, Store
from agentrun.testing import CatalogueContract, StoreContract
from agentrun.testing.examples import checkpoint, keys, record
from needs import require_linux, require_program
from stores.side_pieces import SidePieceContract


class OnSqlite:
    """A new connection at each opening, as another process has; closed at the test's end."""

    @pytest.fixture(autouse=True)
    def places(self) -> Iterator[None]:
        self.opened: list[SqlitePlace] = []
        yield
        for place in self.opened:
            place.close()

    def make_place(self, tmp_path: Path) -> SqlitePlace:
        self.opened.append(SqlitePlace(tmp_path / "jobs.db"))
        return self.opened[-1]

    def open(self, tmp_path: Path) -> KeyedCatalogue:
        place = self.make_place(tmp_path)
        return KeyedCatalogue(lambda: place, tmp_path / ".agentrun", timing=Timing(beats=False))


class TestSqlite(OnSqlite, StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return self.open(tmp_path).store("triage")


class TestSqliteCatalogue(OnSqlite, CatalogueContract):
    def make_catalogue(self, tmp_path: Path) -> Catalogue:
        return self.open(tmp_path)


class TestSqliteSidePieces(OnSqlite, SidePieceContract):
    pass


# ---- a file whose disk fails

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_wal(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strstr(path, "jobs.db-wal") != NULL;
}

static int fails(int fd, const char *what) {
    char once[64], always[64];
    snprintf(once, sizeof once, "%s-once", what);
    snprintf(always, sizeof always, "%s-while", what);
    return is_wal(fd) && (!access(always, F_OK) || !unlink(once));
}

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

int fdatasync(int fd) { return fails(fd, "unsynced") ? errno = EIO, -1 : REAL(fdatasync)(fd); }

int fsync(int fd) { return fails(fd, "unsynced") ? errno = EIO, -1 : REAL(fsync)(fd); }

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return fails(fd, "full") ? errno = ENOSPC, -1 : REAL(pwrite64)(fd, data, size, at);
}
"""
RUNNER = """
import os, sys
from pathlib import Path
from agentrun.errors import AgentrunError
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.testing.examples import checkpoint, record

base = Path(sys.argv[1])
home = SqlitePlace(base / "jobs.db").home("triage")
timing = Timing(beats=False, patience_seconds=2)
store = KeyedStore(home, "triage", base / "first" / ".agentrun" / "triage", timing=timing)
try:
    lease = store.lock(wait_seconds=0)
    store.load()
    seq = 0
    for line in sys.stdin:
        if line == "beat\\n":
            try:
                home.beat(lease.epoch, 3600)
            except AgentrunError as error:
                print(error, flush=True)
            continue
        seq += 1
        store.commit(checkpoint(seq), [record(line.strip())])
        print(seq, flush=True)
except AgentrunError as error:
    print(type(error).__name__, error, file=sys.stderr, flush=True)
    # Without closing anything, as if it were killed now.
    os._exit(error.exit_code)
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_linux()
    require_program("cc")
    made = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(made), "-x", "c", "-", "-ldl"], input=SHIM, text=True, check=True
    )
    return made


@contextmanager
def runner_on_a_bad_disk(shim: Path, base: Path) -> Iterator[subprocess.Popen[str]]:
    """A runner that commits a record for each line that it is told. The fsync of its log fails while there is a file
    `unsynced-while`, and once if there is a file `unsynced-once`; `full-…` stands for a full disk."""
    (base / "first").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(base)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=base,
        env={**os.environ, "LD_PRELOAD": str(shim)},
    ) as runner:
        yield runner


def say(runner: subprocess.Popen[str], line: str) -> str:
    assert runner.stdin is not None and runner.stdout is not None
    print(line, file=runner.stdin, flush=True)
    return runner.stdout.readline().strip()


@contextmanager
def next_launch(base: Path) -> Iterator[KeyedStore]:
    place = SqlitePlace(base / "jobs.db")
    timing = Timing(lease_seconds=0.2, beats=False)
    store = KeyedStore(place.home("triage"), "triage", base / "next" / "triage", timing=timing)
    (base / "next").mkdir()
    lease = store.lock(wait_seconds=60)
    try:
        yield store
    finally:
        lease.release()
        place.close()


@pytest.mark.parametrize("how_long", ["unsynced-once", "unsynced-while"])
def test_a_commit_whose_fsync_failed_is_not_acknowledged_and_not_tried_again(
    tmp_path: Path, shim: Path, how_long: str
) -> None:
    with runner_on_a_bad_disk(shim, tmp_path) as runner:
        assert say(runner, "a") == "1"
        (tmp_path / how_long).touch()
        assert say(runner, "b") == "", "it was acknowledged"
        said = runner.communicate(timeout=60)[1]
        assert (runner.returncode, said.startswith("BrokenStoreError ")) == (74, True), said
        assert "the disk failed" in said and "resume" in said
    (tmp_path / "unsynced-while").unlink(missing_ok=True)
    with next_launch(tmp_path) as store:
        found = store.load().checkpoint
        assert found is not None
        assert (found.seq, keys(store)) in [(1, ["a"]), (2, ["a", "b"])]
        store.commit(checkpoint(found.seq + 1), [record("c")])


def test_a_full_disk_is_waited_for_and_then_exit_74_and_nothing_is_lost(tmp_path: Path, shim: Path) -> None:
    with runner_on_a_bad_disk(shim, tmp_path) as runner:
        assert say(runner, "a") == "1"
        (tmp_path / "full-once").touch()
        assert say(runner, "b") == "2"
        (tmp_path / "full-while").touch()
        assert say(runner, "c") == ""
        said = runner.communicate(timeout=60)[1]
        assert (runner.returncode, "the disk is full; free some space" in said) == (74, True), said
    (tmp_path / "full-while").unlink()
    with next_launch(tmp_path) as store:
        store.load()
        assert keys(store) == ["a", "b"]


def test_a_heartbeat_whose_fsync_failed_lets_the_next_commit_fail(tmp_path: Path, shim: Path) -> None:
    with runner_on_a_bad_disk(shim, tmp_path) as runner:
        assert say(runner, "a") == "1"
        (tmp_path / "unsynced-once").touch()
        assert "the disk failed" in say(runner, "beat")
        assert say(runner, "b") == "", "it was acknowledged"
        runner.communicate(timeout=60)
        assert runner.returncode == 74
    with next_launch(tmp_path) as store:
        store.load()
        assert keys(store) == ["a"]


def test_nothing_that_is_acknowledged_later_hangs_on_what_a_failed_fsync_left(tmp_path: Path, shim: Path) -> None:
    """What it left is read from memory, and is not on the disk: the disk has a hole there."""
    wal = tmp_path / "jobs.db-wal"
    with runner_on_a_bad_disk(shim, tmp_path) as runner:
        assert say(runner, "a") == "1"
        before = wal.stat().st_size
        (tmp_path / "unsynced-while").touch()
        say(runner, "b")
        runner.communicate(timeout=60)
    (tmp_path / "unsynced-while").unlink()
    unsynced = wal.read_bytes()[before:]
    assert unsynced
    with next_launch(tmp_path) as store:
        found = store.load().checkpoint
        assert found is not None
        store.commit(checkpoint(found.seq + 1), [record("c")])
        # The power is cut: what was not written since is lost.
        (tmp_path / "cut").mkdir()
        shutil.copy(tmp_path / "jobs.db", tmp_path / "cut")
        kept = wal.read_bytes().replace(unsynced, bytes(len(unsynced)))
        (tmp_path / "cut" / wal.name).write_bytes(kept)
    with next_launch(tmp_path / "cut") as store:
        store.load()
        assert keys(store)[-1:] == ["c"], "a commit that was acknowledged is gone"


# ---- a file that is removed or replaced


def remove_all(path: Path) -> None:
    for one in path.parent.glob("jobs.db*"):
        one.unlink()


def replace_file(path: Path) -> None:
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)


REMOVALS: dict[str, Callable[[Path], object]] = {
    "all of it": remove_all,
    "the file alone": lambda path: path.unlink(),
    "its log": lambda path: path.with_name("jobs.db-wal").unlink(),
    "replaced": replace_file,
    "the folder": lambda path: path.parent.rename(path.parent.with_name("gone")),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_nothing_is_acknowledged_that_went_into_a_file_that_is_gone(tmp_path: Path, removal: str) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "jobs.db"
    place = SqlitePlace(path)
    timing = Timing(beats=False, patience_seconds=2)
    store = KeyedStore(place.home("triage"), "triage", tmp_path / "triage", timing=timing)
    lease = store.lock(wait_seconds=0)
    store.load()
    store.commit(checkpoint(1), [record("a")])
    REMOVALS[removal](path)
    with pytest.raises(BrokenStoreError, match=r"was removed or replaced .*restore it") as caught:
        store.commit(checkpoint(2), [record("b")])
    assert caught.value.exit_code == 74
    with pytest.raises(StoreError):
        store.commit(checkpoint(2), [record("b")])
    lease.release()
    if removal != "replaced" and removal != "its log":
        assert not path.exists(), "a new file was made in its place"
    place.close()


def test_a_file_that_is_gone_is_told_also_by_who_has_to_open_it_again(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "jobs.db")
    home = place.home("triage")
    epoch = home.take(home.head(), b"me", 60)
    with pytest.raises(StoreError):
        place.query("select nonsense", [])
    remove_all(tmp_path / "jobs.db")
    for call in (home.head, lambda: home.beat(epoch, 60)):
        with pytest.raises(BrokenStoreError, match="was removed or replaced"):
            call()
    assert not (tmp_path / "jobs.db").exists()
    place.close()


# ---- files of others


def make_foreign(path: Path, how: str) -> None:
    made = sqlite3.connect(path, isolation_level=None)
    if how in ("WAL", "WAL left by a crash"):
        made.execute("pragma journal_mode = wal")
    if how == "an id alone":
        made.execute("pragma application_id = 7")
    else:
        made.execute("create table mine (x)")
    if how == "WAL left by a crash":
        for name in ("", "-wal"):
            shutil.copy(f"{path}{name}", f"{path}{name}.kept")
    made.close()
    if how == "WAL left by a crash":
        for name in ("", "-wal"):
            Path(f"{path}{name}.kept").rename(f"{path}{name}")


def bytes_in(folder: Path) -> dict[str, bytes]:
    """All files but the index of a WAL, which is no data."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


USES: dict[str, Callable[[SqlitePlace], object]] = {
    "jobs": lambda place: place.names(),
    "run": lambda place: place.find("run"),
    "head": lambda place: place.home("triage").head(),
    "take": lambda place: place.home("triage").take(Head(), b"me", 60),
    "put": lambda place: place.home("triage").put("post/a", [b"x"]),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("how", ["tables", "WAL", "WAL left by a crash", "an id alone"])
def test_a_database_of_another_program_is_refused_and_not_changed(tmp_path: Path, how: str, use: str) -> None:
    make_foreign(tmp_path / "jobs.db", how)
    before = bytes_in(tmp_path)
    place = SqlitePlace(tmp_path / "jobs.db")
    with pytest.raises(UsageError, match="is a database of another program; choose another file"):
        USES[use](place)
    place.close()
    assert bytes_in(tmp_path) == before


@pytest.mark.parametrize("how", ["no bytes", "no tables"])
def test_looking_at_an_empty_file_leaves_it_so_and_the_first_write_takes_it(tmp_path: Path, how: str) -> None:
    path = tmp_path / "jobs.db"
    path.touch()
    if how == "no tables":
        made = sqlite3.connect(path, isolation_level=None)
        made.execute("create table mine (x)")
        made.execute("drop table mine")
        made.close()
    before = bytes_in(tmp_path)
    looker, place = SqlitePlace(path), SqlitePlace(path)
    assert (looker.names(), looker.find("run"), looker.home("triage").head()) == ([], None, Head())
    assert bytes_in(tmp_path) == before
    assert place.home("triage").take(Head(), b"me", 60) == 1
    assert looker.home("triage").head().epoch == 1
    for one in (looker, place):
        one.close()


def test_a_file_that_a_link_points_to_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "jobs.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "jobs.db")
    place, looker = SqlitePlace(tmp_path / "link.db"), SqlitePlace(tmp_path / "link.db")
    home = place.home("triage")
    epoch = home.take(Head(), b"me", 60)
    assert looker.home("triage").head().epoch == epoch, "the tables are in the log, beside the file itself"
    (tmp_path / "data" / "jobs.db-wal").unlink()
    with pytest.raises(BrokenStoreError, match="was removed or replaced"):
        home.beat(epoch, 60)
    for one in (looker, place):
        one.close()
