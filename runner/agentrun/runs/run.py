"""A run in the memory of a launch: where it stands, and how that becomes records and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, structs

from agentrun.agents.failure import Failure
from agentrun.checkpoint.checkpoint import Checkpoint, RunContext, Running
from agentrun.checkpoint.ledger import DONE, FAILED, NO_REF, WAITING, Ledger
from agentrun.checkpoint.record import BESIDE, Kind, Record
from agentrun.item import key_digest
from agentrun.job.job import Job
from agentrun.money.budget import Purse
from agentrun.money.item_budget import CutOff, ItemBudget
from agentrun.money.usage import Usage
from agentrun.runs.plan import Plan, is_tried_again
from agentrun.runs.units import Ended, Unit, Work
from agentrun.values.clock import now_seconds, now_text

if TYPE_CHECKING:
    from agentrun.runs.intake import Dropped, Taken
    from agentrun.runs.only import Selection

TRIES_KEPT = 10


class Keeps(Protocol):
    def keep(self, context: RunContext) -> None:
        """Write down what the next launch must know."""


@dataclass(slots=True)
class Run:
    """The records are the truth; this is what follows from them and from the source."""

    job: Job
    agent: str
    """The agent's fingerprint in this launch."""
    checkpoint: Checkpoint
    resumed: bool
    ledger: Ledger
    plan: Plan
    only: Selection | None = None
    """The items that this launch is limited to."""
    keepers: list[Keeps] = field(default_factory=list)
    """What has something to keep in every checkpoint."""
    to_retry: set[int] = field(default_factory=set)
    """Failed rows that this launch tries again."""
    carry: Any = None
    last_seq: int = 0
    """With a carry: the seq of the record before the next item."""
    carry_row: int = -1
    """With a carry that a person has edited: the row whose record is to be written with it."""
    deaths: dict[str, int] = field(default_factory=dict)
    """By key: how many launches died with the item in flight."""
    suspects: set[int] = field(default_factory=set)
    """Rows with one death less than the limit: run alone, last."""
    dead: dict[int, str] = field(default_factory=dict)
    """Rows at the limit, with their keys: set aside."""
    notes: list[str] = field(default_factory=list)
    taken: list[Taken | Dropped] = field(default_factory=list)
    """What became of the messages that the launch found; committed when it begins."""
    refs_before: dict[int, int] = field(default_factory=dict)
    """Of rows that these messages are about: the newest record on disk."""
    where: Callable[[int], str] | None = None
    """On a cluster: where the item in a slot runs."""
    purse: Purse = field(init=False)
    item_budget: ItemBudget | None = field(init=False)
    """None if an item may use what it likes."""
    params: str = field(init=False)

    def __post_init__(self) -> None:
        self.params = self.job.params_digest
        self.purse = Purse(structs.replace(self.checkpoint.usage), self.job.budget, self.job.token_budget)
        self.item_budget = ItemBudget.of(self.job.item_budget, self.job.item_token_budget)

    @property
    def run_id(self) -> str:
        return self.checkpoint.run_id

    @property
    def context(self) -> RunContext:
        return self.checkpoint.context

    @property
    def output(self) -> Path:
        return self.job.output_path(run_id=self.run_id, date=self.context.date)

    @property
    def partial_output(self) -> Path:
        return self.job.partial_path(run_id=self.run_id, date=self.context.date)

    @property
    def is_complete(self) -> bool:
        counts = self.ledger.counts
        return not counts["pending"] and not counts["waiting"] and not self.too_many_failed

    @property
    def too_many_failed(self) -> bool:
        return self.ledger.counts["failed"] > self.job.allow_failures.of(len(self.ledger))

    @property
    def is_held_up(self) -> bool:
        """With a carry, no item runs while one before it waits."""
        return self.job.carry and bool(self.ledger.counts["waiting"])

    @property
    def has_more(self) -> bool:
        """Whether something is left that this launch would run."""
        return bool(self.ledger.counts["pending"] or self.to_retry)

    @property
    def left(self) -> int:
        """How many of the failed items the next launch leaves alone, unless it is asked for them."""
        ledger, carries = self.ledger, self.job.carry
        failed = [row for row in ledger.failed_launches if ledger.is_listed(row)]
        return sum(not is_tried_again(ledger, row, agent=self.agent, carries=carries) for row in failed)

    # ---- the budget of an item

    def over_budget(self, work: Work) -> str:
        """Why an item in flight may use no more; empty if it may."""
        if self.item_budget is None:
            return ""
        used = structs.replace(self.purse.spent(work.row) or Usage())
        before = self.context.cut_off.get(work.item.key)
        if before is not None and before.gen == self.ledger.generation(work.row):
            used.add(before.used)
        return self.item_budget.passed_by(used)

    def put_back(self, work: Work) -> None:
        """The item is no longer in flight, and has no record of how it ended."""
        self._cut_off(work.item.key, work.row, self.purse.unrecorded(work.row))
        self.purse.put_back(work.row)

    def charge_left(self) -> None:
        """A launch died, perhaps with items in flight."""
        for one in self.checkpoint.running:
            if (row := self.ledger.find(key_digest(one.key))) >= 0:
                self._cut_off(one.key, row, one.used)
        self.purse.charge_left(self.checkpoint.running)

    def _cut_off(self, key: str, row: int, used: Usage | None) -> None:
        if self.item_budget is not None and used is not None:
            cut, gen = self.context.cut_off, self.ledger.generation(row)
            if key not in cut or cut[key].gen != gen:
                cut[key] = CutOff(gen=gen)
            cut[key].used.add(used)

    # ---- records

    def replaced(self, record: Record, **changes: Any) -> Record:
        """A record that stands in the place of another one of the same item, which it differs from in this."""
        copy = structs.replace(record, **changes)
        if self.job.carry:
            copy.as_ = record.seq if record.as_ is None else record.as_
        return copy

    def record(self, work: Work, ended: Ended, usage: Usage | None) -> Record:
        """The record of an item that ended in this launch, having used this."""
        assert ended.kind != "back"
        first, last = ended.tries[0], ended.tries[-1]
        record = self.new_record(ended.kind, work.row, work.item.key, at=first.at, seconds=last.seconds)
        if len(ended.tries) > 1 or ended.kind != "done":
            record.tries = ended.tries[-TRIES_KEPT:]
        record.usage, record.refused = usage, ended.refused
        record.question, record.files, record.warning = ended.question, ended.files, ended.warning
        record.error = ended.failure
        if ended.kind == "failed":
            record.failed_launches = self._failed_launches(work.row)
        if self.job.carry:
            record.after = self.last_seq
            record.carry = ended.carry if ended.carry_set and ended.kind == "done" else self.carry
        if ended.kind == "done" and ended.output is not None:
            record.output = Raw(ended.output)
        return record

    def record_of_death(self, row: int, key: str) -> Record:
        """The record of an item that the crash-loop guard sets aside."""
        message = f"the runner died {self.deaths[key]} times while this item was in flight"
        record = self.new_record("failed", row, key)
        record.error, record.failed_launches, record.set_aside = Failure("lost", message), 1, True
        record.usage = self.ledger.usages.get(row)
        if self.job.carry:
            record.after, record.carry = self.last_seq, self.carry
        return record

    def record_of_step(self, work: Work, *, name: str, n: int, seconds: float, output: bytes) -> Record:
        """The record of a finished step."""
        record = self.new_record("step", work.row, work.item.key, seconds=seconds)
        record.name, record.n, record.output = name, n, Raw(output)
        usage = self.purse.spent(work.row)
        # A copy: the item may report more while this is written.
        record.usage = structs.replace(usage) if usage is not None else None
        return record

    def new_record(self, kind: Kind, row: int, key: str, *, at: float | None = None, seconds: float = 0.0) -> Record:
        """A record of an item with what every record says."""
        ledger = self.ledger
        return Record(
            kind=kind,
            key=key,
            gen=ledger.generations.get(row, 0),
            index=ledger.positions[row],
            hash=f"{ledger.contents[row]:016x}",
            agent=self.agent,
            run=self.checkpoint.context.number,
            params=self.params,
            launch=self.checkpoint.context.launches,
            at=now_seconds() if at is None else at,
            seconds=seconds,
            stamp=ledger.stamps[row],
        )

    def _failed_launches(self, row: int) -> int:
        """In how many launches it has failed, itself and the agent unchanged."""
        ledger = self.ledger
        same = row in ledger.failed_launches and ledger.agent_names[ledger.agents[row]] == self.agent
        return ledger.failed_launches[row] + 1 if same else 1

    # ---- checkpoints

    def settle(self, units: Sequence[Unit]) -> None:
        """Count these units in, for the checkpoint that is about to be written."""
        carries = self.job.carry
        for unit in units:
            record = unit.record
            if carries and record.kind not in BESIDE and (unit.slot is not None or unit.row == self.carry_row):
                self.carry, self.last_seq = record.carry, self.checkpoint.seq + 1
            if not unit.is_counted:
                self.count(unit.row, record)

    def count(self, row: int, record: Record) -> None:
        """Where the item stands with this record, which may not be on disk yet."""
        if record.kind == "step":
            return
        if record.kind == "answer":
            self.ledger.resume(row)
        elif record.kind == "redo":
            self.ledger.redo(row)
            # One that had changed, and was kept, is run as it is now.
            if (content := self.plan.contents_now.pop(row, None)) is not None:
                self.ledger.contents[row] = content
        else:
            self.ledger.settle(row, NO_REF, record)
        if self.deaths:
            self.deaths.pop(record.key, None)
        if (cut_off := self.checkpoint.context.cut_off) and record.kind in ("done", "skipped", "redo"):
            cut_off.pop(record.key, None)
        self.to_retry.discard(row)
        self.suspects.discard(row)
        self.dead.pop(row, None)

    def landed(self, units: Sequence[Unit], refs: Sequence[int]) -> None:
        """The units are on disk."""
        for unit, ref in zip(units, refs, strict=True):
            if unit.record.kind in ("step", "answer"):
                self.ledger.remember(unit.row, ref, unit.record)
            else:
                self.ledger.refs[unit.row] = ref

    def next_checkpoint(self, in_flight: Mapping[int, Work]) -> Checkpoint:
        """The checkpoint with the next seq; `in_flight` is what each slot will be running once it is on disk."""
        checkpoint, ledger, context = self.checkpoint, self.ledger, self.checkpoint.context
        checkpoint.seq += 1
        checkpoint.last_completed, checkpoint.total = ledger.last_completed, len(ledger.order)
        checkpoint.counts = ledger.counts.copy()
        ranges = ledger.ranges
        checkpoint.done, checkpoint.failed = ranges[DONE].listed(), ranges[FAILED].listed()
        checkpoint.waiting = ranges[WAITING].listed()
        checkpoint.updated_at = now = now_text()
        checkpoint.running = running = []
        totals = self.purse.totals
        is_priced = totals.dearest is not None or totals.dearest_tokens is not None
        for slot, work in in_flight.items():
            work.since = work.since or now
            entry = Running(index=work.item.index, key=work.item.key, slot=slot, since=work.since)
            if self.where is not None:
                entry.where = self.where(slot)
            if is_priced:
                entry.reserved, entry.reserved_tokens = self.purse.reserved(work.row)
            if self.purse.in_flight:
                entry.used = self.purse.unrecorded(work.row)
            running.append(entry)
        # As it is at this moment, like `running`: what is reported while this is written would be charged twice.
        checkpoint.usage = structs.replace(totals)
        for one in self.keepers:
            one.keep(context)
        context.deaths, context.versions = self.deaths, ledger.versions
        context.empty = ledger.empty if self.job.empty != "allow" else 0
        if self.job.carry:
            context.carry = self.carry
        return checkpoint
