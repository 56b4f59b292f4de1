"""Items that are begun anew, by a launch that is killed and by one that is killed when it has compacted the journal."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

from agentrun.people.messages import redo_message
from agentrun.store.folder.store import FolderStore
from agentrun.views.listing import open_listing
from crash.forked import NOTE, Place
from crash.harness import Fault, Launched, Scenario
from crash.workload import scratch

AGENT = f"""{NOTE}
async def agent(item, ctx):
    if item.key == "waits":
        return (await ctx.ask("Go on?")).text
    note(item.key)
    while (Path(__file__).parent / "hold").exists():
        await asyncio.sleep(0.005)
    times = (Path(__file__).parent / "notes.log").read_text().split().count(item.key)
    await ctx.step("large", lambda: "x" * 5000)
    return times
"""


class Anew(Scenario):
    exits = ()
    # One item waits for ever.
    ends = (3,)

    def __init__(self) -> None:
        self._closing = ExitStack()
        self._base = self._closing.enter_context(scratch())
        self._keys = [f"item-{n}" for n in range(4)]
        self._sizes: list[int] = []
        """Of the journal, when each launch was killed."""
        self._outputs: list[Any] = []
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def close(self) -> None:
        self._closing.close()

    def begin(self, chance: random.Random) -> None:
        self._place = place = Place(self._base / "run", ["waits", *self._keys], AGENT, concurrency=len(self._keys))
        if place.launch().exit_code != 3:
            raise Fault("nothing waits")
        store = FolderStore(place.folder)
        with open_listing(store) as listing:
            views = list(listing.items({"done"}))
            store.post([redo_message(view, listing.reader.run_id, by="person") for view in views])
        (place.base / "hold").touch()

    def between(self, chance: random.Random) -> None:
        self._noted = len(self._place.notes())

    def start(self, chance: random.Random) -> Launched:
        return self._place.start(compacts=len(self._sizes) == 1)

    def wait_for_a_moment(self, launched: Launched, chance: random.Random) -> None:
        wanted = self._noted + len(self._keys)
        if not launched.reaches(lambda: len(self._place.notes()) >= wanted, "work"):
            # With nothing to do it ends by itself.
            raise Fault(f"nothing was begun anew: {launched.wait()}")

    def let_end(self) -> None:
        (self._place.base / "hold").unlink(missing_ok=True)

    def check(self, ended: int) -> None:
        if ended < 0:
            self._sizes.append(sum(file.stat().st_size for file in self._place.folder.glob("journal-*.jsonl")))
        else:
            self._is_complete = True

    def check_complete(self) -> None:
        outputs = {record.key: record.value for record in self._place.records() if record.kind == "done"}
        self._outputs = [outputs[key] for key in self._keys]

    def report(self) -> dict[str, Any]:
        return {"sizes": self._sizes, "outputs": self._outputs}


def make() -> Anew:
    return Anew()
