"""What a repair finds out: the run that the whole records describe, and what they no longer say."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint, Range, RunContext, Stopped
from agentrun.checkpoint.ledger import DONE, FAILED, PENDING, STATE_NAMES, WAITING, Ledger
from agentrun.checkpoint.message import is_run_id
from agentrun.checkpoint.record import BESIDE, Record, decode_record
from agentrun.checkpoint.summary import Summary, last_finished
from agentrun.errors import CheckpointError
from agentrun.money.budget import Totals
from agentrun.money.usage import Usage
from agentrun.store.folder.state import NAME as STATE
from agentrun.store.folder.wreckage import Fragments, Placed, fitting, read_lines
from agentrun.store.local.history import last_launch
from agentrun.system.disk import names_in
from agentrun.values.clock import new_run_id, now_seconds, now_text
from agentrun.values.ranges import Ranges

SHOWN = 8
DOUBTFUL = ("identity", "place", "kept", "boot", "overwrite", "completing", "spool", "date")
"""What of the context is not taken from a state.json whose check is wrong: one wrong letter would stop every launch, or
change what one does."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The state that a repair writes: `checkpoint` without its journal, which will hold `records`."""

    checkpoint: Checkpoint
    records: Sequence[Placed]
    lost: Sequence[str]
    unknown: Sequence[str]


def find_out(
    folder: Path,
    files: Sequence[Fragments],
    placed: Sequence[Placed],
    values: dict[str, Any],
    *,
    is_intact: bool,
    ended: Sequence[Summary],
) -> Findings:
    """What `files` say together; `placed` are their records, `values` the fields of state.json if it is one of them.

    `ended` are the runs that ended: this is none of those. `is_intact` is whether the check of state.json is right.
    """
    outdated = _outdated(files, placed)
    records = [one for one, record in _read(placed) if not _is_dropped(record, outdated)]
    known, context = fitting(Checkpoint, values), fitting(RunContext, values.get("context"))
    for name in () if is_intact else DOUBTFUL:
        context.pop(name, None)
    newest = max(one.seq for one in placed)
    # The commit after it may have reached the journal, and never state.json.
    is_current = known.get("seq", -1) + 1 >= newest
    tally = _Tally(context.get("number"), [record for _, record in _read(records)])
    run_id = known.get("run_id") or _run_in_log(folder, tally.launches, {one.run_id for one in ended})
    unknown = list(_unknown(known, context, run_id, is_current=is_current, uses=bool(tally.usage.requests)))
    if values and not is_intact:
        unknown.append(f"whether {STATE} is right besides its records: its check is wrong, so little of it is used")
    checkpoint = Checkpoint(
        job=known.get("job") or folder.name,
        run_id=run_id if is_run_id(run_id) else new_run_id(),
        seq=max(newest, known.get("seq", 0)) + 1,
        running=known.get("running", []) if is_current else [],
        context=_context(folder, context, tally, ended),
        usage=_usage(known.get("usage"), tally.usage, is_current=is_current),
        started_at=known.get("started_at") or tally.first_at.isoformat(),
        stopped=_repaired(),
        updated_at=now_text(),
    )
    tally.count(checkpoint, total=known.get("total", 0))
    has_newest = is_current and ("journal" in values or "outputs" in values)
    ranges = [one for name in ("done", "failed", "waiting") for one in known.get(name, [])]
    lost = [
        *_lost_text(files, values.get("journal"), has_newest=has_newest),
        *_lost_items(tally.ledger, ranges, known.get("counts", {}), outdated, is_current=is_current),
    ]
    return Findings(checkpoint, records, lost, unknown)


def _repaired() -> Stopped:
    return Stopped(at=now_text(), reason="its damaged state was repaired", exit_code=CheckpointError.exit_code)


def _read(placed: Iterable[Placed]) -> Iterator[tuple[Placed, Record]]:
    return ((one, decode_record(line)) for one, line in read_lines(placed))


