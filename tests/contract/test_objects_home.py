"""Object storage: what a commit costs, where records are, and what is removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agentrun.errors import CheckpointError, LostError
from agentrun.testing.examples import LATER_RUN, RUN
from agentrun.testing.homes import (
    JOURNAL,
    LONG,
    OTHER_JOURNAL,
    all_of,
    commit,
    ended_run,
    fill,
    lines,
    state,
    stored,
    text_of,
)
from needs import require_module

require_module("obstore", extra="objects")

import obstore  # noqa: E402
from obstore.store import MemoryStore  # noqa: E402

from agentrun.store.homes.objects.home import ObjectsHome  # noqa: E402
from agentrun.store.homes.objects.place import ObjectsPlace  # noqa: E402
from agentrun.store.homes.objects.segments import LISTED, SEGMENT_BYTES, TAIL_BYTES  # noqa: E402
from stores.memory_bucket import AT, HEAD, MemoryBucket  # noqa: E402


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket(MemoryStore())


@pytest.fixture
def home(bucket: MemoryBucket) -> ObjectsHome:
    return bucket.home()


@pytest.fixture
def other(bucket: MemoryBucket) -> ObjectsHome:
    return bucket.client().home()


def take(home: ObjectsHome) -> int:
    return home.take(home.head(), b"first", LONG)


def add(home: ObjectsHome, epoch: int, *commits: list[bytes]) -> list[bytes]:
    """A commit for each list of lines, as the run with seq 1 onwards; all lines."""
    made: list[bytes] = []
    for seq, some in enumerate(commits, 1):
        home.commit(epoch, replace(commit(seq, first_ref=len(made)), lines=some), LONG)
        made += some
    return made


def in_segments(count: int) -> list[list[bytes]]:
    """So many commits, each of which fills a segment with three records."""
    return [[b"%d-%d" % (n, m) + b"x" * (TAIL_BYTES // 3) for m in range(3)] for n in range(count)]


# ---- what it costs


def test_a_commit_is_one_put_and_one_more_for_each_256_kib(bucket: MemoryBucket, home: ObjectsHome) -> None:
    epoch = take(home)
    bucket.puts.clear()
    commits = [[b"%d-%d" % (n, m) + b"x" * 500 for m in range(64)] for n in range(60)]
    bucket.gets.clear()
    written = add(home, epoch, *commits)
    heads = bucket.puts.count(HEAD)
    assert (heads, bucket.gets) == (60, [])
    assert 0 < len(bucket.puts) - heads <= sum(map(len, written)) / TAIL_BYTES
    assert len(bucket.puts) / len(written) <= 0.05


def test_a_heartbeat_is_one_put(bucket: MemoryBucket, home: ObjectsHome) -> None:
    epoch = take(home)
    add(home, epoch, lines("a"))
    bucket.puts.clear()
    bucket.gets.clear()
    home.beat(epoch, LONG)
    home.give(epoch)
    assert (bucket.puts, bucket.gets) == ([HEAD, HEAD], [])


def test_the_head_does_not_grow_with_the_number_of_records(bucket: MemoryBucket, home: ObjectsHome) -> None:
    epoch = take(home)
    add(home, epoch, *in_segments(3 * LISTED))
    sizes = [len(text) for path, text in zip(bucket.puts, bucket.texts, strict=True) if path == HEAD]
    assert max(sizes[2 * LISTED :]) <= 1.1 * max(sizes[: LISTED + 2])
    assert len([path for path in bucket.puts if "index" in path]) == 2


def test_the_inbox_of_who_has_the_lease_is_listed_without_reading_the_head(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = take(home)
    home.put("side/job.json", [b"{}"], epoch=epoch)
    other.put("post/a", [b"x"])
    bucket.gets.clear()
    assert (home.names("post/"), home.names()) == (["post/a"], ["post/a", "side/job.json"])
    assert bucket.gets == []
    home.give(epoch)
    other.put("side/job.json", [b"[]"], epoch=take(other))
    other.drop(["post/a"])
    assert (home.names(), text_of(home, "side/job.json")) == (["side/job.json"], b"[]")


# ---- records


def test_records_in_segments_and_in_the_tail_are_read_alike(home: ObjectsHome, other: ObjectsHome) -> None:
    epoch = take(home)
    written = add(home, epoch, *in_segments(LISTED + 5), lines("a", "b"))
    for look in (home, other):
        assert stored(look) == list(enumerate(written))
        assert list(look.scan(JOURNAL, 2, 200)) == list(enumerate(written))[2:200]
        refs = [208, 0, 5, 4, 207, 4, 100]
        assert look.read(JOURNAL, refs) == [written[ref] for ref in refs]
        assert look.read(JOURNAL, [len(written)]) == [None]
        assert look.size(JOURNAL) == sum(len(line) + 1 for line in written)


def test_records_may_hold_any_bytes(home: ObjectsHome, other: ObjectsHome) -> None:
    written = [b"", b"\n", b"a\nb\n", bytes(range(256)), b"x" * TAIL_BYTES, b"\0"]
    add(home, take(home), written[:4], written[4:], [b"\n\n"])
    assert [line for _, line in stored(other)] == [*written, b"\n\n"]


def test_reading_by_ref_gets_each_segment_once(bucket: MemoryBucket, home: ObjectsHome) -> None:
    written = add(home, take(home), *in_segments(6))
    look = bucket.client()
    refs = [17, 0, 16, 1, 2, 15, 0]
    reader = look.home()
    for _ in range(2):
        assert reader.read(JOURNAL, refs) == [written[ref] for ref in refs]
    assert len([path for path in look.gets if "/seg/" in path]) == 2


def test_a_large_commit_is_cut_into_segments_that_can_be_sent(bucket: MemoryBucket, home: ObjectsHome) -> None:
    large = [bytes([n]) * (SEGMENT_BYTES // 2) for n in range(5)]
    add(home, take(home), large)
    assert len([path for path in bucket.puts if "/seg/" in path]) == 3
    assert [line for _, line in stored(bucket.client().home())] == large


def test_a_reader_keeps_reading_while_records_move_from_the_tail_into_segments(
    home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = take(home)
    home.commit(epoch, commit(1, adds="abc"), LONG)
    reading = other.scan(JOURNAL, 0, 3)
    assert next(reading) == (0, lines("a")[0])
    home.commit(epoch, replace(commit(2, first_ref=3), lines=[b"x" * TAIL_BYTES]), LONG)
    home.finish(epoch, ended_run())
    assert list(reading) == list(enumerate(lines("a", "b", "c")))[1:]
    assert other.read(JOURNAL, [2, 3]) == [lines("c")[0], b"x" * TAIL_BYTES]


def test_records_that_do_not_follow_the_stored_ones_are_refused(home: ObjectsHome, other: ObjectsHome) -> None:
    epoch = take(home)
    home.commit(epoch, commit(1, adds="ab"), LONG)
    for first_ref in (0, 1, 3):
        with pytest.raises(CheckpointError, match="does not follow"):
            home.commit(epoch, commit(2, first_ref=first_ref, adds="z"), LONG)
    assert len(stored(other)) == 2


def test_who_reads_a_journal_that_is_forgotten_meanwhile_finds_nothing(home: ObjectsHome, other: ObjectsHome) -> None:
    epoch = take(home)
    add(home, epoch, *in_segments(LISTED + 2))
    home.finish(epoch, ended_run())
    assert other.head().state is None
    home.forget(epoch, journals=[JOURNAL])
    assert (other.read(JOURNAL, [0, 190]), list(other.scan(JOURNAL, 0, 7))) == ([None, None], [])


# ---- what is removed


def leave_garbage(bucket: MemoryBucket, home: ObjectsHome) -> tuple[int, set[str]]:
    """A job with something of everything, and objects that nothing names; the paths of those."""
    epoch = fill(home)
    home.put("aside/large", [b"a", b"b"])
    home.commit(epoch, replace(commit(2, first_ref=1, run_id=LATER_RUN, journal=OTHER_JOURNAL), lines=_large()), LONG)
    named = bucket.paths()
    left = {f"{AT}/seg/{OTHER_JOURNAL}/{'0' * 12}-1-5-aa", f"{AT}/seg/left/index-1", f"{AT}/ended/left"}
    left |= {f"{AT}/clock/left", f"{AT}/piece/left/0", f"{AT}/piece/left/1"}
    for path in left:
        bucket.put(path, b"left")
    bucket.old |= named | left
    return epoch, left


def _large() -> list[bytes]:
    return [b"x" * TAIL_BYTES]


def test_what_nothing_names_is_removed_when_it_is_an_hour_old(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch, left = leave_garbage(bucket, home)
    home.stage("staged", 0, lines("a"))
    staged = bucket.paths() - bucket.old
    young = {f"{AT}/seg/left/000000000000-1-5-bb", f"{AT}/ended/young", f"{AT}/clock/young", f"{AT}/piece/young/0"}
    for path in young:
        bucket.put(path, b"[4]\nleft\n")
    before, paths = all_of(other), bucket.paths()
    bucket.old |= staged
    home.forget(epoch)
    assert paths - bucket.paths() == left
    assert {name: found for name, found in all_of(other).items() if name != "records"} == {
        name: found for name, found in before.items() if name != "records"
    }
    assert stored(home, "staged") == list(enumerate(lines("a")))
    assert stored(other, OTHER_JOURNAL) == before["records"][OTHER_JOURNAL]


def test_objects_that_were_replaced_are_removed_in_time(bucket: MemoryBucket, home: ObjectsHome) -> None:
    epoch = take(home)
    for number in range(4):
        home.commit(epoch, commit(1, run_id=f"run-{number}", journal=f"journal-{number}", adds="a"), LONG)
        home.finish(epoch, ended_run(f"run-{number}", f"journal-{number}"))
        home.put("side/job.json", [b"%d" % number], epoch=epoch)
    home.drop(["side/job.json"], epoch=epoch)
    bucket.old = bucket.paths()
    home.beat(epoch, LONG)
    bucket.old.discard(HEAD)
    home.forget(epoch, runs=["run-0", "run-1"], journals=["journal-0", "journal-1"])
    bucket.old = bucket.paths() - {HEAD}
    home.forget(epoch)
    kinds = sorted(path.removeprefix(f"{AT}/").split("/")[0] for path in bucket.paths())
    assert kinds == ["ended", "head", "seg", "seg"]


def test_who_lost_the_job_removes_nothing(bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome) -> None:
    epoch, left = leave_garbage(bucket, home)
    newer = take(other)
    other.stage("new", 0, lines("n"))
    paths = bucket.paths()
    bucket.old |= paths
    for _ in range(2):
        with pytest.raises(LostError):
            home.forget(epoch, runs=[RUN], journals=home.journals())
        with pytest.raises(LostError):
            home.clear(epoch)
        assert bucket.paths() >= paths >= left
    other.commit(newer, replace(commit(3, first_ref=1, journal="new"), run_id=LATER_RUN), LONG)
    assert stored(home, "new") == list(enumerate(lines("n")))


def test_a_job_that_is_lost_between_the_list_and_the_write_loses_no_objects(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch, _ = leave_garbage(bucket, home)

    def lose() -> None:
        bucket.on_list = lambda: None
        take(other)
        other.stage("new", 0, lines("n"))

    removals: list[Callable[[], None]] = [
        lambda: home.forget(epoch, journals=["new", JOURNAL]),
        lambda: home.clear(epoch),
    ]
    for remove in removals:
        bucket.on_list = lose
        paths = bucket.paths()
        with pytest.raises(LostError):
            remove()
        assert bucket.paths() >= paths


def test_pieces_are_kept_if_a_file_that_may_name_them_cannot_be_read(bucket: MemoryBucket, home: ObjectsHome) -> None:
    epoch, left = leave_garbage(bucket, home)
    bucket.put(f"{AT}/side/post/broken", b"{")
    home.forget(epoch)
    assert {path for path in left if "/piece/" in path} <= bucket.paths()
    with pytest.raises(CheckpointError, match="damaged"):
        home.get("post/broken")


def test_a_side_file_put_by_the_holder_and_by_others_is_the_newest_of_them(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = take(home)
    for number in range(3):
        home.put("side/x", [b"ours", b"%d" % number], epoch=epoch)
        assert text_of(other, "side/x") == b"ours%d" % number
        other.put("side/x", [b"theirs%d" % number])
        assert text_of(home, "side/x") == b"theirs%d" % number
    home.drop(["side/x"], epoch=epoch)
    assert (other.names(), home.get("side/x"), bucket.paths()) == ([], None, {HEAD})


# ---- what is damaged


def overwrite(bucket: MemoryBucket, path: str, text: bytes) -> None:
    obstore.put(bucket.store, path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "damaged"),
        (b"{}\n\n", "damaged"),
        (b'{"version":1,"nonce":"","state_bytes":5}\nabc', "cut off"),
        (b'{"version":1,"nonce":"","tail_bytes":[3]}\n\nab', "cut off"),
        (b'{"version":2,"nonce":""}\n\n', "newer agentrun"),
        (b'{"version":7,"seq":"x"}', "newer agentrun"),
    ],
)
def test_a_head_that_is_damaged_or_newer_is_an_error(
    bucket: MemoryBucket, home: ObjectsHome, text: bytes, message: str
) -> None:
    overwrite(bucket, HEAD, text)
    with pytest.raises(CheckpointError, match=message) as caught:
        home.head()
    assert caught.value.exit_code == 65


def test_segments_and_lists_that_are_damaged_are_errors_and_those_that_are_gone_are_not_there(
    bucket: MemoryBucket, home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = take(home)
    add(home, epoch, *in_segments(2))
    home.finish(epoch, ended_run())
    (ended,) = (path for path in bucket.paths() if "/ended/" in path)
    first, second = sorted(path for path in bucket.paths() if "/seg/" in path)
    overwrite(bucket, first, b"[3]\nabc\n")
    bucket.delete([second])
    with pytest.raises(CheckpointError, match="damaged"):
        other.read(JOURNAL, [0])
    assert other.read(JOURNAL, [4]) == [None]
    overwrite(bucket, ended, b"[")
    with pytest.raises(CheckpointError, match="damaged"):
        other.ended()
    bucket.delete([ended])
    with pytest.raises(CheckpointError, match="is gone"):
        other.ended()


def test_a_state_may_be_empty(home: ObjectsHome, other: ObjectsHome) -> None:
    home.commit(take(home), replace(commit(1, adds="a"), state=b""), LONG)
    assert (other.head().state, stored(other)) == (b"", list(enumerate(lines("a"))))


# ---- the place


def test_other_things_in_the_bucket_are_no_jobs() -> None:
    store = MemoryStore()
    for path in ("photos/1.jpg", "head", "x/side", "y/seg/z/1"):
        obstore.put(store, path, b"x")
    place = ObjectsPlace(store, "", shown="memory")
    assert place.names() == []
    home = place.home("photos")
    home.commit(home.take(home.head(), b"first", LONG), commit(1), LONG)
    assert (place.names(), place.find(RUN), home.head().state) == (["photos"], RUN and "photos", state(1))
    assert ObjectsPlace(store, "/photos/", shown="memory").names() == []
