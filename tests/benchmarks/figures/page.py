"""What a page of items asks of the library, for a job of 100,000 in a folder: each look beside the first listing."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson
from msgspec import Raw

from agentrun.agents.failure import Failure
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import first_checkpoint
from agentrun.items.open import open_source
from agentrun.job.fields import Layer
from agentrun.job.job import Job
from agentrun.store.folder.store import FolderStore
from agentrun.views.details import read_details
from agentrun.views.finding import KnownJob, open_job
from agentrun.views.kept import KeptListings
from benchmarks.arena import Spoiled
from benchmarks.bench import Bench
from benchmarks.table import Row, Spread, as_time, at_most

TEXTS = {"with a rare letter": "Zebra crossing", "of common letters": "An Ardent Reason"}
"""Each is in 100 records, however many there are, and is looked for in lower case: which letters it has decides how."""
FOUND = 100
NEW = 100
LATER = 50 * NEW
"""How many records are left for the extensions."""
BEST_OF = 3
"""Of so many calls the fastest counts: a look takes milliseconds, and something else may run meanwhile."""
PAGE = 100
WORDS = ("refund", "invoice", "customer", "please", "answer", "today", "delivery", "broken", "with", "about", "price")


def page(bench: Bench) -> list[Row]:
    """One after the other in each round, in this process and with a warm cache."""
    rows: list[Row] = []
    for kind in ("jsonl", "files"):
        bench.say(f"{bench.sizes.long:,} items, {kind}")
        place = bench.arena.place()
        try:
            rows += _measure(bench, place, kind)
        finally:
            bench.arena.leave(place)
    return rows


def _measure(bench: Bench, place: Path, kind: str) -> list[Row]:
    total = bench.sizes.long
    made = _Made(place, kind, total)
    taken: dict[str, list[float]] = {}
    for number in range(1, bench.sizes.rounds + 1):
        bench.say(f"round {number} of {bench.sizes.rounds}: {kind}")
        for name, seconds in made.round().items():
            taken.setdefault(name, []).append(seconds)
    spreads = {name: Spread(values, as_time) for name, values in taken.items()}
    first, what = spreads.pop("first listing"), f"{total:,} items ({kind})"
    rows = [Row(f"{what}: first listing and page", first)]
    for name, spread in spreads.items():
        if name.startswith("search"):
            grep = spreads[f"grep {name.rpartition(', ')[2]}"]
            rows.append(at_most(f"{what}: {name}", spread, "`grep -c`", grep, 3, "≤ 3"))
        elif not name.startswith("grep"):
            must = "≤ 1/10" if name == "second page" else ""
            rows.append(at_most(f"{what}: {name}", spread, "the first listing", first, 0.1, must))
    return rows


@dataclass(frozen=True)
class _Look:
    name: str
    take: Callable[[], int]
    expected: int


class _Made:
    """The job, and its records as a run that is nearly done would have left them."""

    def __init__(self, place: Path, kind: str, total: int) -> None:
        self._words = random.Random(17)
        (place / "agent.py").write_text("def agent(item): ...\n")
        keys = _make_items(place, kind, total)
        items = {"files": "items/*/*.txt"} if kind == "files" else {"jsonl": "items.jsonl", "key": "id"}
        flags = Layer("flags", {"name": "page", "agent": "agent.py:agent", "items": items})
        opened = open_job(None, flags=flags, cwd=place, environ={})
        self.total, self.store = total, FolderStore(opened.root / "page")
        self.known = KnownJob("page", self.store, opened.job)
        self._checkpoint = _checkpoint(opened.job, total)
        self._rest = self._records(opened.job, keys)
        self._journal = self.store.folder / "journal-1.jsonl"
        self._commit(self._take(total - LATER))
        if not self._journal.is_file():
            raise Spoiled(f"there is no {self._journal.name}")

    def round(self) -> dict[str, float]:
        """The fastest of some calls of each look, in seconds."""
        kept = KeptListings(time.monotonic)
        firsts, middle = [], self.total // 2
        for _ in range(BEST_OF):
            kept.close()
            firsts.append(_seconds(_Look("first listing", lambda: self._page(kept), PAGE)))
        taken = {"first listing": min(firsts)}
        looks = [
            _Look("second page", lambda: self._page(kept, start=PAGE), PAGE),
            _Look("page 900 of 1,000", lambda: self._page(kept, start=self.total * 9 // 10), PAGE),
            _Look("the failed ones", lambda: self._page(kept, states={"failed"}), PAGE),
            _Look("one item in full", lambda: self._details(kept, middle), 1),
        ]
        for name, text in TEXTS.items():
            looks.append(
                _Look(f"search, a text in 100 records, {name}", partial(self._page, kept, text=text.lower()), FOUND)
            )
            looks.append(_Look(f"grep {name}", partial(_grep, text, self._journal), FOUND))
        for look in looks:
            taken[look.name] = min(_seconds(look) for _ in range(BEST_OF))
        extensions = []
        for _ in range(BEST_OF):
            self._commit(self._take(NEW))
            extensions.append(_seconds(_Look("", lambda: self._page(kept), PAGE)))
        taken[f"{NEW} new records, and a page"] = min(extensions)
        kept.close()
        return taken

    def _page(self, kept: KeptListings, *, states: set[str] | None = None, text: str = "", start: int = 0) -> int:
        with kept.items(self.known) as listing:
            return len(listing.page(states, text, start=start, count=PAGE).items)

    def _details(self, kept: KeptListings, index: int) -> int:
        with kept.items(self.known) as listing:
            view = listing.find(index=index)
            assert view is not None
            return int(read_details(self.known, listing, view).given is not None)

    def _records(self, job: Job, keys: Sequence[str]) -> list[Record]:
        source = open_source(job.items, job.base)
        every, records = (len(keys) - LATER) // FOUND, []
        for index, (key, raw) in enumerate(zip(keys, source, strict=True)):
            identity = source.identify(raw)
            assert identity.key == key
            content = identity.content or source.content(raw)
            record = Record(
                kind="done", key=key, gen=0, index=index, hash=content[:8].hex(), stamp=identity.stamp,
                agent="9f3a1c2b4d5e6f70", run=1, launch=1, at=1.7e9 + index, seconds=1.5,
            )  # fmt: skip
            text = " ".join(self._words.choices(WORDS, k=20))
            if index % 50 == 49:
                record.kind, record.error = "failed", Failure("exception", text, types=("builtins.ValueError",))
            else:
                is_rare = index % every == 3 and index < FOUND * every
                text = " ".join([text, *TEXTS.values()]) if is_rare else text
                value = {"category": self._words.choice(WORDS), "summary": text}
                record.output = Raw(orjson.dumps(value))
            records.append(record)
        return records[::-1]

    def _take(self, count: int) -> list[Record]:
        return [self._rest.pop() for _ in range(min(count, len(self._rest)))]

    def _commit(self, records: list[Record]) -> None:
        lease = self.store.lock()
        try:
            self.store.load()
            for at in range(0, len(records), 1000):
                self._checkpoint.seq += 1
                self.store.commit(self._checkpoint, records[at : at + 1000])
        finally:
            lease.release()


def _make_items(place: Path, kind: str, total: int) -> list[str]:
    if kind == "jsonl":
        keys = [f"ticket-{n:06}" for n in range(total)]
        lines = (orjson.dumps({"id": key, "text": f"What about order {key}?"}) for key in keys)
        (place / "items.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        return keys
    keys = [f"items/{n // 1000:04}/{n:06}.txt" for n in range(total)]
    for n, key in enumerate(keys):
        if not n % 1000:
            (place / key).parent.mkdir(parents=True)
        (place / key).write_text(f"What about order {n}?")
    return keys


def _checkpoint(job: Job, total: int) -> Checkpoint:
    checkpoint = first_checkpoint(job, number=1)
    checkpoint.total = total
    checkpoint.context.identity, checkpoint.context.launches = job.identity(), 1
    return checkpoint


def _grep(text: str, path: Path) -> int:
    grep = shutil.which("grep")
    if grep is None:
        raise Spoiled("there is no grep here")
    return int(subprocess.run([grep, "-c", text, str(path)], capture_output=True, check=True).stdout)


def _seconds(look: _Look) -> float:
    began = time.perf_counter()
    found = look.take()
    took = time.perf_counter() - began
    if found != look.expected:
        raise Spoiled(f"{look.name}: {found} found, and not {look.expected}")
    return took
