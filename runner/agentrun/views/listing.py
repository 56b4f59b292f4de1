"""The items of a run, read without its lock and while a runner may be at work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.checkpoint.checkpoint import Checkpoint, Running
from agentrun.checkpoint.ledger import DONE, NO_REF, NOT_LISTED, PENDING, SKIPPED, Ledger
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
from agentrun.store.emptied import check_not_emptied
from agentrun.store.port import Reader, Store
from agentrun.views.item import ItemView, StepView
from agentrun.views.searching import WantedText
from agentrun.views.standing import Note, Standing

if TYPE_CHECKING:
    from agentrun.item import Item
    from agentrun.job.job import Job


def read_items(store: Store, job: Job | None = None, *, states: Collection[str] | None = None) -> Iterator[ItemView]:
    """The items of the current run, or of the last one that ended, in item order; see `open_listing`."""
    with open_listing(store, job) as listing:
        yield from listing.items(states)


def open_run_listing(store: Store, run_id: str, *, note: Note | None = None) -> Listing:
    """The items of a run that ended, as its records have them. CheckpointError if those are not kept."""
    reader = store.reader(run_id=run_id)
    try:
        listing = Listing(reader)
        assert reader.summary is not None
        _show_ended(listing, store, None, reader.summary, note)
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
        listing = Listing(reader)
        if reader.checkpoint is not None:
            _show_unfinished(listing, store, job, reader.checkpoint, note)
        elif reader.summary is not None:
            _show_ended(listing, store, job, reader.summary, note)
        else:
            check_not_emptied(store)
            if job is not None:
                listing.standing.follow(_source(store, job, reader))
        return listing
    except BaseException:
        reader.close()
        raise


def _show_unfinished(
    listing: Listing, store: Store, job: Job | None, checkpoint: Checkpoint, note: Note | None
) -> None:
    if job is not None and (checkpoint.context.identity or job.identity()) != job.identity():
        listing.note = "the job has other items, another agent or other params by now; these are this run's records"
        job = None
    chain = CarryChain() if job is not None and job.carry else None
    standing, running = listing.standing, _running(listing.reader)
    standing.scan(listing.reader.records(), chain=chain, note=note)
    if job is None:
        standing.follow_records(running, listing.record_at)
    else:
        standing.follow(_source(store, job, listing.reader), chain=chain, keep_changed=job.keep_changed)
    standing.mark_running(running)


def _running(reader: Reader) -> Mapping[str, Running]:
    """The items in flight, by key; none if nobody is at work."""
    running = reader.checkpoint.running if reader.checkpoint is not None else []
    return {one.key: one for one in running} if running and reader.holder() else {}


def _show_ended(listing: Listing, store: Store, job: Job | None, summary: Summary, note: Note | None) -> None:
    """A run that ended has its own order. The source, which may differ by now, is asked only about moves."""
    standing = listing.standing
    standing.scan(listing.reader.records(), note=note)
    standing.follow_records({}, listing.record_at)
    if job is None or not len(listing) or standing.is_whole(summary.total):
        return
    try:
        standing.follow(_source(store, job, listing.reader), only_recorded=True, keep_changed=True)
    except AgentrunError:
        standing.follow_records({}, listing.record_at)
    if len(listing) != summary.total:
        standing.follow_records({}, listing.record_at)
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


def read_item(store: Store, job: Job, view: ItemView) -> Item | None:
    """The item itself, if the source still has it. It is looked for where it was first: that parses one entry."""
    with store.reader() as reader:
        source = _source(store, job, reader)
    base, _, number = view.key.rpartition("~")
    # What looks like a repeat may be one, or an entry whose own key ends so: if in doubt, all have to be counted.
    may_repeat = bool(base) and number.isdecimal() and not source.unique
    for raw in islice(source, view.index, view.index + 1):
        if source.identify(raw, with_content=False).key == (base if may_repeat else view.key):
            return source.item(raw, view.index, view.key)
    found = read_source(store, job)
    return next((make() for _, key, make in found if key == view.key), None)


def _source(store: Store, job: Job, reader: Reader) -> Source:
    finished = last_finished(reader.summaries)
    new = checkpoint_after(finished, number=0) if finished is not None else first_checkpoint(job, number=0)
    checkpoint = reader.checkpoint or new
    spool = Workspace(store).spool(checkpoint.context.spool) if checkpoint.context.spool else None
    source = open_items(job, checkpoint, ended=reader.summaries, folder=store.folder, spool=spool)
    if source is None:
        raise ItemsError(f"{job.name}: its items come from outside, and are not kept; give them with --items")
    return source


@dataclass(frozen=True, slots=True)
class ItemsPage:
    """Some of the items that were asked for, in item order."""

    items: list[ItemView]
    start: int
    """How many come before them."""
    total: int
    """How many there are on all pages."""


class Listing:
    """The items of one run at one moment, in some 60 bytes each; records are read as they are asked for.

    Close it, or use `with`.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.note = ""
        """Why the items may differ from those of the source, if they do."""
        self.standing = Standing()
        self._ledger = self.standing.ledger

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.reader.close()

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def total(self) -> int:
        """How many items the run has. Where the source was not asked, not all of them may be listed."""
        shown = self.reader.checkpoint or self.reader.summary
        return max(len(self), shown.total) if shown is not None and not self.standing.has_asked_source else len(self)

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
        return map(self._view, self.standing.in_states(states, range(len(self))))

    def page(
        self, states: Collection[str] | None = None, text: str = "", *, start: int = 0, count: int = 100
    ) -> ItemsPage:
        """Up to `count` items behind the first `start`; with `states`, of those in one of them. Reads no other records.

        With `text`, of those that show it: in the key, or unless they are pending or running, in the output, the
        cause, the question or the warning. ASCII letters match in either case.
        """
        among: Sequence[int] = sorted(self._showing(WantedText(text))) if text else range(len(self))
        found = among if states is None else list(self.standing.in_states(states, among))
        start = max(start, 0)
        return ItemsPage([self._view(position) for position in found[start : start + count]], start, len(found))

    def find(self, *, key: str | None = None, index: int | None = None) -> ItemView | None:
        """The item with this key, or at this index."""
        position = NOT_LISTED
        if key is not None and (row := self._ledger.find(key_digest(key))) >= 0:
            position = self._ledger.positions[row]
        elif key is None and index is not None:
            position = self.standing.position(index)
        return self._view(position) if position != NOT_LISTED else None

    def settled(self, key: str) -> Record | None:
        """The record of the item with this key, found without a search; None unless it is settled."""
        row = self._ledger.find(key_digest(key))
        is_settled = row >= 0 and self._ledger.is_listed(row) and self._ledger.is_settled(row)
        return self.record_at(self._ledger.refs[row]) if is_settled else None

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

    def _showing(self, text: WantedText) -> set[int]:
        """The positions of the items that show the text."""
        ledger, found = self._ledger, set(self._unrecorded(text))
        for needle in text.needles:
            for ref, record in self.reader.search(needle, any_case=True):
                row = ledger.find(key_digest(record.key))
                if row < 0 or ledger.refs[row] != ref or not ledger.is_listed(row):
                    continue
                counts = ledger.states[row] != PENDING and row not in self.standing.running
                if text.is_shown(record) if counts else text.is_in(record.key):
                    found.add(ledger.positions[row])
        return found

    def _unrecorded(self, text: WantedText) -> Iterator[int]:
        """The positions of the items without a record that have the text in their key."""
        refs, order = self._ledger.refs, self._ledger.order
        return (at for at in self.standing.keys.containing(text.encoded) if refs[order[at]] == NO_REF)

    def _view(self, position: int) -> ItemView:
        ledger, standing = self._ledger, self.standing
        row = ledger.order[position]
        newest = self.record_at(ledger.refs[row]) if ledger.refs[row] != NO_REF else None
        return ItemView(
            index=standing.index(position),
            key=newest.key if newest is not None else standing.keys.at(position),
            state=standing.state(row),
            record=newest if ledger.states[row] != PENDING else None,
            changed=standing.differing.get(row, False),
            slot=standing.running.get(row),
            gen=ledger.generation(row),
        )

    def record_at(self, ref: int) -> Record:
        return next(self.reader.read([ref]))

    def extend(self, reader: Reader) -> bool:
        """Show the items as they are for `reader`, which this listing then owns; the source is not asked again.

        False if that takes a new listing. This one is then of no use any more, and `reader` stays the caller's.
        """
        if not self._is_continued_by(reader):
            return False
        standing, running = self.standing, _running(reader)
        # A run that ended gets no more records, but they may have been removed.
        if standing.can_extend or reader.checkpoint is None:
            if not standing.extend(lambda ref: reader.records(since=ref)):
                return False
        elif reader.checkpoint != self.reader.checkpoint or bool(running) != bool(standing.running):
            return False
        standing.mark_running(running)
        self.reader.close()
        self.reader = reader
        return True

    def _is_continued_by(self, reader: Reader) -> bool:
        """Whether it shows the same run, with this one's records and perhaps more."""
        old, new = self.reader.checkpoint, reader.checkpoint
        if self.reader.run_id != reader.run_id or self.reader.summary != reader.summary:
            return False
        if old is None or new is None:
            return old is new
        is_same_launch = old.context.launches == new.context.launches
        is_newer = old.seq < new.seq or old == new
        return is_same_launch and is_newer and old.journal.name == new.journal.name
