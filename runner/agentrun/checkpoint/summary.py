"""The beginning and the end of a run: its first checkpoint, and the summary kept of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from agentrun.checkpoint.checkpoint import Checkpoint, RunContext, SpoolName
from agentrun.job.output import OutputForm
from agentrun.money.budget import Totals
from agentrun.money.estimate import Estimate
from agentrun.values.clock import new_run_id, now_text

if TYPE_CHECKING:
    from agentrun.job.job import Job

Status = Literal["finished", "stopped", "abandoned"]


class WrittenOutput(Struct, omit_defaults=True):
    """The results as a run wrote them, to recognise them later."""

    path: str
    """The file; or the folder, if each item has a file."""
    bytes: int
    sha256: str
    """Of a folder: the hash of its list, without what was there before."""
    form: OutputForm = "jsonl"
    names: str = ""
    """Of a folder: the template of the files' names."""
    listed: str = ""
    """Of a folder: the name of the list of files, which the store keeps."""


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
    number: int = 0
    """Which run of the job it is; 0 in summaries of versions that did not number runs."""
    series: str = ""
    """The id of the first run of its series; empty if that is this run."""
    first: int = 0
    """The number of that run."""
    status: Status = "stopped"
    total: int = 0
    counts: dict[str, int] = {}
    ran: int = 0
    """How many items this run settled itself."""
    kept: int = 0
    """How many results are kept from earlier runs of the series."""
    kept_old_agent: int = 0
    """Of those kept: how many an older version of the agent made, and nobody has edited."""
    old_agents: dict[str, int] = {}
    """Of those: how many each version made."""
    empty: int = 0
    """How many results are empty."""
    results_cost: float | None = None
    """What all results cost, in whichever run; None if no cost was reported."""
    launches: int = 0
    agent: str | None = None
    versions: dict[str, int] = {}
    usage: Totals = msgspec.field(default_factory=Totals)
    budget: float | None = None
    token_budget: int | None = None
    started_at: str = ""
    ended_at: str = ""
    date: str = ""
    """The local date of its start, for the name of its output."""
    identity: dict[str, Any] = {}
    """`Job.identity` of its last launch."""
    place: str = ""
    """The job's folder as seen from its state."""
    spool: SpoolName | None = None
    """The name under which items from outside are kept."""
    order: str = ""
    """A digest of the items' keys in their order."""
    gone: list[str] = []
    """Digests of the keys of finished items that were gone when the run ended: its records still have them."""
    output: WrittenOutput | None = None
    exit_code: int = 0
    nothing_to_do: bool = False
    reason: str = ""
    hint: str = ""
    """What to do about the reason."""
    flags: str = ""
    """The flags that the command to continue needs."""
    resume_at: str = ""
    """When the reason is expected to have passed, if that is known: a launch before that ends at once."""
    stopped_by: str = ""
    """The limit that stopped it: budget, failures, limit, only, pilot, until or max_time; empty for other
    reasons."""
    estimate: Estimate | None = None
    """After a pilot: what the rest will take."""
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
            number=context.number,
            series=context.series,
            first=context.first,
            status=status,
            total=checkpoint.total,
            counts=dict(checkpoint.counts),
            empty=context.empty,
            launches=context.launches,
            agent=context.agent or None,
            versions=dict(context.versions),
            usage=msgspec.structs.replace(checkpoint.usage),
            budget=context.budget,
            token_budget=context.token_budget,
            started_at=checkpoint.started_at,
            ended_at=now_text(),
            date=context.date,
            identity=dict(context.identity),
            place=context.place,
            spool=context.spool,
        )

    @property
    def is_finished(self) -> bool:
        return self.status == "finished"

    @property
    def age(self) -> tuple[int, str]:
        """What runs are ordered by: their numbers; of those without one, the time in their ids."""
        return self.number, self.run_id

    def as_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {**msgspec.to_builtins(self), "usage": self.usage.as_json()}
        # For the next run alone, and perhaps long.
        del values["gone"]
        return values


_decode = msgspec.json.Decoder(Summary).decode


def encode_summary(summary: Summary) -> bytes:
    return msgspec.json.format(msgspec.json.encode(summary), indent=2)


def decode_summary(text: bytes) -> Summary | None:
    """None if the text is not a summary."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):  # msgspec's own errors, and those of text that is not UTF-8
        return None


def last_finished(ended: Iterable[Summary]) -> Summary | None:
    """The newest run that was completed; `ended` is newest first."""
    return next((one for one in ended if one.is_finished), None)


def next_number(ended: Iterable[Summary], unfinished: Checkpoint | None = None) -> int:
    """The number of the job's next run."""
    numbers = [one.number for one in ended]
    return max([*numbers, unfinished.context.number if unfinished is not None else 0]) + 1


def first_checkpoint(job: Job, *, number: int) -> Checkpoint:
    """The checkpoint of a run that begins a series, before its first launch."""
    checkpoint = _new(job.name, number)
    checkpoint.context.first = number
    return checkpoint


def checkpoint_after(finished: Summary, *, number: int) -> Checkpoint:
    """The checkpoint of a run that continues the series of a finished one, before its first launch."""
    checkpoint = _new(finished.job, number)
    context = checkpoint.context
    context.series, context.from_run = finished.series or finished.run_id, finished.run_id
    context.first = finished.first
    context.spool = finished.spool
    context.files_from = finished.output.path if finished.output is not None else ""
    return checkpoint


def _new(job: str, number: int) -> Checkpoint:
    # Local: it is the date that people expect in the name of tonight's output.
    context = RunContext(launches=0, date=datetime.now().astimezone().date().isoformat(), number=number)
    return Checkpoint(job=job, run_id=new_run_id(), started_at=now_text(), context=context)
