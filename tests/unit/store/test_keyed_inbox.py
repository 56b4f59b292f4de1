"""A message that a person takes back while a runner processes it: whichever call comes first, one of them has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from agentrun.errors import StoreError
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.home import Home
from agentrun.store.keyed.inbox import FATE, INBOX, KeyedInbox
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.keyed.wrapped import WrappedHome
from agentrun.testing.examples import checkpoint, skip
from agentrun.testing.homes import LONG
from stores.faulty_home import HOWS, FaultyHome, How


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    place = SqlitePlace(tmp_path / "jobs.db")
    yield place.home("triage")
    place.close()


class Interrupted(WrappedHome):
    """Something else happens right before the n-th call."""

    def __init__(self, inner: Home, at: int, call: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._at, self._something_else = at, call
        self.calls = 0
        self.meanwhile: list[bool] = []
        """What came of it."""

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self._at:
            self.meanwhile.append(self._something_else())

    def put_new(self, name: str, text: bytes) -> bool:
        self._call()
        return super().put_new(name, text)

    def get(self, name: str) -> Iterator[bytes] | None:
        self._call()
        return super().get(name)

    def drop(self, names: Sequence[str], *, epoch: int | None = None) -> None:
        self._call()
        super().drop(names, epoch=epoch)


def post(home: Home) -> str:
    """The name of a new message."""
    inbox = KeyedInbox(home)
    inbox.post([skip("a")])
    return inbox.messages()[-1].name


def process(home: Home, name: str) -> bool:
    """What a runner does with a message; whether it has processed it."""
    inbox = KeyedInbox(home)
    is_ours = inbox.claim([name]) == {name}
    if is_ours:
        inbox.drop([name], epoch=None)
    return is_ours


def is_there(home: Home, name: str) -> bool:
    return home.get(INBOX + name) is not None


def test_who_takes_a_message_back_while_a_runner_processes_it_is_told_the_truth(home: Home) -> None:
    for at in count(1):
        name = post(home)
        person = Interrupted(home, at, partial(process, home, name))
        is_withdrawn = KeyedInbox(person).withdraw(name)
        assert not is_there(home, name), at
        if person.calls < at:
            assert is_withdrawn and at > 3
            return
        assert person.meanwhile == [not is_withdrawn], at


def test_a_runner_processes_no_message_that_is_taken_back_meanwhile(home: Home) -> None:
    for at in count(1):
        name = post(home)
        runner = Interrupted(home, at, partial(KeyedInbox(home).withdraw, name))
        is_processed = process(runner, name)
        assert not is_there(home, name), at
        if runner.calls < at:
            assert is_processed and at > 3
            return
        assert runner.meanwhile == [not is_processed], at


def test_a_message_that_two_take_back_at_once_is_gone_and_no_runner_has_it(home: Home) -> None:
    for at in count(1):
        name = post(home)
        person = Interrupted(home, at, partial(KeyedInbox(home).withdraw, name))
        is_withdrawn = KeyedInbox(person).withdraw(name)
        assert is_withdrawn or person.meanwhile == [True], at
        assert not is_there(home, name) and not process(home, name), at
        if person.calls < at:
            return


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("who", ["the person again", "the next runner"])
def test_a_message_whose_taking_back_was_interrupted_is_not_stuck(home: Home, how: How, who: str) -> None:
    """A launch refuses to begin as long as a message that it read cannot be claimed."""
    for at in count(1):
        name = post(home)
        faulty = FaultyHome(home, at=at, how=how)
        try:
            KeyedInbox(faulty).withdraw(name)
        except StoreError:
            pass
        was_decided = home.get(FATE + name) is not None
        if who == "the next runner":
            posted = [one.name for one in KeyedInbox(home).messages()]
            claimed = KeyedInbox(home).claim(posted)
            assert claimed <= {name} and not (claimed and was_decided), at
            KeyedInbox(home).drop(claimed, epoch=None)
        else:
            was_there = is_there(home, name)
            assert KeyedInbox(home).withdraw(name) is was_there, at
        faulty.deliver()
        assert not is_there(home, name), at
        assert KeyedInbox(home).messages() == []
        if not faulty.struck:
            return


def test_the_fate_of_a_message_outlives_it_until_the_next_launch(home: Home, tmp_path: Path) -> None:
    """Whoever looked at the message before it was processed must not be told that it was taken back."""
    name = post(home)
    for launch in range(2):
        store = KeyedStore(home, "triage", tmp_path / ".agentrun" / "triage", timing=Timing(beats=False))
        lease = store.lock(wait_seconds=0)
        store.load()
        assert store.claim([name]) == ({name} if launch == 0 else set())
        store.commit(checkpoint(launch + 1))
        store.drop([name])
        store.prune()
        assert (home.names(FATE) == [FATE + name]) is (launch == 0)
        lease.release()


def test_a_message_that_is_claimed_keeps_its_fate_whoever_prunes(home: Home, tmp_path: Path) -> None:
    name = post(home)
    KeyedInbox(home).claim([name])
    epoch = home.take(home.head(), b"first", LONG)
    KeyedInbox(home).sweep(epoch=epoch, mark="0" * 16)
    assert KeyedInbox(home).withdraw(name) is False
    assert process(home, name)


def test_who_is_asked_to_stop_hears_of_it_and_requests_to_others_are_swept(home: Home, tmp_path: Path) -> None:
    store = KeyedStore(home, "triage", tmp_path / ".agentrun" / "triage", timing=Timing(beats=False))
    lease = store.lock(wait_seconds=0)
    store.load()
    person = KeyedInbox(home)
    person.ask_to_stop("f" * 16)
    for asked in (1, 2, 2):
        person.ask_to_stop(lease.mark)
        assert store.inbox() == []
        assert lease.stops_asked == asked
        store.prune()
    assert home.names() == [f"{INBOX}stop-{lease.mark}", f"{INBOX}stop-{lease.mark}-now"]
    lease.release()
