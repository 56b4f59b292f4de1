"""A whole job from each kind of store to each other, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentrun.store.folder.store import FolderStore
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Store
from agentrun.testing.examples import LATER_RUN, checkpoint, keys, record
from agentrun.testing.launches import Launches
from agentrun.testing.moves import Moved, fill


def folder(base: Path) -> Store:
    return FolderStore(base / ".agentrun" / "triage", redo_limit_bytes=4000)


def sqlite(base: Path) -> Store:
    place = _PLACES.setdefault(base, SqlitePlace(base / "jobs.db"))
    return KeyedStore(place.home("triage"), "triage", base / ".agentrun" / "triage", timing=Timing(beats=False))


def memory(base: Path) -> Store:
    return _IN_MEMORY.setdefault(base, MemoryStore())


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while _PLACES:
        _PLACES.popitem()[1].close()


_PLACES: dict[Path, SqlitePlace] = {}
_IN_MEMORY: dict[Path, MemoryStore] = {}
KINDS = [folder, sqlite, memory]


@pytest.mark.parametrize("there", KINDS)
@pytest.mark.parametrize("here", KINDS)
def test_a_job_goes_there_continues_and_comes_back(
    tmp_path: Path, here: Callable[[Path], Store], there: Callable[[Path], Store]
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    origin = Launches(lambda: here(tmp_path / "here"))
    target = Launches(lambda: there(tmp_path / "there"))
    fill(origin.next())
    expected = Moved(origin.next())
    target.next().adopt(origin.next().contents())
    store = target.next()
    assert Moved(store) == expected
    store.commit(checkpoint(41, run_id=LATER_RUN), [record("there")])
    store.drop(one.name for one in store.inbox())
    origin.next().adopt(target.next().contents(), replace=True)
    store = origin.next()
    assert keys(store)[-1] == "there"
    # What was posted is there as it was before: what was processed meanwhile no longer applies, and is dropped.
    assert Moved(store).messages == expected.messages
    store.commit(checkpoint(42, run_id=LATER_RUN))
    origin.end()
    target.end()
