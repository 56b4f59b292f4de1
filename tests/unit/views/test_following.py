"""Following what an item prints, on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.checkpoint.checkpoint import Running
from agentrun.outputs.logs import DONE_BYTES, KEPT_BYTES, ItemLogs
from agentrun.outputs.workspace import Workspace
from agentrun.views.following import ItemFollower
from agentrun.views.listing import open_listing
from unit.made import Made, StoreKind


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, [*"abcd"], kind)


@pytest.fixture
def logs(made: Made) -> ItemLogs:
    return ItemLogs(Workspace(made.store).logs, keep_done=10)


def follow(made: Made, key: str) -> ItemFollower:
    with open_listing(made.store, made.job) as listing:
        view = listing.find(key=key)
    assert view is not None
    return ItemFollower(made.known, view)


def runs(made: Made, **slots: int) -> None:
    made.commit(running=[Running(index=made.keys.index(key), key=key, slot=slot) for key, slot in slots.items()])


def test_what_was_printed_comes_first_and_then_what_is_printed(made: Made, logs: ItemLogs) -> None:
    with made.at_work():
        runs(made, b=3)
        logs.append(3, "one")
        follower = follow(made, "b")
        assert follower.catch_up() == b"one\n"
        assert follower.look().printed == b""
        logs.append(3, "two")
        logs.append(3, "three")
        heard = follower.look()
        assert (heard.printed, heard.state, heard.is_over) == (b"two\nthree\n", "running", False)


@pytest.mark.parametrize("looks", [False, True])
def test_the_end_of_an_attempt_is_heard_once_and_the_next_item_of_the_slot_never(
    made: Made, logs: ItemLogs, looks: bool
) -> None:
    with made.at_work():
        runs(made, b=0)
        logs.append(0, "one")
        follower = follow(made, "b")
        follower.catch_up()
        logs.append(0, "two")
        logs.keep(0, "b", "attempt 1: done")
        before = follower.look().printed if looks else b""
        made.commit(made.record("b"), running=[Running(index=2, key="c", slot=0)])
        logs.settle("b")
        logs.append(0, "of another item")
        heard = follower.look()
        assert before + heard.printed == b"two\n--- attempt 1: done\n"
        assert (heard.state, heard.is_over) == ("done", True)


def test_a_retry_is_followed_like_the_first_attempt(made: Made, logs: ItemLogs) -> None:
    with made.at_work():
        runs(made, b=0)
        follower = follow(made, "b")
        follower.catch_up()
        for number in (1, 2):
            logs.append(0, f"first line of {number}")
            assert follower.look().printed == b"first line of %d\n" % number
            logs.append(0, "last line")
            logs.keep(0, "b", f"attempt {number}: no")
            assert follower.look().printed == b"last line\n--- attempt %d: no\n" % number
        assert follower.look().printed == b""


def test_a_log_whose_beginning_is_dropped_is_followed_all_the_same(made: Made, logs: ItemLogs) -> None:
    with made.at_work():
        runs(made, b=0)
        logs.append(0, "".join(f"{n}\n" for n in range(KEPT_BYTES // 2)))
        follower = follow(made, "b")
        follower.catch_up()
        logs.trim(1)
        logs.append(0, "the next line")
        assert follower.look().printed == b"the next line\n"
        logs.append(0, "the last line")
        logs.keep(0, "b", "attempt 1: done", most=DONE_BYTES)
        made.commit(made.record("b"), running=[])
        logs.settle("b")
        assert follower.look().printed == b"the last line\n--- attempt 1: done\n"


def test_the_log_of_an_older_result_is_not_new(made: Made, logs: ItemLogs) -> None:
    with made.at_work():
        made.commit(made.record("b"))
        logs.append(0, "of the old result")
        logs.keep(0, "b", "attempt 1: done")
        logs.settle("b")
        made.commit(made.record("b", "redo", gen=1), running=[Running(index=1, key="b", slot=2)])
        follower = follow(made, "b")
        assert follower.catch_up() == b"--- attempt 1: done\nof the old result\n"
        assert follower.look().printed == b""
        logs.append(2, "of the new one")
        assert follower.look().printed == b"of the new one\n"


def test_nothing_is_waited_for_when_the_item_is_settled_or_nobody_is_at_work(made: Made, logs: ItemLogs) -> None:
    made.commit(made.record("a"), made.failed("b"))
    for key, state in (("a", "done"), ("b", "failed"), ("c", "pending")):
        heard = follow(made, key).look()
        assert (heard.state, heard.is_over) == (state, True)
    with made.at_work():
        follower = follow(made, "c")
        assert not follower.look().is_over
        made.commit(made.waiting("c"))
        heard = follower.look()
        assert (heard.state, heard.is_over) == ("waiting", False)
        made.commit(made.record("c", "skipped"))
        heard = follower.look()
        assert (heard.state, heard.is_over) == ("skipped", True)
