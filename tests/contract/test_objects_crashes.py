"""Object storage: whichever write goes wrong, nothing is lost, nothing is there twice, and the next launch goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentrun.errors import StoreError
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, keys, record, reopen, summary
from needs import require_module

require_module("obstore", extra="objects")

from stores.memory_bucket import MemoryBucket, Put  # noqa: E402

if TYPE_CHECKING:
    from obstore import UpdateVersion

NAMES = ["a", "b", "large", "c", "d"]


class DiedError(BaseException):
    """The process was killed."""


def work(store: KeyedStore) -> None:
    """A run with a compaction, and a second one on its records; resumed where the launch before left off."""
    found = store.load().checkpoint
    ended = {one.run_id for one in store.summaries()}
    store.keep("job.json", [b"{}"])
    if RUN not in ended:
        for seq in range(found.seq + 1 if found is not None else 1, len(NAMES) + 2):
            if seq == 4:
                store.compact(checkpoint(seq), [ref for ref, _ in store.scan()])
            else:
                name = NAMES[seq - 1 if seq < 4 else seq - 2]
                store.commit(checkpoint(seq), [record(name, "x" * (300_000 if name == "large" else 40))])
        store.finish(summary(RUN, number=1))
        found = None
    if LATER_RUN not in ended:
        if found is None:
            seq = reopen(store).seq
            store.commit(checkpoint(seq + 1, run_id=LATER_RUN), [record("z")])
        store.finish(summary(LATER_RUN, number=2))
    store.prune()


class Launches:
    """Launches on other machines, one after the other: what the one before left is taken when its lease has run out."""

    def __init__(self, bucket: MemoryBucket, folder: Path) -> None:
        self._bucket = bucket
        self._folder = folder
        self._count = 0

    def next(self, bucket: MemoryBucket | None = None) -> None:
        self._count += 1
        home = (bucket or self._bucket.client()).home(margin_seconds=0)
        folder = self._folder / str(self._count)
        folder.mkdir()
        store = KeyedStore(home, "triage", folder / "triage", timing=Timing(lease_seconds=0.05, beats=False))
        lease = store.lock(wait_seconds=60)
        work(store)
        lease.release()

    def found(self) -> dict[str, list[str]]:
        store = KeyedStore(self._bucket.client().home(), "triage", self._folder / "look")
        made: dict[str, list[str]] = {}
        for run_id in (RUN, LATER_RUN):
            with store.reader(run_id=run_id) as reader:
                made[run_id] = [one.key for _, one in reader.records()]
        assert b"".join(store.fetch("job.json") or ()) == b"{}"
        assert store.load().checkpoint is None and keys(store) == []
        return made


EXPECTED = {RUN: NAMES, LATER_RUN: [*NAMES, "z"]}


def at_nth(bucket: MemoryBucket, n: int, fault: Callable[[Put], UpdateVersion]) -> None:
    left = n

    def on_put(_: str, write: Put) -> UpdateVersion | None:
        nonlocal left
        left -= 1
        return fault(write) if left == 0 else None

    bucket.on_put = on_put


def not_done(write: Put) -> UpdateVersion:
    raise StoreError("memory: does not answer")


def done_without_answer(write: Put) -> UpdateVersion:
    write()
    raise StoreError("memory: does not answer")


def sent_twice(write: Put) -> UpdateVersion:
    write()
    return write()


def died_before(write: Put) -> UpdateVersion:
    raise DiedError


def died_after(write: Put) -> UpdateVersion:
    write()
    raise DiedError


@pytest.mark.parametrize("fault", [not_done, done_without_answer, sent_twice, died_before, died_after])
def test_whichever_write_goes_wrong_everything_is_there_once(
    tmp_path: Path, fault: Callable[[Put], UpdateVersion]
) -> None:
    whole = MemoryBucket()
    launches = Launches(whole, tmp_path)
    launches.next(whole)
    assert launches.found() == EXPECTED
    count = len(whole.puts)
    assert count > 20
    # The first four writes find out whether conditions are kept: there, somebody who fails has begun nothing.
    for n in range(5, count + 1):
        bucket, folder = MemoryBucket(), tmp_path / f"at {n}"
        folder.mkdir()
        launches = Launches(bucket, folder)
        at_nth(bucket, n, fault)
        try:
            launches.next(bucket)
        except DiedError:
            launches.next()
        assert launches.found() == EXPECTED, (n, bucket.puts[n - 1 :])
