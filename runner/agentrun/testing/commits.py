"""The contract of commits: what is committed is read back, by this launch and the next."""

from __future__ import annotations

import pytest
from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.errors import CheckpointError
from agentrun.store.port import Store
from agentrun.testing.examples import checkpoint, context, full_checkpoint, keys, record, records_of_every_kind
from agentrun.testing.launches import Launches, OnOneStore


def loaded(store: Store) -> Checkpoint:
    found = store.load()
    assert found.checkpoint is not None and found.finished is None
    return found.checkpoint


class CommitContract(OnOneStore):
    def test_there_is_nothing_at_first(self, launches: Launches) -> None:
        store = launches.next()
        assert store.load().checkpoint is None and store.load().finished is None
        assert keys(store) == []
        assert store.summaries() == []
        assert store.size() == 0

    def test_records_are_read_back_in_any_order_and_by_the_next_launch(self, launches: Launches) -> None:
        store = launches.next()
        refs: list[int] = []
        for seq in range(1, 21):
            refs += store.commit(checkpoint(seq, total=20), [record(f"k{seq}", {"n": seq}), record(f"m{seq}", [seq])])
        assert refs == sorted(set(refs))
        for _ in range(2):
            found = list(store.scan())
            assert [ref for ref, _ in found] == refs
            assert [one.seq for _, one in found] == [seq for seq in range(1, 21) for _ in range(2)]
            assert [one.key for _, one in found] == [f"{letter}{seq}" for seq in range(1, 21) for letter in "km"]
            shuffled = refs[::-3] + refs[::2]
            assert list(store.read(shuffled)) == [dict(found)[ref] for ref in shuffled]
            assert [one.value for one in store.read([refs[2], refs[1]])] == [{"n": 2}, [1]]
            store = launches.next()
            assert (loaded(store).seq, loaded(store).total) == (20, 20)

    def test_every_field_of_every_kind_of_record_comes_back(self, launches: Launches) -> None:
        store = launches.next()
        refs = store.commit(checkpoint(1), records_of_every_kind())
        expected = [structs.replace(one, seq=1) for one in records_of_every_kind()]
        assert [one for _, one in store.scan()] == expected
        assert list(launches.next().read(refs)) == expected
        assert [one.value for one in expected[:2]] == [{"é": "\u2028", "n": [2**63, -1.5, None, True]}, None]
        assert [one.has_output for one in launches.next().read(refs[:3])] == [True, True, False]

    def test_every_field_of_the_checkpoint_comes_back(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(full_checkpoint(1), [record("a")])
        found, expected = loaded(launches.next()), full_checkpoint(1)
        # The two fields that belong to the store.
        assert structs.replace(found, outputs=[], journal=expected.journal) == expected

    def test_the_records_of_a_commit_are_numbered_by_its_seq(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a", seq=77)])
        store.commit(checkpoint(2))
        store.commit(checkpoint(3), [record("b")])
        assert [one.seq for _, one in store.scan()] == [1, 3]

    def test_a_ref_stays_the_same_while_others_are_committed(self, launches: Launches) -> None:
        store = launches.next()
        (ref,) = store.commit(checkpoint(1), [record("first")])
        others = [store.commit(checkpoint(seq), [record(f"k{seq}")])[0] for seq in range(2, 120)]
        for _ in range(2):
            assert [one.key for one in store.read([others[3], ref, others[-1]])] == ["k5", "first", "k119"]
            store = launches.next()

    def test_large_records_and_many_at_once_are_read_back(self, launches: Launches) -> None:
        store = launches.next()
        sizes = [10, 700_000, 5, 1_048_576, *(range(300))]
        refs = store.commit(checkpoint(1), [record(f"k{n}", "z" * size) for n, size in enumerate(sizes)])
        for _ in range(2):
            assert [len(one.value) for _, one in store.scan()] == sizes
            assert [len(one.value) for one in store.read(refs[::-1])] == sizes[::-1]
            store = launches.next()

    def test_a_seq_that_does_not_follow_is_refused_and_changes_nothing(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        for seq in (0, 1, 3):
            with pytest.raises(CheckpointError):
                store.commit(checkpoint(seq, total=9), [record("b")])
        assert keys(store) == ["a"]
        store.commit(checkpoint(2), [record("c")])
        assert keys(store) == ["a", "c"]
        store = launches.next()
        assert (loaded(store).total, keys(store)) == (0, ["a", "c"])

    def test_a_run_begins_with_seq_1(self, launches: Launches) -> None:
        store = launches.next()
        for seq in (0, 2):
            with pytest.raises(CheckpointError):
                store.commit(checkpoint(seq))
        store.commit(checkpoint(1))

    def test_a_commit_that_has_only_begun_is_not_there(self, launches: Launches) -> None:
        store = launches.next()
        (first,) = store.commit(checkpoint(1), [record("a")])
        made = checkpoint(2, total=7, context=context(deaths={"a": 1}))
        sync = store.begin(made, [record("b")])
        # From here on it belongs to the caller again.
        made.total, made.context.deaths["a"] = 8, 2
        assert keys(store) == ["a"] and [one.key for one in store.read([first])] == ["a"]
        (second,) = sync()
        assert keys(store) == ["a", "b"] and [one.key for one in store.read([second, first])] == ["b", "a"]
        found = loaded(launches.next())
        assert (found.seq, found.total, found.context.deaths) == (2, 7, {"a": 1})

    def test_a_commit_that_was_never_synced_is_not_found_by_the_next_launch(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        store.begin(checkpoint(2, total=7), [record("b")])
        store = launches.next()
        assert (loaded(store).seq, loaded(store).total, keys(store)) == (1, 0, ["a"])
        store.commit(checkpoint(2), [record("c")])
        assert keys(store) == ["a", "c"]

    def test_what_the_caller_does_to_a_checkpoint_later_is_not_committed(self, launches: Launches) -> None:
        store = launches.next()
        mine = checkpoint(1, context=context(deaths={"a": 1}))
        store.commit(mine)
        mine.context.launches = 7
        mine.context.deaths["a"] = 2
        store = launches.next()
        found = loaded(store)
        assert (found.context.launches, found.context.deaths) == (1, {"a": 1})
        found.context.launches = 9
        assert loaded(store).context.launches == 1

    def test_compaction_keeps_what_it_is_given(self, launches: Launches) -> None:
        store = launches.next()
        refs = [store.commit(checkpoint(seq), [record(f"k{seq}", "y" * seq)])[0] for seq in range(1, 16)]
        kept, everything = refs[1::3], keys(store)
        before = list(store.read(kept))
        moved = store.compact(checkpoint(16, total=15), kept)
        assert moved == sorted(set(moved))
        assert list(store.read(moved)) == before
        assert list(store.read(moved[::-1])) == before[::-1]
        new = store.commit(checkpoint(17), [record("new")])
        assert moved[-1] < new[0]
        # The default body keeps everything.
        left = everything if type(store).compact is Store.compact else [one.key for one in before]
        for _ in range(2):
            assert [one.key for one in store.read([*new, *moved])] == ["new", *(one.key for one in before)]
            assert keys(store) == [*left, "new"]
            store = launches.next()

    def test_compaction_is_a_commit_with_a_seq_of_its_own(self, launches: Launches) -> None:
        store = launches.next()
        refs = store.commit(checkpoint(1), [record("a")])
        with pytest.raises(CheckpointError):
            store.compact(checkpoint(1), refs)
        store.compact(checkpoint(2, total=4), refs)
        with pytest.raises(CheckpointError):
            store.commit(checkpoint(2))
        store = launches.next()
        assert (loaded(store).seq, loaded(store).total, keys(store)) == (2, 4, ["a"])

    def test_the_size_of_all_records_is_the_sum_of_their_sizes(self, launches: Launches) -> None:
        store = launches.next()
        refs = [store.commit(checkpoint(seq), [record(f"k{seq}", "y" * seq)])[0] for seq in range(1, 30)]
        assert store.size() == store.size(refs) == sum(store.size([ref]) for ref in refs)
        assert store.size([]) == 0
        if type(store).size is not Store.size:
            # As it is stored: sealed, a text of the same length may be a few bytes longer or shorter.
            assert store.size(refs[-1:]) - store.size(refs[:1]) >= 10
