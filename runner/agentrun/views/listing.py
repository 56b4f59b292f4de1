"""The items of a run, read without its lock and while a runner may be at work."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.ledger import NO_REF, PENDING, STATE_NAMES, WAITING, Ledger
from agentrun.checkpoint.record import decode_head, decode_record
from agentrun.checkpoint.summary import new_checkpoint
from agentrun.errors import AgentrunError, CheckpointError, ItemsError
from agentrun.item import key_digest
from agentrun.items.open import open_source
from agentrun.runs.carry import CarryChain
from agentrun.runs.plan import identify_items
from agentrun.runs.recovery import open_items
from agentrun.store.folder.journal import JournalLines
from agentrun.views.item import ItemView
from agentrun.views.jobs import live_holder, read_checkpoint, read_summaries

if TYPE_CHECKING:
    from agentrun.item import Item
    from agentrun.items.port import Source
    from agentrun.job.job import Job


READ_AGAIN = 20


def read_items(folder: Path, job: Job | None = None, *, states: Collection[str] | None = None) -> Iterator[ItemView]:
    """The items of the current run, or of the last one that ended, in item order; see `open_listing`."""
    with open_listing(folder, job) as listing:
        yield from listing.items(states)


def open_listing(folder: Path, job: Job | None = None) -> Listing:
    """The items of the current run, or of the last one that ended, as they are at this moment.

    With the job they are those of its source now, in its order, also those without a record; a record whose item has
    changed since does not count. Without it they are those on record. A source that cannot be read raises here.
    """
    for _ in range(READ_AGAIN):
        checkpoint, ended = read_checkpoint(folder), read_summaries(folder)
        if checkpoint is None and not ended:
            listing = Listing(_Records())
            if job is not None:
                listing.follow(_source(folder, job, None, ended))
            return listing
        if checkpoint is not None and not (ended and ended[0].get("run_id") == checkpoint.run_id):
            lines = _open_journal(folder / checkpoint.journal_name)
            if lines is None and checkpoint.journal_length:
                # A runner compacted the journal, or finished the run, between the two reads.
                continue
            records = _Records(lines, checkpoint.journal_length, checkpoint.outputs)
            return _unfinished(Listing(records, checkpoint=checkpoint), folder, job, ended)
        lines = _open_journal(folder / "runs" / f"{ended[0].get('run_id')}.jsonl")
        if lines is None and checkpoint is not None:
            # It is filed, and its journal about to be.
            lines = _open_journal(folder / checkpoint.journal_name)
            if lines is None and checkpoint.journal_length:
                continue
        records = _Records(lines, ended[0].get("journal_length", 0) if lines else 0)
        return _ended(Listing(records, summary=ended[0]), folder, job, ended)
    raise CheckpointError(f"{folder}: the journal that state.json names is missing; restore it, or begin with --fresh")


def _unfinished(listing: Listing, folder: Path, job: Job | None, ended: list[dict[str, Any]]) -> Listing:
    checkpoint = listing.checkpoint
    assert checkpoint is not None
    if job is not None and checkpoint.context.get("identity", job.identity()) != job.identity():
        listing.note = "the job has other items, another agent or other params by now; these are this run's records"
        job = None
    chain = CarryChain() if job is not None and job.carry else None
    running = {one["key"]: one for one in checkpoint.running} if live_holder(folder) else {}
    try:
        listing.scan(chain)
        if job is None:
            listing.follow_records(running)
        else:
            listing.follow(_source(folder, job, checkpoint, ended), chain=chain, keep_changed=job.keep_changed)
        listing.mark_running(running)
    except BaseException:
        listing.close()
        raise
    return listing


def _ended(listing: Listing, folder: Path, job: Job | None, ended: list[dict[str, Any]]) -> Listing:
    """A run that has ended has its own order. The source, which may be another by now, is asked only about moves."""
    assert listing.summary is not None
    total = listing.summary.get("total", 0)
    try:
        listing.scan()
        listing.follow_records({})
        if job is not None and len(listing) and not listing.is_whole(total):
            _try_source(listing, folder, job, ended, total)
    except BaseException:
        listing.close()
        raise
    return listing


def _try_source(listing: Listing, folder: Path, job: Job, ended: list[dict[str, Any]], total: int) -> None:
    try:
        listing.follow(_source(folder, job, None, ended), only_recorded=True, keep_changed=True)
    except AgentrunError:
        listing.follow_records({})
    if len(listing) != total:
        listing.follow_records({})
        listing.note = "items moved or went while that run was under way; each is shown where it was when it ended"


def read_source(folder: Path, job: Job, *, spool: Path | None = None) -> Iterator[tuple[int, str, Callable[[], Item]]]:
    """The items of the job's source now: index, key, and a way to the item itself.

    `spool` holds standard input, where it was read for this; otherwise it is what the run has kept.
    """
    if spool is not None:
        source = open_source(job.items, job.base, spool=spool)
    else:
        source = _source(folder, job, read_checkpoint(folder), read_summaries(folder))
    for index, (_, key, raw, _) in enumerate(identify_items(source, Ledger())):
        yield index, key, partial(source.item, raw, index, key)


def _source(folder: Path, job: Job, checkpoint: Checkpoint | None, ended: list[dict[str, Any]]) -> Source:
    spool = checkpoint.context.get("spool") if checkpoint else None
    source = open_items(job, folder, checkpoint or new_checkpoint(job), ended=ended, spool=spool)
    if source is None:
        raise ItemsError(f"{job.name}: its items come from outside, and are not kept; give them with --items")
    return source


class Listing:
    """The items of one run at one moment, in some 60 bytes each; records are read as they are asked for.

    It holds the journal open, so that what a runner does meanwhile changes nothing. Close it, or use `with`.
    """

    def __init__(
        self, records: _Records, *, checkpoint: Checkpoint | None = None, summary: dict[str, Any] | None = None
    ) -> None:
        self.checkpoint = checkpoint
        """Of a run that has not ended."""
        self.summary = summary
        """Of a run that has ended."""
        self.note = ""
        """Why the items may be other than those of the source, where that is so."""
        self._records = records
        self._ledger = Ledger()
        self._recorded_at = array("I")
        """By row: the index that the newest record names."""
        self._indexes: array[int] | None = None
        """By position in the order; None where they are the positions themselves."""
        self._keys = bytearray()
        """Keys of those without a record that counts (with a carry: of all), in their order, a NUL behind each."""
        self._has_all_keys = False
        self._changed: set[int] = set()
        self._running: dict[int, int | None] = {}

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._records.close()

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def versions(self) -> dict[str, int]:
        """How many done items are of which version of the agent."""
        return self._ledger.versions

    @property
    def counts(self) -> dict[str, int]:
        """How many items are in which state; those at work count as what they were before."""
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

    def steps(self, view: ItemView) -> list[dict[str, Any]]:
        """The records of the steps and answers so far, oldest first, of an item that is not settled."""
        row = self._ledger.find(key_digest(view.key))
        return [self._records.at(ref) for ref in self._ledger.steps.get(row, ())]

    def step_names(self, views: Iterable[ItemView]) -> dict[str, list[str]]:
        """By key: the names of the steps on record of these items, also where they are settled. Reads everything."""
        wanted = {view.key: view.gen for view in views}
        found: dict[str, dict[str, None]] = {key: {} for key in wanted}
        for _, record in self._records.scan():
            if record["kind"] == "step" and wanted.get(record["key"]) == record["gen"]:
                found[record["key"]][record["name"]] = None
        return {key: list(names) for key, names in found.items()}

    def has_steps(self, view: ItemView) -> bool:
        """Is it unfinished, and has steps or answers that are remembered?"""
        return self._ledger.find(key_digest(view.key)) in self._ledger.steps

    def _views(self, is_wanted: Callable[[int, int], bool]) -> Iterator[ItemView]:
        ledger, at = self._ledger, 0
        for position, row in enumerate(ledger.order):
            counts = ledger.states[row] != PENDING
            key = ""
            if self._has_all_keys or not counts:
                end = self._keys.index(0, at)
                span, at = (at, end), end + 1
            if not is_wanted(position, row):
                continue
            record = self._records.at(ledger.refs[row]) if counts else None
            key = record["key"] if record else self._keys[slice(*span)].decode("utf-8", "surrogatepass")
            state = "running" if row in self._running else STATE_NAMES[ledger.states[row]]
            changed, slot = row in self._changed, self._running.get(row)
            yield ItemView(self._index(position), key, state, record, changed, slot, ledger.generation(row))

    def _index(self, position: int) -> int:
        return position if self._indexes is None else self._indexes[position]

    def is_whole(self, total: int) -> bool:
        """Whether the records alone say where each of `total` items is."""
        assert self._indexes is not None
        return len(self._indexes) == total and all(n == index for n, index in enumerate(self._indexes))

    # ---- making one

    def scan(self, chain: CarryChain | None = None) -> None:
        """Take in the records."""
        for ref, record in self._records.scan():
            row = self._ledger.apply(ref, record)
            if chain is not None:
                chain.note(row, record)
        self._recorded_at = self._ledger.positions[: self._ledger.rows]

    def follow_records(self, running: dict[str, dict[str, Any]]) -> None:
        """The items are those on record, and those at work; in the order in which their records put them."""
        ledger, unrecorded = self._ledger, {}
        self._keys.clear()
        for key, one in running.items():
            if ledger.find(digest := key_digest(key)) < 0:
                unrecorded[ledger.row_of(digest)] = key
                self._recorded_at.append(one["index"])
        at, refs = self._recorded_at, ledger.refs
        order = array("I", sorted(range(len(at)), key=lambda row: (at[row], refs[row])))
        self._indexes = array("I", (at[row] for row in order))
        for row in order:
            if row in unrecorded:
                self._keep_key(unrecorded[row])
            elif ledger.states[row] == PENDING:
                # Answered, or begun anew, or under way with a few steps done: what it has does not settle it.
                ref = refs[row] if refs[row] != NO_REF else ledger.steps[row][0]
                self._keep_key(self._records.at(ref)["key"])
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
                at += 1  # it goes on waiting
            for row in order[at:]:
                ledger.states[row] = PENDING
            ledger.set_order(order)

    def mark_running(self, running: dict[str, dict[str, Any]]) -> None:
        for key, one in running.items():
            if (row := self._ledger.find(key_digest(key))) >= 0:
                self._running[row] = one.get("slot")

    def _keep_key(self, key: str) -> None:
        self._keys += key.encode("utf-8", "surrogatepass") + b"\0"


class _Records:
    """The records of a run, by where they stand: in the journal up to its length, then in `outputs`."""

    def __init__(self, lines: JournalLines | None = None, length: int = 0, outputs: Sequence[bytes] = ()) -> None:
        self._lines = lines
        self._length = length
        self._outputs: dict[int, bytes] = {}
        ref = length
        for line in outputs:
            self._outputs[ref] = line
            ref += len(line) + 1

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()

    def scan(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """All of them with their refs, oldest first, and without their outputs."""
        for ref, line in self._lines.until(self._length) if self._lines else ():
            yield ref, _decode(ref, line, decode_head)
        for ref, line in self._outputs.items():
            yield ref, _decode(ref, line, decode_head)

    def at(self, ref: int) -> dict[str, Any]:
        line = self._outputs.get(ref)
        if line is None:
            assert self._lines is not None
            line = self._lines.at(ref)
        return _decode(ref, line)


def _decode(ref: int, line: bytes, decode: Callable[[bytes], dict[str, Any]] = decode_record) -> dict[str, Any]:
    try:
        return decode(line)
    except ValueError as error:
        raise CheckpointError(f"the record at byte {ref} of the journal is damaged ({error})") from None


def _open_journal(path: Path) -> JournalLines | None:
    lines = JournalLines(path)
    return lines if lines.open() else None
