"""Who reads a job in a shared place while runners remove what no run needs any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentrun.errors import CheckpointError
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.home import Home
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.port import Reader
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, end_run, record, reopen, summary


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    place = SqlitePlace(tmp_path / "jobs.db")
    yield place.home("triage")
    place.close()


@pytest.fixture
def store(home: Home, tmp_path: Path) -> KeyedStore:
    return KeyedStore(home, "triage", tmp_path / ".agentrun" / "triage", timing=Timing(beats=False))


def shown(reader: Reader) -> str | None:
    """The keys of the records; None if they are gone."""
    try:
        return "".join(one.key for _, one in reader.records())
    except CheckpointError as error:
        assert "look again" in error.message
        return None


def test_what_somebody_reads_is_removed_by_the_next_launch_and_not_by_this_one(home: Home, store: KeyedStore) -> None:
    lease = store.lock(wait_seconds=0)
    store.load()
    refs = [store.commit(checkpoint(seq), [record(name)])[0] for seq, name in enumerate("abc", 1)]
    reader = store.reader()
    store.compact(checkpoint(4), refs[1:])
    store.prune()
    assert (shown(reader), shown(store.reader())) == ("abc", "bc")
    store.finish(summary())
    store.prune()
    assert (shown(reader), shown(store.reader())) == ("abc", "bc")
    lease.release()
    # The same object may be used for the next launch.
    lease = store.lock(wait_seconds=0)
    store.load()
    store.prune()
    assert (shown(reader), shown(store.reader())) == (None, "bc")
    assert len(home.journals()) == 1
    lease.release()


def test_a_run_that_was_reopened_and_never_committed_leaves_nothing(home: Home, store: KeyedStore) -> None:
    lease = store.lock(wait_seconds=0)
    store.load()
    end_run(store)
    kept = home.journals()
    reopen(store)
    assert len(home.journals()) == 2
    lease.release()
    lease = store.lock(wait_seconds=0)
    assert store.load().checkpoint is None
    store.prune()
    assert (home.journals(), shown(store.reader(run_id=RUN))) == (kept, "abc")
    reopen(store)
    store.commit(checkpoint(4, run_id=LATER_RUN), [record("d")])
    store.prune()
    assert (shown(store.reader()), shown(store.reader(run_id=RUN))) == ("abcd", "abc")
    lease.release()


def test_a_summary_that_cannot_be_read_stops_everything_but_a_fresh_start(
    home: Home, store: KeyedStore, tmp_path: Path
) -> None:
    """Passed over, its items would be run and paid for again, and the next launch would remove its records."""
    lease = store.lock(wait_seconds=0)
    store.load()
    end_run(store)
    (journal,) = home.journals()
    (ended,) = home.ended()
    home.replace(lease.epoch, None, [replace(ended, summary=ended.summary[:50])])
    for look in (store.reader, store.summaries, store.load, store.prune):
        with pytest.raises(CheckpointError, match=f"the summary of the run {RUN} is damaged"):
            look()
    assert home.journals() == {journal}
    where = store.set_aside().removesuffix("*")
    assert {name.removeprefix(where) for name in home.names("aside/")} == {
        "state",
        f"{RUN}.summary",
        f"{journal}.jsonl",
    }
    assert store.summaries() == []
    lease.release()