# ---- what the records say


class _Tally:
    """The records, counted."""

    def __init__(self, number: int | None, records: Sequence[Record]) -> None:
        self.number = number if number is not None else max((one.run for one in records), default=0)
        """The number of the run: the newest of those that the records name."""
        self.ledger = Ledger(run=self.number)
        self.launches = 0
        self.agent = ""
        first, used = now_seconds(), dict[tuple[str, int], Usage]()
        for ref, record in enumerate(records):
            self.ledger.apply(ref, record)
            if record.run == self.number:
                self.launches = max(self.launches, record.launch)
            self.agent = record.agent or self.agent
            first = min(first, record.at) if record.at else first
            if record.usage is not None and record.run == self.number:
                # Of one generation each counts what the ones before it have used, too.
                used[record.key, record.gen] = record.usage
        self.first_at = datetime.fromtimestamp(first).astimezone()
        self.usage = Totals()
        for usage in used.values():
            self.usage.add(usage)
            self.usage.dearest_tokens = max(self.usage.dearest_tokens or 0, usage.tokens)
            if usage.cost is not None:
                self.usage.dearest = max(self.usage.dearest or 0, usage.cost)

    def count(self, checkpoint: Checkpoint, *, total: int) -> None:
        """What `status` shows until the next launch has listed the items."""
        ledger = self.ledger
        states = ledger.states[: ledger.rows]
        counts: dict[str, int] = {name: states.count(state) for state, name in enumerate(STATE_NAMES)}
        checkpoint.total = max(total, ledger.rows)
        checkpoint.counts = {**counts, "pending": counts["pending"] + checkpoint.total - ledger.rows}
        checkpoint.done, checkpoint.failed, checkpoint.waiting = map(self._ranges, (DONE, FAILED, WAITING))
        checkpoint.context.versions = _versions(ledger)

    def _ranges(self, state: int) -> list[list[int]]:
        ranges = Ranges()
        for index in sorted(_positions(self.ledger, [state])):
            ranges.add(index)
        return ranges.listed()


def _positions(ledger: Ledger, states: Iterable[int]) -> set[int]:
    wanted = set(states)
    return {ledger.positions[row] for row in range(ledger.rows) if ledger.states[row] in wanted}


def _versions(ledger: Ledger) -> dict[str, int]:
    counts = array("I", bytes(4 * (len(ledger.agent_names) + 1)))
    for row in range(ledger.rows):
        counts[ledger.agents[row]] += ledger.states[row] == DONE
    return {name: counts[n] for n, name in enumerate(ledger.agent_names) if counts[n]}


def _context(folder: Path, known: dict[str, Any], tally: _Tally, ended: Sequence[Summary]) -> RunContext:
    # The newest: those of earlier launches were removed when it was in force.
    spools = sorted((name for name in names_in(folder) if name.endswith(".spool")), key=lambda n: (len(n), n))
    context = RunContext(
        launches=max(tally.launches, known.get("launches", 0)),
        date=tally.first_at.date().isoformat(),
        number=tally.number,
        first=tally.number,
        agent=tally.agent,
        spool=spools[-1] if spools else None,
        estimated=True,
    )
    before = last_finished(ended)
    if before is not None and any(tally.ledger.origins[: tally.ledger.rows]):
        # It keeps results of the run before, so it is of the same series.
        context.series, context.from_run = before.series or before.run_id, before.run_id
        context.first = before.first
    fixed = ("launches", "estimated")
    return structs.replace(context, **{name: value for name, value in known.items() if name not in fixed})


def _run_in_log(folder: Path, launches: int, ended: set[str]) -> str:
    """The run that the log says the newest launch on record worked on; side effects keep their keys by it."""
    last = last_launch(folder)
    if last is None or last.launch != launches or last.run_id in ended:
        return ""
    return last.run_id or ""


