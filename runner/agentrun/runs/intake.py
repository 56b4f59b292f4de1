"""Taking in what people posted: which records a message becomes, or why it no longer applies.

A record is committed first and the message unlinked after: taken in again, it no longer applies, because each names
the generation, the question or the record that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrun.checkpoint.ledger import DONE, NO_REF, SKIPPED, STATE_NAMES, WAITING, Ledger
from agentrun.item import key_digest
from agentrun.runs.run import Run
from agentrun.store.port import Entry, Posted, Store

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that applies: the records that it becomes, the one about the item's standing first."""

    name: str
    row: int
    entries: tuple[Entry, ...]

    @property
    def kind(self) -> str:
        return str(self.entries[0].fields["kind"])


@dataclass(frozen=True, slots=True)
class Dropped:
    """A message that does not apply."""

    name: str
    key: str
    reason: str
    is_known: bool = False
    """It was taken in before; nobody needs to hear of it."""


def look_up(run: Run, store: Store, posted: Sequence[Posted]) -> tuple[dict[int, Record], dict[str, list[Record]]]:
    """What is needed to decide: the newest records of the rows that messages are about, and of items that begin anew
    but keep some of their steps, these and their answers, oldest first."""
    refs = run.ledger.refs
    rows = sorted({row for one in posted if (row := _row(run.ledger, one)) >= 0 and refs[row] != NO_REF})
    newest: dict[int, Record] = dict(zip(rows, store.read(refs[row] for row in rows), strict=True))
    messages = [one.message for one in posted if one.message is not None and one.message.get("keep_before")]
    wanted = {message["key"]: message["gen"] for message in messages}
    steps: dict[str, list[Record]] = {key: [] for key in wanted}
    # Those of settled items are garbage that nobody points to; they are there until the journal is compacted.
    for _, record in store.scan() if wanted else ():
        if record["kind"] in ("step", "answer") and wanted.get(record["key"]) == record["gen"]:
            steps[record["key"]].append(record)
    return newest, steps


def mark_edits(ledger: Ledger, posted: Iterable[Posted]) -> None:
    """Before the items are listed: what a person has corrected is kept, also where the item has changed since."""
    for one in posted:
        row = _row(ledger, one)
        if row >= 0 and one.message is not None and one.message["kind"] == "edit" and ledger.states[row] == DONE:
            ledger.edited.add(row)


def forget(run: Run, rows: Iterable[int], store: Store) -> list[Taken]:
    """For --forget-steps: unfinished items that remember something begin anew."""
    rows = [row for row in rows if run.ledger.is_listed(row)]
    keys = [record["key"] for record in store.read(run.ledger.steps[row][0] for row in rows)]
    entries = [
        Entry(run.fields("redo", row, key) | {"gen": run.ledger.generation(row) + 1})
        for row, key in zip(rows, keys, strict=True)
    ]
    return [Taken("", row, (entry,)) for row, entry in zip(rows, entries, strict=True)]


def take(
    run: Run,
    posted: Sequence[Posted],
    *,
    newest: Mapping[int, Record],
    steps: Mapping[str, Sequence[Record]],
    is_launch: bool,
    is_busy: Callable[[int], bool] = lambda row: False,
) -> list[Taken | Dropped]:
    """What becomes of each message; those that are to wait are left out.

    `newest` and `steps` are what `look_up` found. At most one message of an item is
    taken at a time: the next one sees what the first has made of it.
    """
    decided: list[Taken | Dropped] = []
    busy: set[int] = set()
    for one in posted:
        message = one.message
        if message is None:
            decided.append(Dropped(one.name, "", one.problem))
            continue
        row = _row(run.ledger, one)
        if message["run_id"] not in (run.run_id, run.checkpoint.context.get("from_run")):
            decided.append(Dropped(one.name, message["key"], "it is for another run, which has ended"))
        elif not is_launch and _waits_for_launch(message):
            pass
        elif row < 0:
            decided.append(Dropped(one.name, message["key"], "there is no such item"))
        elif row not in busy and not is_busy(row) and run.ledger.is_listed(row):
            found = _decide(run, row, message, newest.get(row), steps.get(message["key"], ()))
            if isinstance(found, _No):
                decided.append(Dropped(one.name, message["key"], found.reason, found.is_known))
            else:
                busy.add(row)
                decided.append(Taken(one.name, row, found))
    return decided


