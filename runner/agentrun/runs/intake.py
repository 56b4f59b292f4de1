"""Processing what people posted: which records a message becomes, or why it no longer applies.

The records are committed first and the message is unlinked after that: processed again, it no longer applies, because
each message names the generation, the question or the record that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import structs

from agentrun.agents.failure import Failure
from agentrun.agents.messages import Answer
from agentrun.checkpoint.ledger import DONE, EARLIER, NO_REF, OWN, SKIPPED, STATE_NAMES, WAITING, Ledger
from agentrun.checkpoint.message import ABSENT, AnswerMessage, AnyMessage, EditMessage, RedoMessage, SkipMessage
from agentrun.checkpoint.record import Edited, Question, Record
from agentrun.item import key_digest
from agentrun.runs.run import Run
from agentrun.store.port import Posted
from agentrun.values.json import decode


class Kept(Protocol):
    """The records and the inbox of a run: of a store that has it loaded, or of a reader."""

    def scan(self) -> Iterator[tuple[int, Record]]: ...

    def read(self, refs: Iterable[int]) -> Iterator[Record]: ...

    def inbox(self) -> list[Posted]: ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that applies: the records that it becomes, the one that changes the item's state first."""

    name: str
    row: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A message that does not apply."""

    name: str
    key: str
    reason: str
    is_known: bool = False
    """It was processed before; nobody needs to hear of it."""


def look_up(run: Run, kept: Kept, posted: Sequence[Posted]) -> tuple[dict[int, Record], dict[str, list[Record]]]:
    """What is needed to decide: the newest records of the rows that messages are about; and, oldest first, the steps
    and answers of items that start over but keep some of their steps."""
    refs = run.ledger.refs
    rows = sorted({row for one in posted if (row := _row(run.ledger, one)) >= 0 and refs[row] != NO_REF})
    newest = dict(zip(rows, kept.read(refs[row] for row in rows), strict=True))
    redone = [one.message for one in posted if isinstance(one.message, RedoMessage) and one.message.keep_before]
    wanted = {message.key: message.gen for message in redone}
    steps: dict[str, list[Record]] = {key: [] for key in wanted}
    # Those of settled items are garbage that nobody points to; they are there until the journal is compacted.
    for _, record in kept.scan() if wanted else ():
        if record.kind in ("step", "answer") and wanted.get(record.key) == record.gen:
            steps[record.key].append(record)
    return newest, steps


def mark_edits(ledger: Ledger, posted: Iterable[Posted], kept: Kept) -> None:
    """Before the items are listed: what a person has corrected is kept, also where the item has changed since, or its
    result would be run again."""
    found = [(_row(ledger, one), one.message) for one in posted if isinstance(one.message, EditMessage)]
    edits = [(row, message) for row, message in found if row >= 0 and ledger.states[row] == DONE]
    for (row, message), record in zip(edits, kept.read(ledger.refs[row] for row, _ in edits), strict=True):
        if record.seq == message.seq and record.gen == message.gen:
            ledger.edited.add(row)
            ledger.origins[row] = min(ledger.origins[row], EARLIER)


def forget(run: Run, rows: Iterable[int], kept: Kept) -> list[Taken]:
    """For --forget-steps: unfinished items that remember something start over."""
    rows = [row for row in rows if run.ledger.is_listed(row)]
    remembered = kept.read(run.ledger.steps[row][0] for row in rows)
    return [Taken("", row, (_started_over(run, row, one.key),)) for row, one in zip(rows, remembered, strict=True)]


def start_over(run: Run, kept: Kept) -> list[Taken]:
    """For --rerun within an unfinished run: the results that it gives up."""
    rows = [row for row in run.ledger.order if run.ledger.origins[row] > EARLIER]
    records = kept.read(run.ledger.refs[row] for row in rows)
    taken = [Taken("", row, (run.new_record("redo", row, one.key),)) for row, one in zip(rows, records, strict=True)]
    for row in rows:
        run.ledger.origins[row] = OWN
    return taken


def is_for(message: AnyMessage, run_id: str, series: str) -> bool:
    """Whether the message is about this run, or another one of its series: it names the record that it is about."""
    return message.run_id == run_id or message.series == series


def take(
    run: Run,
    posted: Sequence[Posted],
    *,
    newest: Mapping[int, Record],
    steps: Mapping[str, Sequence[Record]],
    is_launch: bool,
    is_busy: Callable[[int], bool] = lambda row: False,
) -> list[Taken | Dropped]:
    """Decide what becomes of each message; those that have to wait are left out.

    `newest` and `steps` are what `look_up` found. At most one message about an item is taken at a time: the next one
    sees what the first has made of it.
    """
    decided: list[Taken | Dropped] = []
    busy: set[int] = set()
    for one in posted:
        message = one.message
        if message is None:
            decided.append(Dropped(one.name, "", one.problem))
            continue
        row = _row(run.ledger, one)
        if not is_for(message, run.run_id, run.checkpoint.series) and message.run_id != run.context.from_run:
            decided.append(Dropped(one.name, message.key, "it is for another run, which has ended"))
        elif not is_launch and _waits_for_launch(message):
            pass
        elif row < 0:
            decided.append(Dropped(one.name, message.key, "there is no such item"))
        elif row not in busy and not is_busy(row) and run.ledger.is_listed(row):
            found = _decide(run, row, message, newest.get(row), steps.get(message.key, ()))
            if isinstance(found, _No):
                decided.append(Dropped(one.name, message.key, found.reason, found.is_known))
            else:
                busy.add(row)
                decided.append(Taken(one.name, row, found))
    return decided


@dataclass(frozen=True, slots=True)
class _No:
    reason: str
    is_known: bool = False


def _row(ledger: Ledger, one: Posted) -> int:
    return ledger.find(key_digest(one.message.key)) if one.message is not None else -1


def _waits_for_launch(message: AnyMessage) -> bool:
    if isinstance(message, RedoMessage):
        return not message.now
    return isinstance(message, EditMessage) and message.carry is not ABSENT


def _decide(
    run: Run, row: int, message: AnyMessage, record: Record | None, steps: Sequence[Record]
) -> tuple[Record, ...] | _No:
    if record is not None and record.id == message.id:
        return _No("it was processed already", is_known=True)
    if message.gen != run.ledger.generation(row):
        return _No("the item was started over since", is_known=isinstance(message, RedoMessage))
    match message:
        case AnswerMessage():
            return _answer(run, row, message, record)
        case RedoMessage():
            return _redo(run, row, message, steps)
        case EditMessage():
            return _edit(run, row, message, record)
        case SkipMessage():
            return _skip(run, row, message, record)


def _answer(run: Run, row: int, message: AnswerMessage, record: Record | None) -> tuple[Record, ...] | _No:
    if run.ledger.states[row] != WAITING or run.ledger.questions.get(row) != message.question or record is None:
        return _No(f"question {message.question} has its answer already, or is not asked any more", is_known=True)
    asked, given = record.question if isinstance(record.question, Question) else Question(), message.answer
    answer = run.new_record("answer", row, message.key)
    answer.question, answer.asked, answer.asked_key, answer.id = message.question, asked.text, asked.key, message.id
    answer.answer = Answer(
        yes=given.yes, text=given.text, by=message.by, at=message.at, details={**asked.details, **given.details}
    )
    return (answer,)


def _redo(run: Run, row: int, message: RedoMessage, steps: Sequence[Record]) -> tuple[Record, ...]:
    redone = _started_over(run, row, message.key)
    redone.id = message.id
    kept = []
    if message.keep_before:
        for step in steps:
            if step.name == message.keep_before:
                break
            # Without their usage, which the generation before has paid.
            kept.append(structs.replace(step, gen=redone.gen, usage=None))
    return (redone, *kept)


def _started_over(run: Run, row: int, key: str) -> Record:
    record = run.new_record("redo", row, key)
    record.gen = run.ledger.generation(row) + 1
    return record


def _edit(run: Run, row: int, message: EditMessage, record: Record | None) -> tuple[Record, ...] | _No:
    if run.ledger.states[row] != DONE or record is None or record.seq != message.seq:
        return _No("the item has another result by now")
    edited = Edited(message.by, message.at)
    copy = structs.replace(record, edited=edited, id=message.id, index=run.ledger.positions[row])
    if message.carry is ABSENT:
        copy.output = message.output
        if run.job.carry:
            copy.as_ = record.seq if record.as_ is None else record.as_
    elif run.job.carry:
        # Without `as`: the chain breaks right behind it, and what follows is run again with the new carry.
        copy.carry, copy.as_ = decode(bytes(message.carry)), None
    else:
        return _No("the job has no carry")
    return (copy,)


def _skip(run: Run, row: int, message: SkipMessage, record: Record | None) -> tuple[Record, ...] | _No:
    state = run.ledger.states[row]
    if state in (DONE, SKIPPED):
        return _No(f"the item is {STATE_NAMES[state]} already", is_known=state == SKIPPED)
    skipped = run.new_record("skipped", row, message.key)
    if run.job.carry:
        if record is None or record.after is None:
            return _No("with carry = true an item can be skipped once it has failed or waits")
        skipped.after, skipped.carry = record.after, record.carry
        skipped.as_ = record.seq if record.as_ is None else record.as_
    skipped.usage = run.ledger.usages.get(row)
    skipped.error = Failure("person", message.reason or f"skipped by {message.by}")
    skipped.by, skipped.id = message.by, message.id
    return (skipped,)
