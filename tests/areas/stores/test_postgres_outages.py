"""A PostgreSQL server that goes away, comes back, or does not answer, while a store is at work on it."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from agentrun.errors import LostError, StoreError
from agentrun.store.homes.postgres.place import PostgresPlace
from agentrun.store.homes.postgres.server import SLOWEST_BYTES_PER_SECOND
from agentrun.store.keyed.home import Commit, Head
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.testing.examples import checkpoint, keys, record
from cli.conftest import COMMAND, environment
from stores.postgres_server import Database
from stores.proxy import Proxy, serve_proxy
from waiting import PATIENCE_SECONDS, eventually

TTL = 3600.0
SHORT_SECONDS = 0.3
"""How long a server may take to answer where a test waits for that to pass."""


@pytest.fixture
def proxy(postgres: Database) -> Iterator[Proxy]:
    with serve_proxy(postgres.server.port) as proxy:
        yield proxy


Launch = Callable[[PostgresPlace], KeyedStore]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """A store that holds the lock, and has loaded."""
    leases = []

    def launch_on(place: PostgresPlace) -> KeyedStore:
        timing = Timing(lease_seconds=TTL, patience_seconds=PATIENCE_SECONDS, beats=False)
        store = KeyedStore(place.home("triage"), "triage", tmp_path / ".agentrun" / "triage", timing=timing)
        leases.append(store.lock(wait_seconds=0))
        store.load()
        return store

    yield launch_on
    for lease in leases:
        lease.release()


class Committing:
    """A thread that commits record after record; the names of all that it was told are kept."""

    def __init__(self, store: KeyedStore) -> None:
        self.done: list[str] = []
        self.store = store
        self._ends = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self._end: Future[None] = self._threads.submit(self._commit)

    def _commit(self) -> None:
        while not self._ends.is_set():
            name = f"item {len(self.done)}"
            refs = self.store.commit(checkpoint(len(self.done) + 1), [record(name)])
            assert refs == [len(self.done)]
            self.done.append(name)

    def go_on(self, count: int = 20) -> None:
        """Wait until it has committed so many more."""
        until = len(self.done) + count
        eventually(lambda: len(self.done) >= until or self._end.done(), f"{count} more commits")
        if self._end.done():
            self._end.result()

    def finish(self) -> list[str]:
        self.stop()
        self._end.result()
        return self.done

    def stop(self) -> None:
        self._ends.set()
        self._threads.shutdown()


@pytest.fixture
def commit_on(launch: Launch) -> Iterator[Callable[[PostgresPlace], Committing]]:
    threads: list[Committing] = []

    def begin(place: PostgresPlace) -> Committing:
        threads.append(Committing(launch(place)))
        return threads[-1]

    yield begin
    for one in threads:
        one.stop()


def stored(database: Database) -> list[str]:
    """The keys of the run's records, as the next launch finds them."""
    store = KeyedStore(database.place().home("triage"), "triage", Path("not-used"))
    assert store.load().checkpoint is not None
    return keys(store)


# ---- under way


def test_a_run_survives_that_its_connections_are_ended(
    postgres: Database, commit_on: Callable[[PostgresPlace], Committing]
) -> None:
    at_work = commit_on(postgres.place())
    for _ in range(20):
        at_work.go_on(3)
        postgres.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'agentrun'")
    at_work.go_on()
    assert at_work.finish() == stored(postgres)


def test_a_run_survives_a_server_that_crashes_and_loses_nothing(
    postgres: Database, commit_on: Callable[[PostgresPlace], Committing]
) -> None:
    at_work = commit_on(postgres.place())
    for _ in range(2):
        at_work.go_on()
        postgres.server.crash()
        postgres.server.start()
    at_work.go_on()
    assert at_work.finish() == stored(postgres)


def test_a_run_survives_a_server_that_is_restarted(
    postgres: Database, commit_on: Callable[[PostgresPlace], Committing]
) -> None:
    at_work = commit_on(postgres.place())
    at_work.go_on()
    postgres.server.restart()
    at_work.go_on()
    assert at_work.finish() == stored(postgres)


def test_a_run_survives_a_server_that_stands_still(
    postgres: Database, commit_on: Callable[[PostgresPlace], Committing]
) -> None:
    other = postgres.place(answer_seconds=SHORT_SECONDS)
    at_work = commit_on(postgres.place(answer_seconds=SHORT_SECONDS))
    at_work.go_on()
    assert other.names() == ["triage"]
    with postgres.server.paused(), pytest.raises(StoreError, match=f"did not answer within {SHORT_SECONDS:g} s"):
        other.names()
    at_work.go_on()
    assert at_work.finish() == stored(postgres)


AGENT = """\
import os, pathlib, time

def answer(item):
    here = pathlib.Path(__file__).parent
    (here / "begun").touch()
    while not (here / "go").exists():
        time.sleep(0.01)
    return os.environ.get("PGPASSWORD", "none")
"""


