"""What is the Redis home's own, on a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentrun.errors import CheckpointError, StoreError
from agentrun.store.homes.redis.place import RedisHome, RedisPlace
from agentrun.store.keyed.home import Commit, EndedRun, Head
from stores.redis_server import TestServer, serve_redis
from waiting import eventually

TTL = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    with serve_redis(tmp_path_factory.mktemp("redis")) as one:
        yield one


Connect = Callable[[], RedisPlace]


@pytest.fixture
def connect(server: TestServer) -> Iterator[Connect]:
    """Open places, each with a connection of its own, that are closed at the end. The server is empty at first."""
    opened: list[RedisPlace] = []
    server.ask("FLUSHALL")

    def connect_one() -> RedisPlace:
        opened.append(server.place())
        return opened[-1]

    yield connect_one
    for place in opened:
        place.close()


@pytest.fixture
def home(connect: Connect, tmp_path: Path) -> RedisHome:
    return connect().home(tmp_path.name)


def take(home: RedisHome) -> int:
    return home.take(home.head(), b'{"pid": 1}', TTL)


def lines(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


def commit(seq: int, first_ref: int = 0, added: list[bytes] | None = None, *, run_id: str = "run-1") -> Commit:
    state = b"state %d" % seq
    return Commit(seq, state, run_id, "journal", first_ref, added or [], is_first=seq == 1)


# ---- records


def test_a_commit_of_many_thousand_records_is_one_commit(home: RedisHome) -> None:
    epoch = take(home)
    home.commit(epoch, commit(1, 0, lines(25_000)), TTL)
    home.commit(epoch, commit(2, 25_000, lines(1, 25_000)), TTL)
    assert [line for _, line in home.scan("journal", 0, 1 << 62)] == lines(25_001)
    assert home.read("journal", [25_000, 0, 24_999, 25_001]) == [b"25000", b"0", b"24999", None]
    assert home.size("journal") == sum(len(line) + 1 for line in lines(25_001))


def test_records_may_hold_any_bytes(home: RedisHome) -> None:
    texts = [b"", b"\0\r\n*3\r\n", bytes(range(256)), "“é”".encode()]
    home.commit(take(home), commit(1, 0, texts), TTL)
    assert home.read("journal", range(4)) == texts


def test_records_staged_again_are_neither_changed_nor_counted_twice(home: RedisHome) -> None:
    home.stage("other", 0, lines(3))
    home.stage("other", 3, lines(3, 3))
    home.stage("other", 0, lines(3))
    assert list(home.scan("other", 1, 5)) == [(n, b"%d" % n) for n in range(1, 5)]
    assert list(home.scan("other", 0, 1 << 62)) == [(n, b"%d" % n) for n in range(6)]
    assert (home.size("other"), home.journals()) == (12, {"other"})


def test_a_scan_leaves_out_records_that_are_gone(server: TestServer, home: RedisHome, tmp_path: Path) -> None:
    home.stage("other", 0, lines(5))
    server.ask("HDEL", f"agentrun:{{{tmp_path.name}}}:records:other", "2")
    assert [ref for ref, _ in home.scan("other", 0, 5)] == [0, 1, 3, 4]


def test_a_journal_with_no_records_is_none(home: RedisHome) -> None:
    home.commit(take(home), commit(1), TTL)
    assert (home.journals(), home.size("journal"), list(home.scan("journal", 0, 9))) == (set(), 0, [])


def test_thousands_of_runs_journals_and_files_are_removed_at_once(home: RedisHome) -> None:
    epoch = take(home)
    many = [f"{n:05d}" for n in range(9000)]
    runs = [EndedRun(name, name, b"summary") for name in many]
    home.replace(epoch, None, runs)
    for name in many[::1000]:
        home.stage(name, 0, [b"line"])
        home.put_new(name, b"text")
    assert sorted(home.ended(), key=lambda run: run.run_id) == runs
    home.forget(epoch, runs=many[1:], journals=many[1:])
    home.drop(many[1:], epoch=epoch)
    assert (home.ended(), home.journals(), home.names()) == (runs[:1], {"00000"}, ["00000"])


def test_a_run_that_ended_may_have_a_journal_of_any_name(home: RedisHome) -> None:
    runs = [EndedRun(f"run-{n}", name, b" a b \n") for n, name in enumerate(["a b", "", "%20", "é{}:"])]
    epoch = take(home)
    for run in runs:
        home.finish(epoch, run)
    assert sorted(home.ended(), key=lambda run: run.run_id) == runs


# ---- the lease


def test_a_lease_runs_out_by_the_clock_of_the_server(home: RedisHome) -> None:
    home.take(Head(), b"{}", 0.05)
    assert home.head().holder == b"{}"
    eventually(lambda: not home.head().fresh, "the lease has run out")
    assert home.head() == Head(epoch=1, holder=b"{}")


def test_a_newer_layout_is_not_touched(server: TestServer, home: RedisHome, tmp_path: Path) -> None:
    take(home)
    server.ask("HSET", f"agentrun:{{{tmp_path.name}}}:head", "form", "2")
    with pytest.raises(CheckpointError, match="newer agentrun"):
        home.head()


# ---- side files


def test_a_file_that_is_replaced_while_it_is_read_is_told(home: RedisHome) -> None:
    home.put("file", [b"old 0", b"old 1"])
    reading = home.get("file")
    assert reading is not None and next(reading) == b"old 0"
    home.put("file", [b"new 0", b"new 1"])
    with pytest.raises(CheckpointError, match="replaced while it was read"):
        next(reading)
    assert list(home.get("file") or ()) == [b"new 0", b"new 1"]


def test_a_file_whose_pieces_end_early_leaves_the_one_before(server: TestServer, home: RedisHome) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"new"
        raise OSError("the source is gone")

    home.put("file", [b"old"])
    with pytest.raises(OSError, match="the source is gone"):
        home.put("file", pieces())
    assert list(home.get("file") or ()) == [b"old"]
    assert server.ask("KEYS", "agentrun:*:new:*") == []


def test_a_file_of_which_pieces_are_gone_is_not_kept(server: TestServer, home: RedisHome, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"new"
        server.ask("DEL", *server.ask("KEYS", f"agentrun:{{{tmp_path.name}}}:new:*"))
        yield b"er"

    home.put("file", [b"old"])
    with pytest.raises(StoreError, match="was not completed within an hour"):
        home.put("file", pieces())
    assert list(home.get("file") or ()) == [b"old"]


def test_a_file_that_nobody_completes_goes_away_and_a_complete_one_does_not(
    server: TestServer, home: RedisHome, tmp_path: Path
) -> None:
    begun = f"agentrun:{{{tmp_path.name}}}:new:*"

    def pieces() -> Iterator[bytes]:
        yield b"piece"
        (key,) = server.ask("KEYS", begun)
        assert 0 < server.ask("PTTL", key) <= 3_600_000

    home.put("file", pieces())
    home.put("empty", [])
    for name in ("file", "empty"):
        assert server.ask("PTTL", f"agentrun:{{{tmp_path.name}}}:file:{name}") == -1
    assert list(home.get("empty") or (b"none",)) == []


def test_the_names_of_files_may_be_any_and_come_sorted(home: RedisHome) -> None:
    names = ["post/*", "post/é", "post/😀", "posté", "po", "post/a:{b}", "post/[a-z]?", "post/"]
    for name in names:
        home.put(name, [name.encode()])
    assert home.names() == sorted(names)
    assert home.names("post/") == sorted(name for name in names if name.startswith("post/"))
    assert [b"".join(home.get(name) or ()) for name in names] == [name.encode() for name in names]


# ---- the place


JOBS = ["triage", "}a{b", "ä:*?[x]", "a/b", "%7B"]


def test_jobs_of_any_name_are_apart_and_are_listed(connect: Connect) -> None:
    place = connect()
    for number, job in enumerate(JOBS):
        home = place.home(job)
        home.commit(take(home), commit(1, 0, [job.encode()], run_id=f"run-{number}"), TTL)
    assert place.names() == sorted(JOBS)
    assert [place.home(job).read("journal", [0]) for job in JOBS] == [[job.encode()] for job in JOBS]
    assert [connect().find(f"run-{number}") for number in range(len(JOBS))] == JOBS


def test_a_job_is_known_while_it_has_a_state_a_run_that_ended_or_a_file(
    connect: Connect, home: RedisHome, tmp_path: Path
) -> None:
    place, job = connect(), tmp_path.name
    epoch = take(home)
    assert job not in place.names()
    home.commit(epoch, commit(1, run_id=job), TTL)
    assert job in place.names() and place.find(job) == job
    home.finish(epoch, EndedRun(job, "journal", b"{}"))
    assert job in place.names() and place.find(job) == job
    home.forget(epoch, runs=[job])
    assert job not in place.names() and place.find(job) is None
    home.put_new("file", b"")
    assert job in place.names()
    home.clear(epoch)
    assert job not in place.names() and place.find("") is None


def test_clear_leaves_nothing_but_the_epoch(server: TestServer, home: RedisHome, tmp_path: Path) -> None:
    epoch = take(home)
    home.commit(epoch, commit(1, 0, lines(3)), TTL)
    home.finish(epoch, EndedRun("run-1", "journal", b"{}"))
    home.commit(epoch, commit(1, 3, lines(3), run_id="run-2"), TTL)
    home.stage("other", 0, lines(3))
    home.put("file", [b"text"])
    home.clear(epoch)
    prefix = f"agentrun:{{{tmp_path.name}}}:"
    assert sorted(server.dump(prefix)) == [f"{prefix}head".encode(), f"{prefix}lease".encode()]
    assert home.head() == Head(epoch, b'{"pid": 1}', fresh=True)


def test_a_home_is_used_by_several_threads(home: RedisHome) -> None:
    epoch = take(home)
    failed: list[BaseException] = []

    def write(thread: int) -> None:
        try:
            for number in range(50):
                home.put(f"{thread}/{number}", [b"%d" % thread] * 3)
                home.beat(epoch, TTL)
                assert list(home.get(f"{thread}/{number}") or ()) == [b"%d" % thread] * 3
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == [] and len(home.names()) == 200
