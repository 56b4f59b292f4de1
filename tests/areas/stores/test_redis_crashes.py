"""A Redis server that is killed, stopped or cut off under way: what was acknowledged is there, once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import LostError, StoreError
from agentrun.store.homes.redis.place import RedisHome
from agentrun.store.homes.redis.scripts import Script
from agentrun.store.homes.redis.server import RedisServer
from agentrun.store.keyed.home import Commit, EndedRun, Head
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.testing.examples import checkpoint, keys, record
from stores.redis_server import TestServer, serve_redis
from waiting import eventually

TTL = 600.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestServer]:
    with serve_redis(tmp_path / "redis") as one:
        yield one


@contextmanager
def connected(server: TestServer, *, is_trusted: bool = False) -> Iterator[RedisHome]:
    place = server.place(is_trusted=is_trusted)
    yield place.home("triage")
    place.close()


def commit(seq: int, count: int = 3) -> Commit:
    lines = [b"line %d of %d" % (n, seq) for n in range(count)]
    return Commit(seq, b"state %d" % seq, "run-1", "journal", (seq - 1) * count, lines, is_first=seq == 1)


# ---- what was acknowledged


def test_all_that_was_acknowledged_is_there_after_the_server_was_killed(server: TestServer) -> None:
    with connected(server) as home:
        epoch = home.take(Head(), b"{}", TTL)
        home.commit(epoch, commit(1), TTL)
        home.finish(epoch, EndedRun("run-1", "journal", b"summary"))
        for seq in range(1, 301):
            home.commit(epoch, Commit(seq, b"state %d" % seq, "run-2", "other", seq - 1, [b"%d" % seq], seq == 1), TTL)
        home.put("file", [b"a", b"b"])
        home.stage("staged", 0, [b"line"])
        before = server.dump("agentrun:")
        server.kill()
        server.start()
        assert server.dump("agentrun:") == before and len(before) == 10
        with pytest.raises(StoreError):
            home.head()
        assert home.head() == Head(epoch, b"{}", True, 300, b"state 300")
        assert [line for _, line in home.scan("other", 0, 1 << 62)] == [b"%d" % seq for seq in range(1, 301)]
        # The server has forgotten the scripts.
        home.commit(epoch, Commit(301, b"state 301", "run-2", "other", 300, [b"301"]), TTL)


def test_a_server_that_was_trusted_wrongly_and_has_lost_all_is_noticed(tmp_path: Path) -> None:
    settings = {"appendonly": "no", "rename-command": 'CONFIG ""'}
    with serve_redis(tmp_path / "redis", settings) as server, connected(server, is_trusted=True) as home:
        epoch = home.take(Head(), b"{}", TTL)
        home.commit(epoch, commit(1), TTL)
        server.kill()
        server.start()
        with pytest.raises(StoreError):
            home.commit(epoch, commit(2), TTL)
        with pytest.raises(LostError):
            home.commit(epoch, commit(2), TTL)
        assert home.head() == Head()


def test_a_commit_that_the_file_has_in_part_is_not_there_at_all(server: TestServer) -> None:
    with connected(server) as home:
        epoch = home.take(Head(), b"{}", TTL)
        home.commit(epoch, commit(1), TTL)
        (file,) = (server.folder / "appendonlydir").glob("*.incr.aof")
        start = file.stat().st_size
        home.commit(epoch, commit(2), TTL)
    whole = file.read_bytes()
    seen = set()
    for size in [*range(start, len(whole), max(1, (len(whole) - start) // 12)), len(whole) - 1, len(whole)]:
        server.kill()
        file.write_bytes(whole[:size])
        server.start()
        with connected(server) as home:
            seq = home.head().seq
            assert [line for _, line in home.scan("journal", 0, 1 << 62)] == [
                line for n in range(1, seq + 1) for line in commit(n).lines
            ]
            assert home.size("journal") == sum(len(line) + 1 for n in range(1, seq + 1) for line in commit(n).lines)
        seen.add((seq, size == len(whole)))
    assert seen == {(1, False), (2, True)}


# ---- under way


class Watched(RedisServer):
    """Counts what it is asked; does not wait long for an answer."""

    calls = 0

    def look(self, script: Script, keys: Sequence[bytes]) -> Any:
        self.calls += 1
        return super().look(script, keys)


@contextmanager
def launched(
    server: TestServer, folder: Path, *, patience_seconds: float = 120.0, lease_seconds: float = TTL
) -> Iterator[tuple[KeyedStore, Watched]]:
    """A launch. Its lease is long: it runs out only where the test says so."""
    connection = Watched(server.url(), shown=server.shown, answer_seconds=1.0)
    timing = Timing(lease_seconds=lease_seconds, patience_seconds=patience_seconds)
    store = KeyedStore(RedisHome(connection, "triage"), "triage", folder / ".agentrun" / "triage", timing=timing)
    lease = store.lock()
    try:
        store.load()
        yield store, connection
    finally:
        lease.release()
        connection.close()


def commit_while(store: KeyedStore, trouble: Callable[[Callable[[], int]], None]) -> int:
    """Commit until the trouble is over; return how many commits there were."""
    done = 0
    failed: list[BaseException] = []

    def run() -> None:
        try:
            trouble(lambda: done)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive() or not done:
        store.commit(checkpoint(done + 1), [record(f"{done + 1}")])
        done += 1
    thread.join()
    assert failed == []
    return done


def wait_for_more(done: Callable[[], int], count: int) -> None:
    reached = done() + count
    eventually(lambda: done() >= reached, "some more commits are done")


def all_keys(count: int) -> list[str]:
    return [f"{n}" for n in range(1, count + 1)]


def test_a_run_goes_on_while_the_server_is_killed_and_started_again(server: TestServer, tmp_path: Path) -> None:
    def kill_it(done: Callable[[], int]) -> None:
        for _ in range(8):
            wait_for_more(done, 3)
            server.kill()
            server.start()

    with launched(server, tmp_path) as (store, _):
        done = commit_while(store, kill_it)
        assert keys(store) == all_keys(done)
    with launched(server, tmp_path) as (store, _):
        found = store.load().checkpoint
        assert found is not None and found.seq == done and keys(store) == all_keys(done)


def test_a_run_goes_on_while_its_connection_is_cut(server: TestServer, tmp_path: Path) -> None:
    def cut_it(done: Callable[[], int]) -> None:
        for _ in range(60):
            wait_for_more(done, 1)
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    with launched(server, tmp_path) as (store, _):
        done = commit_while(store, cut_it)
        assert keys(store) == all_keys(done)


def test_a_commit_that_a_paused_server_does_later_is_done_once(server: TestServer, tmp_path: Path) -> None:
    with launched(server, tmp_path) as (store, connection):
        store.commit(checkpoint(1), [record("1")])
        server.signal(signal.SIGSTOP)
        asked = connection.calls

        def wake_it() -> None:
            eventually(lambda: connection.calls > asked + 1, "the commit was given up, and the head asked for")
            server.signal(signal.SIGCONT)

        waker = threading.Thread(target=wake_it)
        waker.start()
        store.commit(checkpoint(2), [record("2")])
        waker.join()
        store.commit(checkpoint(3), [record("3")])
        assert keys(store) == ["1", "2", "3"]


def test_patience_ends_and_the_next_launch_has_all_that_was_acknowledged(server: TestServer, tmp_path: Path) -> None:
    with launched(server, tmp_path, patience_seconds=0.2, lease_seconds=1.0) as (store, _):
        for seq in (1, 2):
            store.commit(checkpoint(seq), [record(f"{seq}")])
        server.kill()
        with pytest.raises(StoreError, match="nobody listens there"):
            store.commit(checkpoint(3), [record("3")])
    server.start()
    with launched(server, tmp_path) as (store, _):
        found = store.load().checkpoint
        assert found is not None and found.seq == 2 and keys(store) == ["1", "2"]


def test_side_files_are_kept_while_the_server_is_killed(server: TestServer, tmp_path: Path) -> None:
    with launched(server, tmp_path) as (store, _):
        pieces = [b"%d" % n * 100_000 for n in range(40)]
        killed = 0

        def slowly() -> Iterator[bytes]:
            nonlocal killed
            for number, piece in enumerate(pieces):
                if number == 20 and killed < 2:
                    killed += 1
                    server.kill()
                    server.start()
                yield piece

        class Again(Sequence[bytes]):
            def __len__(self) -> int:
                return len(pieces)

            def __getitem__(self, index: Any) -> Any:
                return pieces[index]

            def __iter__(self) -> Iterator[bytes]:
                return slowly()

        store.keep("items.spool", Again())
        assert killed == 2 and b"".join(store.fetch("items.spool") or ()) == b"".join(pieces)
    assert server.ask("KEYS", "agentrun:*:new:*") == []
