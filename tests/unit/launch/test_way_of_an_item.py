"""An item's way through the code, from slot to checkpoint: short, and as runner/DESIGN.md shows it."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import agentrun
from agentrun.agents.agent import load_agent
from agentrun.job.fields import Layer
from agentrun.launch.execute import execute
from agentrun.store.folder.store import FolderStore
from agentrun.views.finding import open_job

LIBRARY = Path(agentrun.__file__).parent
DESIGN = LIBRARY.parent / "DESIGN.md"
MOST_CALLS, MOST_CHANGES = 70, 40

Call = tuple[str, str]
"""A file of the library, and a function in it."""


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """The calls for item 2 of 3 of an async agent, one at a time, from its slot until its checkpoint is on disk."""
    return list(_second(_calls(tmp_path_factory.mktemp("way"))))


def _calls(base: Path, **run: Any) -> list[Call]:
    """All calls of a launch over three items."""
    (base / "agent.py").write_text("async def number(item):\n    return item.index\n")
    (base / "items.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n{"id": "c"}\n')
    items = {"jsonl": "items.jsonl", "key": "id"}
    flags = Layer("flags", {"name": "way", "agent": "agent.py:number", "items": items, "run": run})
    opened = open_job(None, flags=flags, cwd=base, environ={})
    agent = load_agent(opened.job)
    calls: list[Call] = []

    def trace(frame: FrameType, event: str, _: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(LIBRARY):
            calls.append((str(file.relative_to(LIBRARY)), frame.f_code.co_qualname))

    async def main() -> None:
        sys.setprofile(trace)
        try:
            await execute(opened.job, agent, FolderStore(base / ".agentrun" / "way"))
        finally:
            sys.setprofile(None)

    asyncio.run(main())
    return calls


def _second(calls: list[Call]) -> Iterator[Call]:
    """From when the slot has its second item attempted to when what follows it may start."""
    is_second = False
    for before, call in pairwise(calls):
        # The first attempt begins with the slot itself; and a coroutine that is resumed is called again.
        is_second = is_second or (call[1] == "Attempts.settle" and before[1] != "Slots._work")
        if is_second:
            yield call
            if call[1] == "Slots.start":
                return


def test_the_way_of_an_item_is_short(way: list[Call]) -> None:
    changes = sum(one[0] != other[0] for one, other in pairwise(way))
    assert way[0][1] == "Attempts.settle" and way[-1][1] == "Slots.start"
    assert len(way) <= MOST_CALLS and changes <= MOST_CHANGES, (len(way), changes)


def test_a_run_that_is_never_refused_makes_no_call_more_for_its_speed(way: list[Call], tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("on", "off")]
    for folder in folders:
        folder.mkdir()
    on, off = (_calls(folder, adapt=adapt) for folder, adapt in zip(folders, (True, False), strict=True))
    assert list(_second(on)) == list(_second(off)) == way
    assert not {file for file, name in on if name != "<module>"} & {"launch/throttle.py", "launch/meters.py"}
    # The test sees such calls where there are any.
    (limited := tmp_path / "limited").mkdir()
    assert ("launch/meters.py", "Meters.enter") in _second(_calls(limited, rate="1000/s"))


def test_the_notes_show_the_way_as_it_is(way: list[Call]) -> None:
    shown = re.search(r"```walk\n(.*?)```", DESIGN.read_text(), re.DOTALL)
    assert shown is not None, "runner/DESIGN.md shows no walk"
    walked: list[Call] = []
    file = ""
    for line in shown[1].splitlines():
        place, _, names = line.partition("  ")
        file = place or file
        walked += [(file, name) for name in names.split()]
    assert walked == way
