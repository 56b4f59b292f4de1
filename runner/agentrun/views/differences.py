"""What differs between the results of two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from agentrun.checkpoint.ledger import DONE, Ledger
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary, last_finished
from agentrun.errors import CheckpointError, UsageError
from agentrun.item import key_digest
from agentrun.store.port import Reader, Store
from agentrun.values.json import decode
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing
from agentrun.views.runs import RunView, check_records, find_run, job_alone

Change = Literal["added", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One item whose result differs."""

    change: Change
    key: str
    index: int
    """In the newer run; of a result that is gone, in the older one."""
    before: Record | None = None
    after: Record | None = None
    state: str = ""
    """Of a result that is gone: what the item is in the newer run, such as failed; empty if it is no item there."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the output before and after."""
        return _size(self.before), _size(self.after)

    @property
    def lines(self) -> tuple[list[str], list[str]]:
        """The result before and after, as lines to compare."""
        return _lines(self.before), _lines(self.after)

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"change": self.change, "index": self.index, "key": self.key}
        for name, record in (("before", self.before), ("after", self.after)):
            if record is not None:
                found[name] = decode(bytes(record.output))
                if record.files:
                    found[f"{name}_files"] = [
                        {"path": one.path, "size": one.size, "sha256": one.sha256} for one in record.files
                    ]
        return {**found, "state": self.state} if self.change == "gone" else found


def _size(record: Record | None) -> int:
    return len(bytes(record.output)) if record is not None else 0


def _lines(record: Record | None) -> list[str]:
    """The output as lines: text as it is, anything else as JSON; then the files that the item left."""
    if record is None:
        return []
    value = record.value
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    files = [f"file {one.path} ({one.size:,} bytes, sha256 {one.sha256[:12]}…)" for one in record.files]
    return [*text.split("\n"), *files]


def choose_runs(runs: Sequence[RunView], ref: str | None, job: str) -> tuple[RunView, RunView]:
    """The runs to compare, older first: the newest finished one, and the one before it or the one that `ref` means.

    `runs` are newest first. UsageError if there are no two, or one has no records any more.
    """
    finished, where = [one for one in runs if one.status == "finished"], job_alone(job)
    if not finished:
        raise UsageError(f"{where}: no run has finished yet, so there is nothing to compare")
    newest = finished[0]
    if ref is not None:
        other = find_run(runs, ref, job)
        if other.run_id == newest.run_id:
            raise UsageError(
                f"{where}: run {other.shown} is the newest finished run; name another one to compare it with"
            )
    elif len(finished) > 1:
        other = finished[1]
    else:
        raise UsageError(f"{where}: only run {newest.shown} has finished, so there is nothing to compare it with")
    return check_records(other, job), check_records(newest, job)


def compare(older: Listing, newer: Listing) -> Iterator[Difference]:
    """The results that were added or changed, in the newer run's order; then those that are gone.

    Two records at a time are in memory, whatever the number of items.
    """
    for item in newer.items({"done"}):
        assert item.record is not None
        before = older.settled(item.key)
        if before is None or before.kind != "done":
            yield Difference("added", item.key, item.index, after=item.record)
        elif not _is_same(before, item.record):
            yield Difference("changed", item.key, item.index, before=before, after=item.record)
    for item in older.items({"done"}):
        after = newer.settled(item.key)
        if after is None or after.kind != "done":
            state = after.kind if after is not None else ""
            yield Difference("gone", item.key, item.index, before=item.record, state=state)


def difference_before(store: Store, listing: Listing, view: ItemView) -> Difference | None:
    """How the result of an item differs from its result in the newest finished run before the one that is shown.

    None without two results to compare, if the records of that run are not kept, and if they are the same.
    """
    if view.state != "done" or view.record is None:
        return None
    before = _result_in(store, _finished_before(listing.reader), view.key)
    if before is None or _is_same(before, view.record):
        return None
    return Difference("changed", view.key, view.index, before=before, after=view.record)


def _finished_before(reader: Reader) -> Summary | None:
    """The newest finished run before the one that the reader shows."""
    shown = reader.summary
    return last_finished(one for one in reader.summaries if shown is None or one.age < shown.age)


def _result_in(store: Store, run: Summary | None, key: str) -> Record | None:
    """The result of one item in a run that ended, found by its key: that run is not listed."""
    if run is None or key_digest(key).hex() in run.gone:
        return None
    try:
        reader = store.reader(run_id=run.run_id)
    except CheckpointError:
        return None
    with reader:
        ledger = Ledger()
        for ref, record in reader.search(key):
            if record.key == key:
                ledger.apply(ref, record)
        return next(reader.read(ledger.refs[:1])) if ledger.rows and ledger.states[0] == DONE else None


def _is_same(one: Record, other: Record) -> bool:
    files = [
        [(file.size, file.sha256, file.path.rpartition("/")[2]) for file in record.files] for record in (one, other)
    ]
    if files[0] != files[1]:
        return False
    return bytes(one.output) == bytes(other.output) or _sorted(one) == _sorted(other)


def _sorted(record: Record) -> bytes:
    """The output with its fields in one order, which is no difference."""
    return orjson.dumps(record.value, option=orjson.OPT_SORT_KEYS)
