"""From one run to the next: which results of earlier runs are kept, and the records that a new run begins with.

The results of the newest finished run are compared with the items by key and content, like those of an unfinished run:
what is unchanged is kept. The records are read only; a new run gets a copy of the ones that count. A crash before its
first commit leaves a stray copy, which nothing names and the next launch prunes.

An item that is run again on purpose (too old, other params, --rerun) begins the new run with a record `redo` in place
of its result, so that its generation is raised in the same commit that opens the run. An item that changed needs none:
its old record, which is copied, does not fit the content, and each launch sees that again.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from agentrun.checkpoint.ledger import DONE, EARLIER, FILES_MISSING, OTHER_PARAMS, OWN, RERUN, TOO_OLD, Ledger
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary
from agentrun.item import key_digest
from agentrun.job.job import Job
from agentrun.job.options import Options
from agentrun.outputs.files import differing_files
from agentrun.runs.intake import Kept, Taken

if TYPE_CHECKING:
    from agentrun.runs.run import Run
    from agentrun.store.port import Reader, Store


@dataclass(frozen=True, slots=True)
class Keeping:
    """The rule that says which results a launch keeps."""

    agent: str
    params: str
    older_than: float | None = None
    """Results made before this time are run again, in seconds since the epoch."""
    rerun: str | None = None

    @classmethod
    def of(cls, job: Job, options: Options, *, agent: str, now: float, is_new_run: bool) -> Keeping | None:
        """None for a launch that keeps everything: one that resumes gives up only what it is asked to."""
        if not is_new_run and options.rerun is None:
            return None
        age = job.max_age_seconds if is_new_run else None
        return cls(agent, job.params_digest, now - age if age is not None else None, options.rerun)

    def origin(self, record: Record, *, is_earlier: bool) -> int:
        """OWN or EARLIER for a result that is kept; otherwise why it is not."""
        kept = EARLIER if is_earlier else OWN
        # What a person has corrected or skipped is never run over.
        if record.kind not in ("done", "skipped") or record.edited is not None or record.by:
            return kept
        # Records without a run's number are of versions that did not write down the params.
        if is_earlier and record.run and record.params != self.params:
            return OTHER_PARAMS
        if self.older_than is not None and finished_at(record) <= self.older_than:
            return TOO_OLD
        if self.rerun == "all" or (self.rerun == "old-agent" and record.agent != self.agent):
            return RERUN
        return kept


def miss_files(ledger: Ledger, kept: Kept, output: str) -> None:
    """Results of earlier runs whose files are gone, or are not what they were, are not kept."""
    rows = [row for row in ledger.with_files if ledger.origins[row] == EARLIER and ledger.states[row] == DONE]
    folder = Path(output).parent
    for row, record in zip(rows, kept.read(ledger.refs[row] for row in rows), strict=True):
        if record.edited is None and next(differing_files(folder, record.files), None) is not None:
            ledger.origins[row] = FILES_MISSING


def finished_at(record: Record) -> float:
    """When the item was finished, in seconds since the epoch."""
    last = record.tries[-1] if record.tries else record
    return last.at + last.seconds


def is_as_finished(run: Run, finished: Summary) -> bool:
    """Whether a new run would change nothing: nothing is to run, was posted, or is gone, and the output is the same."""
    plan, job = run.plan, run.job
    if plan.to_run or plan.waiting or any(isinstance(one, Taken) for one in run.taken):
        return False
    is_same_order = run.ledger.order_digest() == finished.order if finished.order else not (plan.gone or plan.moved)
    if finished.output is None or not is_same_order:
        return False
    template, when, written = job.output_template, {"run_id": finished.run_id, "date": finished.date}, finished.output
    asked = str(template.path(job.base, **when)), template.form, template.names(**when)
    return (written.path, written.form, written.names) == asked


def as_kept(run: Run, finished: Summary) -> Summary:
    """What a launch returns that keeps everything: the finished run, as if nothing of it had been run now."""
    kept = count_kept(run)
    return structs.replace(
        finished,
        exit_code=0,
        nothing_to_do=True,
        ran=0,
        kept=kept.kept,
        kept_old_agent=kept.old_agent,
        old_agents=dict(kept.old_agents),
        left=finished.counts.get("failed", 0),
    )


def open_run(run: Run, finished: Reader, store: Store) -> None:
    """Copy what the new run keeps of the finished one: from here on `store` and the ledger have that alone."""
    rows, steps = array("I"), bytearray()

    def note(row: int, is_step: bool) -> None:
        rows.append(row)
        steps.append(is_step)

    ledger = run.ledger
    ledger.forget_unlisted()
    refs = store.reopen(_kept_records(run, finished, note), seq=run.checkpoint.seq)
    remembered: dict[int, list[int]] = {}
    for row, is_step, ref in zip(rows, steps, refs, strict=True):
        if is_step:
            remembered.setdefault(row, []).append(ref)
        else:
            ledger.refs[row] = ref
    ledger.steps = {row: found for row, found in remembered.items() if row not in run.refs_before}


def _kept_records(run: Run, finished: Reader, note: Callable[[int, bool], None]) -> Iterator[Record]:
    """The newest record of every current item, and what unfinished ones remember, at the items' positions now."""
    ledger = run.ledger
    for ref, record in finished.scan():
        row = ledger.find(key_digest(record.key))
        if not ledger.is_listed(row):
            continue
        if run.refs_before.get(row, ledger.refs[row]) == ref:
            note(row, False)
            if ledger.origins[row] > EARLIER:
                # In place of its result: the generation is raised already.
                yield structs.replace(run.new_record("redo", row, record.key), seq=record.seq)
                ledger.origins[row] = OWN
            elif record.index == ledger.positions[row]:
                yield record
            else:
                yield structs.replace(record, index=ledger.positions[row])
        elif ref in ledger.steps.get(row, ()) or row in run.refs_before:
            # The rest of an item that people posted something about: until that is on disk, it may be needed again.
            note(row, True)
            yield record


@dataclass(frozen=True, slots=True)
class KeptCount:
    """How many items a run settled itself, how many results it keeps from earlier runs, and how many of those each
    older version of the agent made: as many as `--rerun old-agent` would run again."""

    ran: int
    kept: int
    old_agents: Mapping[str, int]

    @property
    def old_agent(self) -> int:
        return sum(self.old_agents.values())


def count_kept(run: Run) -> KeptCount:
    ledger = run.ledger
    ran = kept = 0
    versions: Counter[int] = Counter()
    for row in ledger.order:
        if ledger.origins[row] == OWN:
            ran += ledger.is_settled(row)
        elif ledger.states[row] == DONE:
            kept += 1
            # --rerun does not touch what a person has corrected.
            if row not in ledger.edited:
                versions[ledger.agents[row]] += 1
    names = {ledger.agent_names[number]: count for number, count in versions.items()}
    return KeptCount(ran, kept, {name: count for name, count in names.items() if name != run.agent})