@dataclass(frozen=True, slots=True)
class _No:
    reason: str
    is_known: bool = False


def _row(ledger: Ledger, one: Posted) -> int:
    return ledger.find(key_digest(one.message["key"])) if one.message is not None else -1


def _waits_for_launch(message: Mapping[str, Any]) -> bool:
    return (message["kind"] == "redo" and not message.get("now")) or "carry" in message


def _decide(
    run: Run, row: int, message: Mapping[str, Any], record: Record | None, steps: Sequence[Record]
) -> tuple[Entry, ...] | _No:
    if record is not None and record.get("id") == message["id"]:
        return _No("it was taken in already", is_known=True)
    if message["gen"] != run.ledger.generation(row):
        return _No("the item was begun anew since", is_known=message["kind"] == "redo")
    decide = {"answer": _answer, "redo": _redo, "edit": _edit, "skip": _skip}[message["kind"]]
    return decide(run, row, message, record, steps)


def _answer(
    run: Run, row: int, message: Mapping[str, Any], record: Record | None, steps: Sequence[Record]
) -> tuple[Entry, ...] | _No:
    if run.ledger.states[row] != WAITING or run.ledger.questions.get(row) != message["question"] or record is None:
        return _No(f"question {message['question']} has its answer already, or is not asked any more", is_known=True)
    asked, given = record.get("question", {}), message["answer"]
    answer = {
        "yes": bool(given.get("yes")),
        "text": given.get("text", ""),
        "by": message["by"],
        "at": message["at"],
        "details": {**asked.get("details", {}), **given.get("details", {})},
    }
    fields = run.fields("answer", row, message["key"])
    fields |= {"question": message["question"], "asked": asked.get("text", ""), "answer": answer, "id": message["id"]}
    return (Entry(fields),)


def _redo(
    run: Run, row: int, message: Mapping[str, Any], record: Record | None, steps: Sequence[Record]
) -> tuple[Entry, ...] | _No:
    generation = run.ledger.generation(row) + 1
    fields = run.fields("redo", row, message["key"]) | {"gen": generation, "id": message["id"]}
    kept = []
    if message.get("keep_before"):
        for step in steps:
            if step.get("name") == message["keep_before"]:
                break
            kept.append(_copy(step, {"gen": generation}))
    return (Entry(fields), *kept)


def _edit(
    run: Run, row: int, message: Mapping[str, Any], record: Record | None, steps: Sequence[Record]
) -> tuple[Entry, ...] | _No:
    if run.ledger.states[row] != DONE or record is None or record["seq"] != message["seq"]:
        return _No("the item has another result by now")
    change: dict[str, Any] = {"edited": {"by": message["by"], "at": message["at"]}, "id": message["id"]}
    if "carry" in message:
        if not run.job.carry:
            return _No("the job has no carry")
        change["carry"] = message["carry"]
    else:
        change["output"] = message["output"]
        if run.job.carry:
            change["as"] = record.get("as", record["seq"])
    return (_copy(record, change | {"index": run.ledger.positions[row]}),)


def _skip(
    run: Run, row: int, message: Mapping[str, Any], record: Record | None, steps: Sequence[Record]
) -> tuple[Entry, ...] | _No:
    state = run.ledger.states[row]
    if state in (DONE, SKIPPED):
        return _No(f"the item is {STATE_NAMES[state]} already", is_known=state == SKIPPED)
    fields = run.fields("skipped", row, message["key"])
    if run.job.carry:
        if record is None or "after" not in record:
            return _No("with carry = true an item can be skipped once it has failed or waits")
        fields |= {"after": record["after"], "carry": record.get("carry"), "as": record.get("as", record["seq"])}
    if usage := run.ledger.usages.get(row):
        fields["usage"] = usage
    fields |= {"error": {"origin": "person", "message": message.get("reason") or f"skipped by {message['by']}"}}
    return (Entry(fields | {"by": message["by"], "id": message["id"]}),)


def _copy(record: Record, change: Mapping[str, Any]) -> Entry:
    from agentrun.values.json import encode

    changed = {**record, **change}
    fields = {name: value for name, value in changed.items() if name not in ("crc", "seq", "output")}
    return Entry(fields, encode(changed["output"]) if "output" in changed else None)
