"""The contract of what lies beside a run: side files, and the history of the job."""

from __future__ import annotations

from agentrun.store.port import HistoryEvent, Store
from agentrun.testing.examples import checkpoint, keys, record, summary
from agentrun.testing.launches import Launches, OnOneStore


def fetched(store: Store, name: str) -> bytes | None:
    pieces = store.fetch(name)
    return b"".join(pieces) if pieces is not None else None


class SideFileContract(OnOneStore):
    def test_a_side_file_is_kept_whole_until_another_replaces_it(self, launches: Launches) -> None:
        store = launches.next()
        assert store.fetch("job.json") is None
        large = [bytes([n % 256]) * 70_000 for n in range(30)]
        store.keep("items-1.spool", iter(large))
        store.keep("job.json", [b"{", b"}"])
        store.keep("empty.spool", [])
        for _ in range(2):
            assert fetched(store, "items-1.spool") == b"".join(large)
            assert (fetched(store, "job.json"), fetched(store, "empty.spool")) == (b"{}", b"")
            assert fetched(store, "another") is None
            store = launches.next()
        store.keep("job.json", [b"[]"])
        assert fetched(store, "job.json") == b"[]" == fetched(launches.next(), "job.json")

    def test_a_side_file_needs_no_run_and_outlives_one(self, launches: Launches) -> None:
        store = launches.next()
        store.keep("job.json", [b"{}"])
        store.commit(checkpoint(1), [record("a")])
        store.keep("items-1.spool", [b"x"])
        assert keys(store) == ["a"]
        store.finish(summary(status="abandoned"))
        assert (fetched(store, "job.json"), fetched(store, "items-1.spool")) == (b"{}", b"x")
        launches.end()
        assert fetched(launches.look(), "job.json") == b"{}"

    def test_a_side_file_whose_making_fails_leaves_the_old_one(self, launches: Launches) -> None:
        def failing() -> object:
            yield b"half"
            raise LookupError("no more items")

        store = launches.next()
        store.keep("items-1.spool", [b"whole"])
        try:
            store.keep("items-1.spool", failing())  # type: ignore[arg-type]
        except LookupError:
            pass
        else:
            raise AssertionError("the error of the items is the caller's")
        assert fetched(store, "items-1.spool") == b"whole" == fetched(launches.next(), "items-1.spool")

    def test_the_history_has_the_events_in_their_order(self, launches: Launches) -> None:
        events = [HistoryEvent(event="launch", launch=n, reason="é\n") for n in range(3)]
        store = launches.next()
        store.note(events[0])
        store.commit(checkpoint(1), [record("a")])
        store.note(events[1])
        store = launches.next()
        store.note(events[2])
        with launches.look().reader() as reader:
            # The default body keeps none.
            assert list(reader.history()) == ([] if type(store).note is Store.note else events)
        assert keys(store) == ["a"]
