"""The beginning and the end of a run: its first checkpoint, and the summary kept of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from agentrun.checkpoint.checkpoint import Checkpoint, RunContext
from agentrun.money.budget import Totals
from agentrun.values.clock import new_run_id, now_text

if TYPE_CHECKING:
    from agentrun.job.job import Job

Status = Literal["finished", "stopped", "abandoned"]


class WrittenOutput(Struct):
    """The results file as a run wrote it, to recognise it later."""

    path: str
    bytes: int
    sha256: str


class OpenQuestion(Struct):
    """An item that waits for a person, and what it asks."""

    key: str
    index: int
    text: str


class Summary(Struct, kw_only=True):
    """How a launch ended, and what is kept of a run that has ended."""

    version: int = 1
    job: str = ""
    run_id: str
    status: Status = "stopped"
    total: int = 0
    counts: dict[str, int] = {}
    launches: int = 0
    agent: str | None = None
    versions: dict[str, int] = {}
    usage: Totals = msgspec.field(default_factory=Totals)
    budget: float | None = None
    token_budget: int | None = None
    started_at: str = ""
    ended_at: str = ""
    output: WrittenOutput | None = None
    exit_code: int = 0
    nothing_to_do: bool = False
    reason: str = ""
    hint: str = ""
    """What to do about the reason."""
    flags: str = ""
    """The flags that the command to continue needs."""
    partial: str = ""
    """Where the results so far were written."""
    left: int = 0
    """How many failed items the next launch will leave alone."""
    questions: list[OpenQuestion] = []
    journal: str = ""
    journal_length: int = 0

    @classmethod
    def of(cls, checkpoint: Checkpoint, *, status: Status) -> Summary:
        context = checkpoint.context
        return cls(
            job=checkpoint.job,
            run_id=checkpoint.run_id,
            status=status,
            total=checkpoint.total,
            counts=dict(checkpoint.counts),
            launches=context.launches,
            agent=context.agent or None,
            versions=dict(context.versions),
            usage=msgspec.structs.replace(checkpoint.usage),
            budget=context.budget,
            token_budget=context.token_budget,
            started_at=checkpoint.started_at,
            ended_at=now_text(),
        )

    @property
    def is_finished(self) -> bool:
        return self.status == "finished"

    def as_json(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "usage": self.usage.as_json()}


_decode = msgspec.json.Decoder(Summary).decode


def encode_summary(summary: Summary) -> bytes:
    return msgspec.json.format(msgspec.json.encode(summary), indent=2)


def decode_summary(text: bytes) -> Summary | None:
    """None if the text is not a summary."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def first_checkpoint(job: Job) -> Checkpoint:
    """The checkpoint of a new run, before its first launch."""
    return _new(job.name)


def checkpoint_from(summary: Summary, *, seq: int) -> Checkpoint:
    """A new run that begins with the records of the finished one in `summary`; `seq` is the highest among them."""
    checkpoint = _new(summary.job)
    checkpoint.seq, checkpoint.context.from_run = seq, summary.run_id
    return checkpoint


def _new(job: str) -> Checkpoint:
    # Local: it is the date that people expect in the name of tonight's output.
    context = RunContext(launches=0, date=datetime.now().astimezone().date().isoformat())
    return Checkpoint(job=job, run_id=new_run_id(), started_at=now_text(), context=context)
