"""The items of a run, read without its lock and while a runner may be at work."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.checkpoint.checkpoint import Checkpoint, Running
from agentrun.checkpoint.ledger import DONE, NO_REF, PENDING, SKIPPED, STATE_NAMES, WAITING, Ledger
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary, checkpoint_after, first_checkpoint, last_finished
from agentrun.errors import AgentrunError, ItemsError
from agentrun.item import key_digest
from agentrun.items.open import Source, open_source
from agentrun.money.usage import Usage
from agentrun.outputs.workspace import Workspace
from agentrun.runs.carry import CarryChain
from agentrun.runs.plan import identify_items
from agentrun.runs.recovery import open_items
from agentrun.store.port import Reader, Store
from agentrun.views.item import ItemView, State, StepView

if TYPE_CHECKING:
    from agentrun.item import Item
    from agentrun.job.job import Job

Note = Callable[[int, Record], None]


def read_items(store: Store, job: Job | None = None, *, states: Collection[str] | None = None) -> Iterator[ItemView]:
    """The items of the current run, or of the last one that ended, in item order; see `open_listing`."""
    with open_listing(store, job) as listing:
        yield from listing.items(states)


def open_run_listing(store: Store, run_id: str, *, note: Note | None = None) -> Listing:
    """The items of a run that ended, as its records have them. CheckpointError if those are not kept."""
    reader = store.reader(run_id=run_id)
    try:
        listing = Listing(reader, note)
        assert reader.summary is not None
        _show_ended(listing, store, None, reader.summary)
        return listing
    except BaseException:
        reader.close()
        raise


def open_listing(store: Store, job: Job | None = None, *, note: Note | None = None) -> Listing:
    """The items of the current run, or of the last one that ended, as they are at this moment.

    With the job they are those of its source now, in its order, also those without a record; a record whose item has
    changed since does not count. Without it they are those on record. A source that cannot be read raises here.

    `note` is given every record with its row, in the one pass over them, also those that no longer count.
    """
    reader = store.reader()
    try:
        listing = Listing(reader, note)
        if reader.checkpoint is not None:
            _show_unfinished(listing, store, job, reader.checkpoint)
        elif reader.summary is not None:
            _show_ended(listing, store, job, reader.summary)
        elif job is not None:
            listing.follow(_source(store, job, reader))
        return listing
    except BaseException:
        reader.close()
        raise


def _show_unfinished(listing: Listing, store: Store, job: Job | None, checkpoint: Checkpoint) -> None:
    if job is not None and (checkpoint.context.identity or job.identity()) != job.identity():
        listing.note = "the job has other items, another agent or other params by now; these are this run's records"
        job = None
    chain = CarryChain() if job is not None and job.carry else None
    running = {one.key: one for one in checkpoint.running} if listing.reader.holder() else {}
    listing.scan(chain)
    if job is None:
        listing.follow_records(running)
    else:
        listing.follow(_source(store, job, listing.reader), chain=chain, keep_changed=job.keep_changed)
    listing.mark_running(running)


def _show_ended(listing: Listing, store: Store, job: Job | None, summary: Summary) -> None:
    """A run that ended has its own order. The source, which may differ by now, is asked only about moves."""
    listing.scan()
    listing.follow_records({})
    if job is None or not len(listing) or listing.is_whole(summary.total):
        return
    try:
        listing.follow(_source(store, job, listing.reader), only_recorded=True, keep_changed=True)
    except AgentrunError:
        listing.follow_records({})
    if len(listing) != summary.total:
        listing.follow_records({})
        listing.note = "items moved or went while that run was in progress; each is shown where it was when it ended"


def read_source(store: Store, job: Job, *, spool: Path | None = None) -> Iterator[tuple[int, str, Callable[[], Item]]]:
    """The items of the job's source now: index, key, and a way to the item itself.

    `spool` holds standard input, if it was read for this; otherwise it is what the run has kept.
    """
    if spool is not None:
        source = open_source(job.items, job.base, spool=spool)
    else:
        with store.reader() as reader:
            source = _source(store, job, reader)
    for index, (_, key, raw, _) in enumerate(identify_items(source, Ledger())):
        yield index, key, partial(source.item, raw, index, key)


def _source(store: Store, job: Job, reader: Reader) -> Source:
    finished = last_finished(reader.summaries)
    new = checkpoint_after(finished, number=0) if finished is not None else first_checkpoint(job, number=0)
    checkpoint = reader.checkpoint or new
    spool = Workspace(store).spool(checkpoint.context.spool) if checkpoint.context.spool else None
    source = open_items(job, checkpoint, ended=reader.summaries, folder=store.folder, spool=spool)
    if source is None:
        raise ItemsError(f"{job.name}: its items come from outside, and are not kept; give them with --items")
    return source


class Listing:
    """The items of one run at one moment, in some 60 bytes each; records are read as they are asked for.

    Close it, or use `with`.
    """

    def __init__(self, reader: Reader, note: Note | None = None) -> None:
        self.reader = reader
        self._told = note
        self.note = ""
        """Why the items may differ from those of the source, if they do."""
        self._ledger = Ledger()
        self._recorded_at = array("I")
        """By row: the index that the newest record names."""
        self._indexes: array[int] | None = None
        """By position in the order; None if they are the positions themselves."""
        self._keys = bytearray()
        """Keys of items without a record that counts (with a carry: of all), in their order, a NUL behind each."""
        self._has_all_keys = False
        self._changed: set[int] = set()
        self._running: dict[int, int | None] = {}

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.reader.close()

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def is_unfinished(self) -> bool:
        """Whether the run that is shown can be resumed."""
        return self.reader.checkpoint is not None

    @property
    def usage(self) -> Usage:
        """What the run has used."""
        shown = self.reader.checkpoint or self.reader.summary
        return shown.usage if shown is not None else Usage()

    @property
    def agent(self) -> str:
        """The fingerprint of the run's agent in its last launch."""
        if self.reader.checkpoint is not None:
            return self.reader.checkpoint.context.agent
        return (self.reader.summary.agent or "") if self.reader.summary is not None else ""

    @property
    def versions(self) -> dict[str, int]:
        """How many done items each version of the agent made."""
        return self._ledger.versions

    @property
    def counts(self) -> dict[str, int]:
        """How many items are in which state; those that are running count as what they were before."""
        return self._ledger.counts

    def items(self, states: Collection[str] | None = None) -> Iterator[ItemView]:
        """In item order; with `states`, only those in one of them. The records of the others are not read."""
        ledger, running = self._ledger, self._running

        def is_wanted(position: int, row: int) -> bool:
            return states is None or ("running" if row in running else STATE_NAMES[ledger.states[row]]) in states

        return self._views(is_wanted)

    def find(self, *, key: str | None = None, index: int | None = None) -> ItemView | None:
        """The item with this key, or at this index."""
        if key is not None:
            wanted = self._ledger.find(key_digest(key))
            return next(self._views(lambda position, row: row == wanted), None)
        return next(self._views(lambda position, row: self._index(position) == index), None)

    def settled(self, key: str) -> Record | None:
        """The record of the item with this key, found without a search; None unless it is settled."""
        row = self._ledger.find(key_digest(key))
        is_settled = row >= 0 and self._ledger.is_listed(row) and self._ledger.is_settled(row)
        return self._record(self._ledger.refs[row]) if is_settled else None

    def steps(self, view: ItemView) -> list[StepView]:
        """The finished steps and the answers of an item, oldest first.

        Those of a settled item are there until the journal is compacted or another run is opened.
        """
        row = self._ledger.find(key_digest(view.key))
        if row >= 0 and self._ledger.states[row] in (DONE, SKIPPED):
            # Nobody points to them any more.
            found = (record for _, record in self.reader.search(view.key) if record.key == view.key)
            return [StepView.of(one) for one in found if one.kind in ("step", "answer") and one.gen == view.gen]
        return [StepView.of(record) for record in self.reader.read(self._ledger.steps.get(row, ()))]

    def step_names(self, views: Iterable[ItemView]) -> dict[str, list[str]]:
        """By key: the names of the steps on record of these items, also of settled ones. Reads everything."""
        wanted = {view.key: view.gen for view in views}
        found: dict[str, dict[str, None]] = {key: {} for key in wanted}
        for _, record in self.reader.records():
            if record.kind == "step" and wanted.get(record.key) == record.gen:
                found[record.key][record.name] = None
        return {key: list(names) for key, names in found.items()}

    def is_listed(self, row: int) -> bool:
        """Whether the row that `note` was given is one of the items."""
        return self._ledger.is_listed(row)

    def has_steps(self, view: ItemView) -> bool:
        """Whether it is unfinished and remembers steps or answers."""
        return self._ledger.find(key_digest(view.key)) in self._ledger.steps

    def _views(self, is_wanted: Callable[[int, int], bool]) -> Iterator[ItemView]:
        ledger, at = self._ledger, 0
        for position, row in enumerate(ledger.order):
            counts = ledger.states[row] != PENDING
            if self._has_all_keys or not counts:
                end = self._keys.index(0, at)
                span, at = (at, end), end + 1
            if not is_wanted(position, row):
                continue
            record = self._record(ledger.refs[row]) if counts else None
            key = record.key if record else self._keys[slice(*span)].decode("utf-8", "surrogatepass")
            state: State = "running" if row in self._running else STATE_NAMES[ledger.states[row]]
            changed, slot = row in self._changed, self._running.get(row)
            yield ItemView(self._index(position), key, state, record, changed, slot, ledger.generation(row))

    def _record(self, ref: int) -> Record:
        return next(self.reader.read([ref]))

    def _index(self, position: int) -> int:
        return position if self._indexes is None else self._indexes[position]

    def is_whole(self, total: int) -> bool:
        """Whether the records alone say where each of `total` items is."""
        assert self._indexes is not None
        return len(self._indexes) == total and all(n == index for n, index in enumerate(self._indexes))

    # ---- making one

    def scan(self, chain: CarryChain | None = None) -> None:
        """Work through the records."""
        for ref, record in self.reader.records():
            row = self._ledger.apply(ref, record)
            if chain is not None:
                chain.note(row, record)
            if self._told is not None:
                self._told(row, record)
        self._recorded_at = self._ledger.positions[: self._ledger.rows]

    def follow_records(self, running: Mapping[str, Running]) -> None:
        """The items are those on record, and those that are running; in the order of their records."""
        ledger, unrecorded = self._ledger, {}
        self._keys.clear()
        for key, one in running.items():
            if ledger.find(digest := key_digest(key)) < 0:
                unrecorded[ledger.row_of(digest)] = key
                self._recorded_at.append(one.index)
        at, refs = self._recorded_at, ledger.refs
        order = array("I", sorted(range(len(at)), key=lambda row: (at[row], refs[row])))
        self._indexes = array("I", (at[row] for row in order))
        for row in order:
            if row in unrecorded:
                self._keep_key(unrecorded[row])
            elif ledger.states[row] == PENDING:
                # Answered, or started over, or in progress with a few steps done: what it has does not settle it.
                ref = refs[row] if refs[row] != NO_REF else ledger.steps[row][0]
                self._keep_key(self._record(ref).key)
        ledger.set_order(order)

    def follow(
        self,
        source: Source,
        *,
        chain: CarryChain | None = None,
        keep_changed: bool = False,
        only_recorded: bool = False,
    ) -> None:
        """The items are those of the source, in its order; as a launch would see them."""
        ledger, order = self._ledger, array("I")
        self._has_all_keys = chain is not None
        for row, key, raw, (_, content, stamp) in identify_items(source, ledger):
            if only_recorded and ledger.refs[row] == NO_REF:
                continue
            # What a person has corrected is never run over.
            counts = ledger.states[row] != PENDING and not keep_changed and row not in ledger.edited
            if (counts or row in ledger.steps) and (content or stamp != ledger.stamps[row]):
                content = content or source.content(raw)
                if int.from_bytes(content[:8], "big") != ledger.contents[row]:
                    ledger.steps.pop(row, None)
                    if counts:
                        ledger.states[row] = PENDING
                        self._changed.add(row)
            if self._has_all_keys or ledger.states[row] == PENDING:
                self._keep_key(key)
            order.append(row)
        self._indexes = None
        ledger.set_order(order)
        if chain is not None:
            at = chain.first_break(ledger, retry_failed=False)
            if at < len(order) and ledger.states[order[at]] == WAITING:
                at += 1  # it keeps waiting
            for row in order[at:]:
                ledger.states[row] = PENDING
            ledger.set_order(order)

    def mark_running(self, running: Mapping[str, Running]) -> None:
        for key, one in running.items():
            if (row := self._ledger.find(key_digest(key))) >= 0:
                self._running[row] = one.slot

    def _keep_key(self, key: str) -> None:
        self._keys += key.encode("utf-8", "surrogatepass") + b"\0"