@pytest.mark.parametrize("variable", ["PGPASSWORD", "PGPASSFILE"])
@pytest.mark.parametrize("own", ["of-the-agent", "none"])
def test_the_password_of_the_store_and_that_of_the_agent_are_kept_apart(
    postgres: Database, tmp_path: Path, variable: str, own: str
) -> None:
    address = postgres.server.url(postgres.name).replace(f":{postgres.server.password}", "")
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "items.txt").write_text("item\n")
    (tmp_path / ".env").write_text(f"PGPASSWORD={own}\n" if own != "none" else "")
    (tmp_path / "passwords").write_text(f"*:*:*:*:{postgres.server.password}\n")
    (tmp_path / "passwords").chmod(0o600)
    (tmp_path / "job.toml").write_text(
        f'name = "letters"\nagent = "agent.py:answer"\nstore = "{address}"\noutput = "out.jsonl"\nenv_file = ".env"\n'
        '[items]\nlines = "items.txt"\n'
    )
    process = subprocess.Popen(
        [COMMAND, "start", "job.toml"],
        cwd=tmp_path,
        env=environment(**{variable: {"PGPASSWORD": postgres.server.password, "PGPASSFILE": "passwords"}[variable]}),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually((tmp_path / "begun").exists, "the agent is at work", alive=process)
    postgres.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'agentrun'")
    (tmp_path / "go").touch()
    _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, told
    assert f'"{own}"' in (tmp_path / "out.jsonl").read_text()


# ---- answers that are swallowed


def test_a_commit_whose_answer_was_swallowed_is_recognised_and_not_made_twice(
    postgres: Database, proxy: Proxy, launch: Launch
) -> None:
    store = launch(postgres.place(port=proxy.port, answer_seconds=SHORT_SECONDS))
    store.commit(checkpoint(1), [record("a")])
    proxy.swallow()
    with ThreadPoolExecutor(1) as threads:
        committing = threads.submit(store.commit, checkpoint(2), [record("b")])
        eventually(lambda: postgres.run("select seq from agentrun.job") == [(2,)], "the server has the commit")
        proxy.forward()
        assert committing.result() == [1]
    assert store.commit(checkpoint(3), [record("c")]) == [2]
    assert proxy.connections > 1
    assert stored(postgres) == ["a", "b", "c"]


def test_an_answer_that_does_not_come_is_an_error_and_the_next_call_connects_again(
    postgres: Database, proxy: Proxy
) -> None:
    home = postgres.place(port=proxy.port, answer_seconds=SHORT_SECONDS).home("triage")
    epoch = home.take(Head(), b"me", TTL)
    overdue = "did not answer within"
    calls: list[tuple[Callable[[], object], str]] = [
        (home.head, overdue),
        (lambda: home.beat(epoch, TTL), overdue),
        # The server may be the first to give up a transaction in which nothing happens.
        (lambda: home.put("name", [b"text"]), f"{overdue}|connection was lost"),
        (lambda: home.commit(epoch, Commit(1, b"state", "run", "journal", 0, [b"a"], is_first=True), TTL), overdue),
    ]
    for call, words in calls:
        # Twice: the first look at the tables by a new connection would be what is swallowed.
        assert home.head().epoch == home.head().epoch == epoch
        proxy.swallow()
        with pytest.raises(StoreError, match=words):
            call()
        proxy.forward()
    assert home.head().epoch == epoch


class Clock:
    """Time passes by `step` at each look, and where a test says so."""

    def __init__(self) -> None:
        self.seconds = self.step = 0.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        self.seconds += self.step
        return self.seconds

    def let_pass(self, seconds: float) -> None:
        """Until those who wait have noticed."""
        self.seconds += seconds
        noticed = self.looks + 2
        eventually(lambda: self.looks >= noticed, "somebody has looked at the clock")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def far_place(postgres: Database, proxy: Proxy, clock: Clock) -> Iterator[PostgresPlace]:
    """A place behind the proxy, on a server that may be silent for a second of the clock."""
    url = postgres.server.url(postgres.name, port=proxy.port)
    place = PostgresPlace(url, shown=postgres.shown, answer_seconds=1, clock=clock)
    yield place
    place.close()


def test_an_answer_may_take_any_time_while_parts_of_it_come(
    far_place: PostgresPlace, proxy: Proxy, clock: Clock
) -> None:
    home = far_place.home("triage")
    lines = [bytes([number]) * 30_000 for number in range(20)]
    home.stage("journal", 0, lines)

    def come_slowly(answer: bytes) -> bytes:
        clock.let_pass(0.9)
        return answer

    proxy.on_answer = come_slowly
    assert [line for _, line in home.scan("journal", 0, 20)] == lines
    assert clock.seconds > 5


def test_an_answer_that_stops_half_way_is_an_error(far_place: PostgresPlace, proxy: Proxy, clock: Clock) -> None:
    home = far_place.home("triage")
    home.stage("journal", 0, [b"a" * 1_000_000])

    def stop_half_way(answer: bytes) -> bytes:
        proxy.swallow()
        clock.step = 0.5
        return answer

    proxy.on_answer = stop_half_way
    with pytest.raises(StoreError, match="did not answer within 1 s"):
        home.read("journal", [0])
    assert clock.seconds < 5


def test_what_is_sent_may_be_on_its_way_for_longer(far_place: PostgresPlace, proxy: Proxy, clock: Clock) -> None:
    assert far_place.home("triage").put_new("name", b"text")

    def come_late(answer: bytes) -> bytes:
        clock.let_pass(3)
        return answer

    proxy.on_answer = come_late
    size = SLOWEST_BYTES_PER_SECOND * 4
    assert far_place.query("select length(?::bytea)", [bytes(size)]) == [(size,)]


def test_the_time_for_a_large_statement_is_not_that_of_the_next(
    far_place: PostgresPlace, proxy: Proxy, clock: Clock
) -> None:
    home = far_place.home("triage")
    home.stage("journal", 0, [bytes(SLOWEST_BYTES_PER_SECOND * 9)])
    assert clock.seconds == 0
    proxy.swallow()
    clock.step = 0.5
    with pytest.raises(StoreError, match="did not answer within 1 s"):
        home.head()
    assert clock.seconds < 5


def test_a_take_whose_answer_was_swallowed_is_whole_or_not_there(postgres: Database, proxy: Proxy) -> None:
    home = postgres.place(port=proxy.port, answer_seconds=SHORT_SECONDS).home("triage")
    home.put("name", [b"text"])
    proxy.swallow()
    with pytest.raises(StoreError):
        home.take(Head(), b"me", TTL)
    proxy.forward()
    head = home.head()
    assert (head.epoch, head.holder) in [(0, None), (1, b"me")]


def test_reading_after_an_idle_connection_was_ended_just_works(postgres: Database) -> None:
    home = postgres.place().home("triage")
    epoch = home.take(Head(), b"me", TTL)
    postgres.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'agentrun'")
    assert home.head().epoch == epoch


def test_short_calls_are_never_cut_nor_is_a_connection_that_is_idle(postgres: Database) -> None:
    place = postgres.place(answer_seconds=SHORT_SECONDS)
    place.home("triage").take(Head(), b"me", TTL)
    until = time.monotonic() + 3 * SHORT_SECONDS
    backends = set()
    while time.monotonic() < until:
        backends |= set(place.query("select pg_backend_pid()", []))
    # There is nothing to wait for: nothing must happen.
    time.sleep(3 * SHORT_SECONDS)
    backends |= set(place.query("select pg_backend_pid()", []))
    assert len(backends) == 1


# ---- a runner that stands still


@pytest.mark.parametrize("is_fenced", [True, False])
def test_who_is_paused_while_sending_does_not_keep_others_from_the_job(postgres: Database, is_fenced: bool) -> None:
    paused = postgres.place(answer_seconds=SHORT_SECONDS).home("triage")
    epoch = paused.take(Head(), b"paused", TTL)
    is_locked, may_resume = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        # Of one that is not fenced, the transaction has begun, and has the rows of the file.
        is_locked.set()
        may_resume.wait()
        yield b"late"

    with ThreadPoolExecutor(1) as threads:
        putting = threads.submit(paused.put, "name", pieces(), epoch=epoch if is_fenced else None)
        is_locked.wait()
        try:
            other = postgres.place().home("triage")
            assert other.take(other.head(), b"paused", TTL) == epoch + 1
            other.put("name", [b"text"], epoch=epoch + 1)
        finally:
            may_resume.set()
        with pytest.raises(LostError if is_fenced else StoreError):
            putting.result()
    with pytest.raises(LostError):
        paused.put("name", [b"late"], epoch=epoch)
    found = other.get("name")
    assert found is not None and b"".join(found) == b"text"


# ---- what the server acknowledged


@pytest.mark.parametrize("way", ["commit", "put"])
def test_a_write_outlives_a_crash_also_where_the_server_would_not_wait_for_its_disk(
    postgres: Database, way: str
) -> None:
    # As on a server whose administrator has preferred speed; nothing but a commit that waits writes the log then.
    postgres.set("synchronous_commit", "off")
    postgres.server.restart(wal_writer_delay="10s")
    try:
        home = postgres.place().home("triage")
        epoch = home.take(Head(), b"me", TTL)
        for seq in range(1, 6):
            if way == "commit":
                home.commit(epoch, Commit(seq, b"state", "run", "journal", seq - 1, [b"a"], is_first=seq == 1), TTL)
            else:
                home.put(f"name {seq}", [b"text"])
    finally:
        postgres.server.crash()
        postgres.server.start()
    assert home.head().seq == 5 if way == "commit" else len(home.names()) == 5
