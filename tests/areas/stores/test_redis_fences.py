"""A runner that has lost its job changes nothing in Redis: each script checks; without its check it would be caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import LostError
from agentrun.store.homes.redis.place import RedisHome
from agentrun.store.homes.redis.scripts import Script
from agentrun.store.homes.redis.server import RedisServer
from agentrun.store.keyed.home import Commit, EndedRun, Head
from stores.redis_server import TestServer, serve_redis

TTL = 60.0
US, THEM = b'{"pid": 1}', b'{"pid": 2}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    with serve_redis(tmp_path_factory.mktemp("redis")) as one:
        yield one


class CarelessServer(RedisServer):
    """Runs each script without its checks."""

    def change(self, script: Script, keys: Sequence[bytes], values: Sequence[str | bytes]) -> int:
        unchecked = [line for line in script.text.splitlines() if not line.endswith("then return 0 end")]
        return super().change(Script("\n".join(unchecked)), keys, values)


class Job:
    """One job, by a home that checks and by one that does not."""

    def __init__(self, server: TestServer, name: str) -> None:
        self._test_server = server
        self._prefix = f"agentrun:{{{name}}}:"
        self.servers = [kind(server.url(), shown=server.shown) for kind in (RedisServer, CarelessServer)]
        self.home, self.careless = (RedisHome(one, name) for one in self.servers)

    def stored(self) -> dict[bytes, Any]:
        """Everything of the job, and when its lease runs out."""
        ends = self._test_server.ask("PEXPIRETIME", f"{self._prefix}lease")
        return {**self._test_server.dump(self._prefix), b"lease": ends}

    def take(self, holder: bytes = US) -> int:
        seen = self.home.head()
        return self.home.take(seen, holder, TTL)


@pytest.fixture
def job(server: TestServer, tmp_path: Path) -> Iterator[Job]:
    one = Job(server, tmp_path.name)
    yield one
    for connection in one.servers:
        connection.close()


def commit(seq: int, *, is_first: bool = False, run_id: str = "run-1") -> Commit:
    return Commit(seq, b"state %d" % seq, run_id, "journal", seq - 1, [b"line %d" % seq], is_first=is_first)


def filled(job: Job) -> int:
    """A job with something of everything, whose epoch is returned."""
    epoch = job.take()
    job.home.commit(epoch, commit(1, is_first=True, run_id="run-0"), TTL)
    job.home.finish(epoch, EndedRun("run-0", "before", b"summary"))
    job.home.stage("before", 0, [b"line"])
    job.home.commit(epoch, commit(1, is_first=True), TTL)
    job.home.commit(epoch, commit(2), TTL)
    job.home.put("file", [b"text"])
    return epoch


Write = Callable[[RedisHome, int], object]
WRITES: dict[str, Write] = {
    "beat": lambda home, epoch: home.beat(epoch, 2 * TTL),
    "give": lambda home, epoch: home.give(epoch),
    "commit": lambda home, epoch: home.commit(epoch, commit(3), 2 * TTL),
    "finish": lambda home, epoch: home.finish(epoch, EndedRun("run-1", "journal", b"summary")),
    "replace": lambda home, epoch: home.replace(epoch, commit(7), []),
    "replace by nothing": lambda home, epoch: home.replace(epoch, None, [EndedRun("run-0", "before", b"summary")]),
    "forget runs": lambda home, epoch: home.forget(epoch, runs=["run-0"]),
    "forget journals": lambda home, epoch: home.forget(epoch, journals=["before"]),
    "clear": lambda home, epoch: home.clear(epoch),
    "put": lambda home, epoch: home.put("file", [b"other"], epoch=epoch),
    "put another": lambda home, epoch: home.put("other", [], epoch=epoch),
    "drop": lambda home, epoch: home.drop(["file"], epoch=epoch),
}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@every_write
def test_the_holder_may_write(job: Job, write: Write) -> None:
    epoch = filled(job)
    before = job.stored()
    write(job.home, epoch)
    assert job.stored() != before


@every_write
def test_who_has_lost_the_job_changes_nothing(job: Job, write: Write) -> None:
    epoch = filled(job)
    job.home.take(job.home.head(), THEM, TTL)
    before = job.stored()
    with pytest.raises(LostError, match="another runner has taken this job over"):
        write(job.home, epoch)
    assert job.stored() == before


@every_write
def test_who_has_lost_the_job_changes_nothing_though_the_new_holder_has_gone(job: Job, write: Write) -> None:
    epoch = filled(job)
    job.home.give(job.take(THEM))
    before = job.stored()
    with pytest.raises(LostError):
        write(job.home, epoch)
    assert job.stored() == before


@every_write
def test_without_its_check_a_write_would_be_noticed(job: Job, write: Write) -> None:
    epoch = filled(job)
    job.home.take(job.home.head(), THEM, TTL)
    before = job.stored()
    write(job.careless, epoch)
    assert job.stored() != before


@every_write
def test_nobody_writes_to_a_job_that_nobody_has_taken(job: Job, write: Write) -> None:
    for epoch in (0, 1):
        with pytest.raises(LostError):
            write(job.home, epoch)
    assert list(job.stored()) == [b"lease"]


# ---- the order of commits

OUT_OF_ORDER = {
    "the same again": commit(2),
    "one too far": commit(4),
    "an older one": commit(1),
    "the first of another run": commit(1, is_first=True),
    "the first with the next number": commit(3, is_first=True),
}
out_of_order = pytest.mark.parametrize("wrong", OUT_OF_ORDER.values(), ids=OUT_OF_ORDER)


@out_of_order
def test_a_commit_that_does_not_follow_changes_nothing(job: Job, wrong: Commit) -> None:
    epoch = filled(job)
    before = job.stored()
    with pytest.raises(LostError):
        job.home.commit(epoch, wrong, 2 * TTL)
    assert job.stored() == before
    job.home.commit(epoch, commit(3), TTL)


@out_of_order
def test_without_its_check_a_commit_that_does_not_follow_would_be_noticed(job: Job, wrong: Commit) -> None:
    epoch = filled(job)
    before = job.stored()
    job.careless.commit(epoch, wrong, 2 * TTL)
    assert job.stored() != before


@pytest.mark.parametrize("seq", [1, 2])
def test_without_a_run_only_a_first_commit_is_accepted(job: Job, seq: int) -> None:
    epoch = job.take()
    before = job.stored()
    with pytest.raises(LostError):
        job.home.commit(epoch, commit(seq), TTL)
    assert job.stored() == before
    # A run that was reopened begins with the number after its records.
    job.home.commit(epoch, commit(seq, is_first=True), TTL)
    assert job.home.head() == Head(epoch, US, True, seq, b"state %d" % seq)


def test_what_comes_late_from_a_run_that_ended_changes_nothing(job: Job) -> None:
    epoch = job.take()
    first, ended = commit(1, is_first=True, run_id="run-0"), EndedRun("run-0", "journal", b"summary")
    job.home.commit(epoch, first, TTL)
    job.home.finish(epoch, ended)
    before = job.stored()
    with pytest.raises(LostError):
        job.home.commit(epoch, first, 2 * TTL)
    job.home.finish(epoch, ended)
    assert job.stored() == before
    job.home.commit(epoch, commit(1, is_first=True), TTL)
    before = job.stored()
    job.home.finish(epoch, ended)
    assert job.stored() == before


# ---- taking


def test_a_lease_that_has_not_run_out_is_not_taken(job: Job) -> None:
    seen = job.home.head()
    job.take(US)
    before = job.stored()
    for stale in (seen, Head(1, None), Head(1, THEM), Head(2, US), Head(0, US)):
        with pytest.raises(LostError):
            job.home.take(stale, THEM, 2 * TTL)
    assert job.stored() == before
    job.careless.take(Head(1, THEM), THEM, 2 * TTL)
    assert job.stored() != before


def test_of_two_who_saw_a_job_that_was_given_back_one_takes_it(job: Job) -> None:
    job.home.give(job.take(US))
    seen = job.home.head()
    assert job.home.take(seen, US, TTL) == 2
    with pytest.raises(LostError):
        job.home.take(seen, THEM, TTL)
    assert job.home.head() == Head(2, US, fresh=True)


def test_the_job_of_a_holder_who_is_known_to_be_dead_is_taken_at_once(job: Job) -> None:
    job.take(US)
    assert job.home.take(job.home.head(), THEM, TTL) == 2
    assert job.home.head() == Head(2, THEM, fresh=True)


# ---- files that are there once


def test_of_two_new_files_of_one_name_the_first_is_kept(job: Job) -> None:
    assert job.home.put_new("fate", b"claimed")
    before = job.stored()
    assert not job.home.put_new("fate", b"withdrawn")
    assert job.stored() == before
    job.careless.put_new("fate", b"withdrawn")
    assert job.stored() != before
