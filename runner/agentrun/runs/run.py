"""A run, as a launch has it in memory: where it stands, and how that becomes records and checkpoints.

Not `run.py`: a module of that name would take the place of the public `agentrun.run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.ledger import NO_REF, Ledger
from agentrun.checkpoint.record import BESIDE
from agentrun.job.job import Job
from agentrun.money.budget import Purse
from agentrun.runs.plan import Plan, is_tried_again
from agentrun.runs.units import Ended, Unit, Work
from agentrun.store.port import Entry
from agentrun.values.clock import now_seconds, now_text

TRIES_KEPT = 10


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
    to_retry: set[int] = field(default_factory=set)
    """Failed rows that this launch tries again."""
    carry: Any = None
    last_seq: int = 0
    """With a carry: the seq of the record before the next item."""
    carry_row: int = -1
    """With a carry that a person has edited: the row whose record is to be written with it."""
    deaths: dict[str, int] = field(default_factory=dict)
    """By key: at how many deaths of a launch an item was in flight."""
    suspects: set[int] = field(default_factory=set)
    """Rows with one death less than the limit: run alone, last."""
    dead: dict[int, str] = field(default_factory=dict)
    """Rows at the limit, with their keys: set aside."""
    notes: list[str] = field(default_factory=list)
    taken: list[Any] = field(default_factory=list)
    """What became of the messages that the launch found (intake.Taken and Dropped); committed when it begins."""
    purse: Purse = field(init=False)

    def __post_init__(self) -> None:
        self.purse = Purse(dict(self.checkpoint.usage), self.job.budget, self.job.token_budget)

    @property
    def run_id(self) -> str:
        return self.checkpoint.run_id

    @property
    def launch(self) -> int:
        return int(self.checkpoint.context["launches"])

    @property
    def output(self) -> Path:
        return self.job.output_path(run_id=self.run_id, date=self.checkpoint.context["date"])

    @property
    def partial_output(self) -> Path:
        return self.job.partial_path(run_id=self.run_id, date=self.checkpoint.context["date"])

    @property
    def is_complete(self) -> bool:
        counts = self.ledger.counts
        return not counts["pending"] and not counts["waiting"] and not self.too_many_failed

    @property
    def too_many_failed(self) -> bool:
        return self.ledger.counts["failed"] > self.job.allow_failures.of(len(self.ledger))

    @property
    def is_held_up(self) -> bool:
        """With a carry nothing goes past an item that waits."""
        return self.job.carry and bool(self.ledger.counts["waiting"])

    @property
    def has_more(self) -> bool:
        """Something is left that this launch would run."""
        return bool(self.ledger.counts["pending"] or self.to_retry)

    @property
    def left(self) -> int:
        """How many of the failed items the next launch leaves as they are, unless it is asked for them."""
        ledger, carries = self.ledger, self.job.carry
        failed = [row for row in ledger.failed_launches if ledger.is_listed(row)]
        return sum(not is_tried_again(ledger, row, agent=self.agent, carries=carries) for row in failed)

    # ---- records

    def record(self, work: Work, ended: Ended) -> Entry:
        """What is kept of an item that ended in this launch."""
        first, last = ended.tries[0], ended.tries[-1]
        fields = self.fields(ended.kind, work.row, work.item.key, at=first["at"], seconds=last["seconds"])
        if len(ended.tries) > 1 or ended.kind != "done":
            fields["tries"] = ended.tries[-TRIES_KEPT:]
        if usage := self.purse.spent(work.row):
            fields["usage"] = usage
        if ended.details:
            fields |= ended.details
        if ended.failure is not None:
            fields["error"] = ended.failure.as_json()
        if ended.kind == "failed":
            fields["failed_launches"] = self._failed_launches(work.row)
        if self.job.carry:
            fields["after"] = self.last_seq
            fields["carry"] = ended.carry if ended.carry_set and ended.kind == "done" else self.carry
        return Entry(fields, ended.output if ended.kind == "done" else None)

    def record_of_death(self, row: int, key: str) -> Entry:
        """What is kept of an item that the crash-loop guard sets aside."""
        message = f"the runner died {self.deaths[key]} times while this item was in flight"
        fields = self.fields("failed", row, key)
        fields |= {"error": {"origin": "lost", "message": message}, "failed_launches": 1, "set_aside": True}
        if self.job.carry:
            fields |= {"after": self.last_seq, "carry": self.carry}
        return Entry(fields)

    def record_of_step(self, work: Work, *, name: str, n: int, no: int, seconds: float, output: bytes) -> Entry:
        """What an item is to remember."""
        fields = self.fields("step", work.row, work.item.key, seconds=seconds) | {"name": name, "n": n, "no": no}
        if usage := self.purse.spent(work.row):
            fields["usage"] = usage
        return Entry(fields, output)

    def fields(self, kind: str, row: int, key: str, *, at: float | None = None, seconds: float = 0.0) -> dict[str, Any]:
        """What every record of an item says."""
        ledger = self.ledger
        fields = {
            "kind": kind,
            "key": key,
            "gen": ledger.generations.get(row, 0),
            "index": ledger.positions[row],
            "hash": f"{ledger.contents[row]:016x}",
            "agent": self.agent,
            "launch": self.checkpoint.context["launches"],
            "at": now_seconds() if at is None else at,
            "seconds": seconds,
        }
        if ledger.stamps[row]:
            fields["stamp"] = ledger.stamps[row]
        return fields

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
            fields = unit.entry.fields
            if carries and fields["kind"] not in BESIDE and (unit.slot is not None or unit.row == self.carry_row):
                self.carry, self.last_seq = fields["carry"], self.checkpoint.seq + 1
            if not unit.is_counted:
                self.count(unit.row, fields)

    def count(self, row: int, fields: Mapping[str, Any]) -> None:
        """Where the item stands with this record, which may not be on disk yet."""
        kind = fields["kind"]
        if kind == "step":
            return
        if kind == "answer":
            self.ledger.go_on(row)
        elif kind == "redo":
            self.ledger.redo(row)
            # One that had changed, and was kept, is run as it is now.
            if (content := self.plan.contents_now.pop(row, None)) is not None:
                self.ledger.contents[row] = content
        else:
            self.ledger.settle(row, NO_REF, fields)
        if self.deaths:
            self.deaths.pop(fields["key"], None)
        self.to_retry.discard(row)
        self.suspects.discard(row)
        self.dead.pop(row, None)

    def landed(self, unit: Unit, ref: int) -> None:
        """The unit is on disk."""
        if unit.entry.fields["kind"] in ("step", "answer"):
            self.ledger.remember(unit.row, ref, unit.entry.fields)
        else:
            self.ledger.refs[unit.row] = ref

    def next_checkpoint(self, in_flight: Mapping[int, Work]) -> Checkpoint:
        """The checkpoint with the next seq; `in_flight` is what each slot will be running once it is on disk."""
        checkpoint, ledger = self.checkpoint, self.ledger
        checkpoint.seq += 1
        checkpoint.last_completed, checkpoint.total = ledger.last_completed, len(ledger)
        checkpoint.counts = dict(ledger.counts)
        checkpoint.done, checkpoint.failed, checkpoint.waiting = [r.listed() for r in ledger.ranges.values()]
        checkpoint.running = [
            {"index": work.item.index, "key": work.item.key, "slot": slot} for slot, work in in_flight.items()
        ]
        if self.purse.limits:
            for entry, work in zip(checkpoint.running, in_flight.values(), strict=True):
                entry |= self.purse.reserved(work.row)
        # As it is at this moment, like `running`: what is reported while this is written would be charged twice.
        checkpoint.usage = {**self.purse.usage}
        checkpoint.context["deaths"] = self.deaths
        checkpoint.context["versions"] = ledger.versions
        if self.job.carry:
            checkpoint.context["carry"] = self.carry
        checkpoint.updated_at = now_text()
        return checkpoint
