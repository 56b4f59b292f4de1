"""What keeps two runners apart, on SQLite: the home, the place, the fences, and real processes that are stopped or
killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.errors import BusyError, LostError, StoreError
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.home import Home, Place
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.testing import FenceContract, HomeContract, PlaceContract
from agentrun.testing.examples import checkpoint, keys, record
from agentrun.testing.homes import NOBODYS, lease_of


class OnSqlite:
    """A new connection at each opening, as another process has; closed at the test's end."""

    @pytest.fixture(autouse=True)
    def places(self) -> Iterator[None]:
        self.opened: list[SqlitePlace] = []
        yield
        for place in self.opened:
            place.close()

    def make_place(self, tmp_path: Path) -> Place:
        self.opened.append(SqlitePlace(tmp_path / "jobs.db"))
        return self.opened[-1]

    def make_home(self, tmp_path: Path) -> Home:
        return self.make_place(tmp_path).home("triage")


class TestSqliteHome(OnSqlite, HomeContract):
    pass


class TestSqlitePlace(OnSqlite, PlaceContract):
    pass


class TestSqliteFences(OnSqlite, FenceContract):
    pass


RUNNER = """
import sys
from pathlib import Path
from agentrun.errors import AgentrunError
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.testing.examples import checkpoint, record

base, lease_seconds = Path(sys.argv[1]), float(sys.argv[2])
timing = Timing(lease_seconds=lease_seconds, beats=len(sys.argv) > 3)
home = SqlitePlace(base / "jobs.db").home("triage")
store = KeyedStore(home, "triage", base / "first" / ".agentrun" / "triage", timing=timing)
try:
    lease = store.lock(wait_seconds=0)
    store.load()
    for seq, line in enumerate(sys.stdin, 1):
        store.commit(checkpoint(seq), [record(line.strip())])
        print(seq, flush=True)
except AgentrunError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    place = SqlitePlace(tmp_path / "jobs.db")
    yield place.home("triage")
    place.close()


def start_runner(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    (tmp_path / "first").mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def let_commit(runner: subprocess.Popen[str], name: str) -> None:
    assert runner.stdin is not None and runner.stdout is not None
    print(name, file=runner.stdin, flush=True)
    assert runner.stdout.readline().strip()


def stop(runner: subprocess.Popen[str], home: Home) -> None:
    """Not inside a transaction of its heartbeat, which would lock the file for as long as it is stopped."""
    while True:
        runner.send_signal(signal.SIGSTOP)
        try:
            home.beat(NOBODYS, 1)
        except LostError:
            return
        except StoreError:
            runner.send_signal(signal.SIGCONT)


def next_store(home: Home, tmp_path: Path) -> KeyedStore:
    (tmp_path / "second").mkdir()
    return KeyedStore(home, "triage", tmp_path / "second" / ".agentrun" / "triage", timing=Timing(beats=False))


@pytest.mark.parametrize("beats", [(), ("beats",)], ids=["commits alone", "heartbeats"])
def test_a_process_that_was_stopped_past_its_lease_exits_with_75_and_writes_no_late_record(
    tmp_path: Path, home: Home, beats: tuple[str, ...]
) -> None:
    with start_runner(tmp_path, "0.5", *beats) as runner:
        let_commit(runner, "a")
        stop(runner, home)
        store = next_store(home, tmp_path)
        lease = store.lock(wait_seconds=60)
        found = store.load().checkpoint
        assert found is not None and (found.seq, lease.epoch) == (1, 2)
        store.commit(checkpoint(2), [record("b")])
        runner.send_signal(signal.SIGCONT)
        said = runner.communicate("late\n", timeout=60)[1]
        assert (runner.returncode, "another runner has taken this job over" in said) == (75, True), said
        assert (keys(store), lease_of(home)[0]) == (["a", "b"], 2)
        store.commit(checkpoint(3), [record("c")])
        lease.release()


def test_a_process_that_was_killed_is_replaced_at_once_with_all_that_it_committed(tmp_path: Path, home: Home) -> None:
    with start_runner(tmp_path, "3600", "beats") as runner:
        let_commit(runner, "a")
        let_commit(runner, "b")
        runner.kill()
        runner.wait(60)
        store = next_store(home, tmp_path)
        try:
            lease = store.lock(wait_seconds=0)
        except BusyError as error:
            pytest.fail(f"its holder is dead: {error}")
        store.load()
        assert (lease.epoch, len(lease.left_mark), keys(store)) == (2, 16, ["a", "b"])
        lease.release()