def _usage(known: Totals | None, summed: Totals, *, is_current: bool) -> Totals:
    if known is None or (summed.cost or 0) + summed.tokens == 0:
        return known or summed
    if not is_current and known.lost + known.lost_tokens:
        summed.lost, summed.lost_tokens = known.lost, known.lost_tokens
        summed.cost = (summed.cost or 0) + known.lost
    return known if is_current else summed


# ---- what nothing says any more


def _outdated(files: Sequence[Fragments], placed: Sequence[Placed]) -> set[str]:
    """The keys of items of which a newer record than the whole ones is lost: those no longer count."""
    named = {lost.key for file in files for lost in file.lost if lost.key}
    newest: dict[str, int] = {}
    for _, record in _read(placed) if named else ():
        if record.key in named and record.kind != "step":
            newest[record.key] = max(record.seq, newest.get(record.key, 0))
    found = set()
    for file in files:
        for lost in file.lost:
            seq = newest.get(lost.key)
            # A number that was damaged itself may be anything; so it counts only where it can be right.
            is_read = lost.seq is not None and lost.seq <= file.newest_seq
            if seq is not None and (seq < (lost.seq or 0) if is_read else seq <= lost.after):
                found.add(lost.key)
    return found


def _is_dropped(record: Record, outdated: set[str]) -> bool:
    return record.key in outdated and record.kind not in BESIDE


def _lost_text(files: Sequence[Fragments], journal: Any, *, has_newest: bool) -> Iterator[str]:
    """`journal` is what state.json says of it; `has_newest` is whether that has the newest records."""
    for file in files:
        if file.lost:
            places = ", ".join(f"{one.at:,}" for one in file.lost[:SHOWN])
            more = ", …" if len(file.lost) > SHOWN else ""
            where = f" (byte {places}{more})" if any(one.at for one in file.lost) else ""
            yield f"{_counted(len(file.lost), 'damaged record')} in {file.name}{where}"
    if isinstance(journal, dict) and isinstance(length := journal.get("length"), int) and length:
        there = next((file.size for file in files if file.name == journal.get("name")), None)
        if there is None:
            yield f"{journal.get('name')}, which is missing"
        elif there < length:
            yield f"the last {length - there:,} bytes of {journal.get('name')}"
    if not has_newest:
        yield f"the newest records, if only the newest {STATE} had them; their items are run again"


def _lost_items(
    ledger: Ledger, ranges: Iterable[Range], counts: Mapping[str, int], outdated: Iterable[str], *, is_current: bool
) -> Iterator[str]:
    if is_current:
        there = _positions(ledger, range(PENDING + 1, len(STATE_NAMES)))
        # Ranges that were damaged themselves may be anything.
        most = max(sum(counts.values()), ledger.rows)
        missing = sorted({n for first, last in ranges for n in range(first, min(last + 1, most))} - there)
        count = max(len(missing), sum(counts.values()) - counts.get("pending", 0) - len(there))
        names = "index " + ", ".join(map(str, missing[:SHOWN])) if missing else ""
    else:
        missing, count = [], len(keys := sorted(outdated))
        names = ", ".join(keys[:SHOWN])
    if count > 0:
        more = ", …" if names and count > SHOWN else ""
        which = f" ({names}{more})" if names else ""
        are = "it is" if count == 1 else "they are"
        yield f"what the newest records said of {_counted(count, 'item')}{which}; {are} run again"


def _unknown(
    known: Container[str], context: Container[str], run_id: str, *, is_current: bool, uses: bool
) -> Iterator[str]:
    if not run_id:
        yield "the run's id: it gets a new one, and its side effects new idempotency keys"
    elif "run_id" not in known:
        yield f"the run's id: log.jsonl says {run_id}, which is used"
    if "identity" not in context:
        yield "flags kept from earlier launches, such as -j or --budget: give them again if the job file has none"
    if uses and not (is_current and "usage" in known):
        yield "what crashed attempts cost: the usage is the sum of the records"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
