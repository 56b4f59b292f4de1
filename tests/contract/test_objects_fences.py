"""Object storage: each write of the head is one that the lease allows, whatever becomes of requests and answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from agentrun.errors import LostError, StoreError, UsageError
from agentrun.store.keyed.home import Head
from agentrun.testing.examples import LATER_RUN
from agentrun.testing.homes import (
    JOURNAL,
    LONG,
    OTHER_JOURNAL,
    all_of,
    commit,
    ended_run,
    lease_of,
    lines,
    stored,
    text_of,
)
from needs import require_module

require_module("obstore", extra="objects")

from obstore.store import MemoryStore  # noqa: E402

from agentrun.store.homes.objects.bucket import RefusedError  # noqa: E402
from agentrun.store.homes.objects.head import decode_head  # noqa: E402
from agentrun.store.homes.objects.home import ObjectsHome  # noqa: E402
from stores.memory_bucket import HEAD, MemoryBucket, Put  # noqa: E402

if TYPE_CHECKING:
    from obstore import UpdateVersion


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket(MemoryStore())


@pytest.fixture
def home(bucket: MemoryBucket) -> ObjectsHome:
    return bucket.home()


@pytest.fixture
def other(bucket: MemoryBucket) -> ObjectsHome:
    """The same job, as another process has it."""
    return bucket.client().home()


def begin(home: ObjectsHome) -> int:
    epoch = home.take(home.head(), b"first", LONG)
    home.commit(epoch, commit(1, adds="a"), LONG)
    return epoch


def take_over(home: ObjectsHome) -> int:
    return home.take(home.head(), b"second", LONG)


WRITES: dict[str, Callable[[ObjectsHome, int], object]] = {
    "beat": lambda home, epoch: home.beat(epoch, LONG),
    "give": lambda home, epoch: home.give(epoch),
    "commit": lambda home, epoch: home.commit(epoch, commit(2, first_ref=1, adds="b"), LONG),
    "finish": lambda home, epoch: home.finish(epoch, ended_run()),
    "replace": lambda home, epoch: home.replace(epoch, None, []),
    "forget": lambda home, epoch: home.forget(epoch, journals=["x"]),
    "clear": lambda home, epoch: home.clear(epoch),
    "put": lambda home, epoch: home.put("side/x", [b"late"], epoch=epoch),
    "drop": lambda home, epoch: home.drop(["side/x"], epoch=epoch),
}


# ---- who has lost the job


@pytest.mark.parametrize("what", WRITES)
def test_what_who_lost_the_job_has_read_since_does_not_help(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome, what: str
) -> None:
    epoch = begin(home)
    newer = take_over(other)
    before, paths = bucket.get(HEAD), bucket.paths()
    looks: list[Callable[[], object]] = [lambda: None, home.head, home.ended, home.names, home.journals]
    for look in looks:
        look()
        with pytest.raises(LostError):
            WRITES[what](home, epoch)
        assert bucket.get(HEAD) == before
        # What it has put for nothing is no harm; of what was there nothing is missing.
        assert bucket.paths() >= paths
    other.commit(newer, commit(2, first_ref=1, adds="b"), LONG)
    assert stored(home) == list(enumerate(lines("a", "b")))


def test_a_heartbeat_that_was_refused_does_not_learn_how_to_succeed(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    """It reads the head to see whether it was its own write that is there: that version must not be its next base."""
    epoch = begin(home)
    newer = take_over(other)
    for seq in (2, 3, 4):
        with pytest.raises(LostError):
            home.beat(epoch, LONG)
        assert lease_of(other) == (newer, b"second", True)
        other.commit(newer, commit(seq, first_ref=seq - 1, adds="b"), LONG)
    assert len(stored(other)) == 4


def test_an_epoch_that_another_took_at_the_same_moment_is_not_ours(home: ObjectsHome, other: ObjectsHome) -> None:
    seen = home.head()
    assert take_over(other) == 1
    with pytest.raises(LostError):
        home.take(seen, b"first", LONG)
    assert lease_of(home) == (1, b"second", True)


def test_a_job_that_is_taken_over_between_the_look_and_the_write_stays_taken(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = begin(home)

    def overtaken(path: str, _: object) -> None:
        if path == HEAD:
            bucket.on_put = None
            take_over(other)

    bucket.on_put = overtaken
    with pytest.raises(LostError):
        home.commit(epoch, commit(2, first_ref=1, adds="b"), LONG)
    assert lease_of(other) == (epoch + 1, b"second", True) and len(stored(other)) == 1


def test_a_side_file_is_not_replaced_if_the_job_was_lost_while_it_was_sent(
    home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = begin(home)
    home.put("side/job.json", [b"{}"], epoch=epoch)

    def pieces() -> Iterator[bytes]:
        yield b"late"
        other.put("side/job.json", [b"[]"], epoch=take_over(other))
        yield b"r"

    with pytest.raises(LostError):
        home.put("side/job.json", pieces(), epoch=epoch)
    assert text_of(home, "side/job.json") == b"[]" == text_of(other, "side/job.json")


# ---- requests and answers that are lost


@pytest.mark.parametrize("what", WRITES)
def test_a_write_that_the_client_sent_twice_is_done_once_and_not_lost(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome, what: str
) -> None:
    epoch = begin(home)
    home.put("side/x", [b"x"], epoch=epoch)
    bucket.send_twice()
    WRITES[what](home, epoch)
    assert bucket.on_put is None
    assert home.head().epoch == epoch and len(stored(other)) == (0 if what == "clear" else 1 + (what == "commit"))
    before = len(bucket.puts)
    home.beat(epoch, LONG)
    assert len(bucket.puts) == before + 1


def test_a_lease_whose_taking_the_client_sent_twice_is_taken(bucket: MemoryBucket, home: ObjectsHome) -> None:
    for epoch in (1, 2):
        bucket.send_twice()
        assert home.take(home.head(), b"first", LONG) == epoch
        home.beat(epoch, LONG)
        home.give(epoch)


@pytest.mark.parametrize("what", WRITES)
def test_a_write_sent_twice_with_another_runner_in_between_is_lost(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome, what: str
) -> None:
    epoch = begin(home)
    bucket.send_twice(lambda: [take_over(other)].clear())
    with pytest.raises(LostError):
        WRITES[what](home, epoch)
    before = bucket.get(HEAD)
    for again in WRITES.values():
        with pytest.raises(LostError):
            again(home, epoch)
    assert bucket.get(HEAD) == before and home.head().epoch == epoch + 1


def test_an_unsure_commit_that_was_done_is_found_and_the_next_one_follows(
    bucket: MemoryBucket, home: ObjectsHome
) -> None:
    epoch = begin(home)
    bucket.lose_answer()
    with pytest.raises(StoreError):
        home.commit(epoch, commit(2, first_ref=1, adds="b"), LONG)
    assert (home.head().epoch, home.head().seq) == (epoch, 2)
    home.commit(epoch, commit(3, first_ref=2, adds="c"), LONG)
    assert stored(home) == list(enumerate(lines("a", "b", "c")))


def test_an_unsure_commit_that_is_sent_again_although_it_was_done_is_refused(
    bucket: MemoryBucket, home: ObjectsHome
) -> None:
    epoch = begin(home)
    bucket.lose_answer()
    with pytest.raises(StoreError):
        home.commit(epoch, commit(2, first_ref=1, adds="b"), LONG)
    with pytest.raises(LostError):
        home.commit(epoch, commit(2, first_ref=1, adds="b"), LONG)
    assert (home.head().epoch, home.head().seq) == (epoch, 2)
    assert stored(home) == list(enumerate(lines("a", "b")))


@pytest.mark.parametrize("large", [False, True])
def test_a_commit_that_arrives_after_it_was_sent_again_changes_nothing(
    bucket: MemoryBucket, home: ObjectsHome, large: bool
) -> None:
    epoch = begin(home)
    adds = [b"x" * 300_000] if large else lines("b")
    sent = replace(commit(2, first_ref=1), lines=adds)
    held = bucket.hold_back()
    with pytest.raises(StoreError):
        home.commit(epoch, sent, LONG)
    home.commit(epoch, sent, LONG)
    with pytest.raises(RefusedError):
        held[0]()
    home.commit(epoch, commit(3, first_ref=2, adds="c"), LONG)
    assert [line for _, line in stored(home)] == [*lines("a"), *adds, *lines("c")]


@pytest.mark.parametrize("what", ["beat", "put"])
def test_a_write_of_ours_that_arrives_late_does_not_make_the_next_commit_lose_the_job(
    bucket: MemoryBucket, home: ObjectsHome, what: str
) -> None:
    epoch = begin(home)
    held = bucket.hold_back()
    with pytest.raises(StoreError):
        WRITES[what](home, epoch)
    held[0]()
    home.commit(epoch, commit(2, first_ref=1, adds="b"), LONG)
    assert (home.head().seq, text_of(home, "side/x")) == (2, b"late" if what == "put" else None)
    assert stored(home) == list(enumerate(lines("a", "b")))


def test_a_late_write_of_who_lost_the_job_changes_nothing(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = begin(home)
    held = bucket.hold_back()
    with pytest.raises(StoreError):
        home.commit(epoch, commit(2, first_ref=1, adds="b"), LONG)
    take_over(other)
    before = all_of(other)
    with pytest.raises(RefusedError):
        held[0]()
    assert all_of(other) == before


def test_no_head_is_written_twice_in_the_same_words(bucket: MemoryBucket, home: ObjectsHome) -> None:
    """The ETag of S3 is a hash of the text: with the same text, an old version would pass for the newest."""
    epoch = begin(home)
    for _ in range(3):
        home.beat(epoch, LONG)
        home.give(epoch)
    heads = [text for path, text in zip(bucket.puts, bucket.texts, strict=True) if path == HEAD]
    assert len(set(heads)) == len(heads) == 8


@pytest.mark.parametrize("how", ["sent twice", "not answered"])
def test_who_puts_something_new_knows_that_it_was_them_although_the_answer_was_lost(
    bucket: MemoryBucket, other: ObjectsHome, how: str
) -> None:
    def lose(_: str, write: Put) -> UpdateVersion:
        write()
        if how == "sent twice":
            return write()
        raise StoreError("memory: does not answer")

    bucket.on_put = lose
    assert bucket.home().put_new("fate/a", b"ours") is True
    bucket.on_put = None
    assert bucket.home().put_new("fate/a", b"ours") is False
    assert text_of(other, "fate/a") == b"ours"


def test_something_new_that_was_not_kept_is_an_error_when_nobody_answers(bucket: MemoryBucket) -> None:
    def fail(_: str, __: object) -> None:
        raise StoreError("memory: does not answer")

    bucket.on_put = fail
    with pytest.raises(StoreError):
        bucket.home().put_new("fate/a", b"ours")


# ---- the clock


def test_whether_a_lease_has_run_out_is_told_by_the_services_clock_two_seconds_late(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    home.take(home.head(), b"first", 30)
    found = bucket.get(HEAD)
    assert found is not None
    asked = bucket.client()
    for passed, is_fresh in ((0, True), (31.9, True), (32.1, False), (-5, True)):
        asked.clock = found.modified + timedelta(seconds=passed)
        assert asked.home().head(exact=True).fresh is is_fresh
        assert asked.home().head().fresh is True
        if is_fresh:
            with pytest.raises(LostError):
                asked.home().take(Head(1), b"second", 30)
    asked.clock = found.modified + timedelta(seconds=33)
    assert asked.home().take(Head(1), b"second", 30) == 2


def test_looking_needs_no_right_to_write(bucket: MemoryBucket, home: ObjectsHome) -> None:
    begin(home)
    home.put("post/a", [b"x"])
    person = bucket.client()

    def refuse(_: str, __: object) -> None:
        raise UsageError("memory: access was denied")

    person.on_put = refuse
    look = person.home()
    assert lease_of(look) == (1, b"first", True) and all_of(look)["sides"] == {"post/a": b"x"}
    with pytest.raises(UsageError):
        look.head(exact=True)


def test_the_objects_made_to_learn_the_time_are_deleted(bucket: MemoryBucket, home: ObjectsHome) -> None:
    begin(home)
    home.head(exact=True)
    assert bucket.paths() == {HEAD}


def test_a_service_that_does_not_keep_conditions_is_refused(bucket: MemoryBucket, home: ObjectsHome) -> None:
    bucket.keeps_conditions = False
    with pytest.raises(UsageError, match="does not support conditional writes"):
        home.take(home.head(), b"first", LONG)
    assert home.head().epoch == 0


# ---- threads


def test_heartbeats_looks_and_commits_at_once_do_not_disturb_one_another(home: ObjectsHome, other: ObjectsHome) -> None:
    epoch = begin(home)
    is_over, errors = threading.Event(), []

    def again(call: Callable[[], object]) -> None:
        try:
            while not is_over.is_set():
                call()
        except Exception as error:
            errors.append(error)

    calls: list[Callable[[], object]] = [lambda: home.beat(epoch, LONG), home.head, home.ended, home.names]
    threads = [Thread(target=again, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    try:
        for seq in range(2, 200):
            home.commit(epoch, commit(seq, first_ref=seq - 1, adds="b"), LONG)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert errors == [] and len(stored(other)) == 199


def test_a_heartbeat_does_not_wait_for_large_records(bucket: MemoryBucket, home: ObjectsHome) -> None:
    epoch = begin(home)

    def beat(path: str, _: object) -> None:
        if "/seg/" in path:
            thread = Thread(target=home.beat, args=(epoch, LONG), daemon=True)
            thread.start()
            thread.join(60)
            assert not thread.is_alive()

    bucket.on_put = beat
    home.commit(epoch, replace(commit(2, first_ref=1), lines=[b"x" * 300_000]), LONG)
    home.put("side/x", [b"a"], epoch=epoch)
    assert len(stored(home)) == 2


def test_a_side_file_dropped_by_someone_else_does_not_cost_the_holder_the_job(
    home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = begin(home)
    home.put("side/x", [b"x"], epoch=epoch)
    other.drop(["side/x"])
    home.commit(epoch, commit(2, first_ref=1, adds="b"), LONG)
    assert (home.names(), other.names(), len(stored(other))) == ([], [], 2)


def test_the_next_run_may_begin_with_what_was_staged_although_its_first_commit_was_unsure(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = begin(home)
    home.finish(epoch, ended_run())
    home.stage(OTHER_JOURNAL, 0, lines("a", "b"))
    first = replace(commit(4, first_ref=2, adds="c", run_id=LATER_RUN, journal=OTHER_JOURNAL), is_first=True)
    bucket.hold_back()
    with pytest.raises(StoreError):
        home.commit(epoch, first, LONG)
    home.commit(epoch, first, LONG)
    assert stored(other, OTHER_JOURNAL) == list(enumerate(lines("a", "b", "c")))


def test_a_commit_does_not_name_again_what_a_late_write_of_ours_has_forgotten(
    bucket: MemoryBucket, home: ObjectsHome
) -> None:
    epoch = begin(home)
    home.finish(epoch, ended_run())
    home.commit(epoch, commit(1, run_id=LATER_RUN, journal=OTHER_JOURNAL, adds="x"), LONG)
    held = bucket.hold_back()
    with pytest.raises(StoreError):
        home.forget(epoch, journals=[JOURNAL])

    def arrive(path: str, _: object) -> None:
        if path == HEAD:
            bucket.on_put = None
            held[0]()

    bucket.on_put = arrive
    home.commit(epoch, commit(2, first_ref=1, run_id=LATER_RUN, journal=OTHER_JOURNAL, adds="y"), LONG)
    found = bucket.get(HEAD)
    assert found is not None and decode_head(found.data, where="").journals == {}
    assert stored(home, OTHER_JOURNAL) == list(enumerate(lines("x", "y")))
