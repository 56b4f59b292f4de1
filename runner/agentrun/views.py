"""What a job's folder says, read without its lock and while a runner may be at work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from agentrun.checkpoint import Checkpoint, decode_checkpoint
from agentrun.clock import age_seconds
from agentrun.errors import CheckpointError
from agentrun.store.port import Holder

Status = Literal["running", "interrupted", "waiting", "failed", "finished", "damaged", "new"]
READ_AGAIN = 20


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at a glance."""

    job: str
    status: Status
    folder: Path
    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    last_completed: int = -1
    run_id: str = ""
    launches: int = 0
    seq: int = 0
    started_at: str = ""
    updated_at: str = ""
    """The last checkpoint, or the end of a finished run."""
    age_seconds: float = 0.0
    holder: Holder | None = None
    agent: str = ""
    versions: dict[str, int] = field(default_factory=dict)
    """How many done items are of which version of the agent."""
    cost: float | None = None
    output: str | None = None
    running: list[dict[str, Any]] = field(default_factory=list)
    failed: list[list[int]] = field(default_factory=list)
    waiting: list[list[int]] = field(default_factory=list)
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def read_job_view(folder: Path) -> JobView:
    """Never raises for what is on disk: a damaged state is a status too."""
    name = folder.name
    try:
        checkpoint = read_checkpoint(folder)
    except CheckpointError as error:
        return JobView(name, "damaged", folder, problem=error.message)
    ended = read_summaries(folder)
    if checkpoint is None or (ended and ended[0].get("run_id") == checkpoint.run_id):
        return _of_summary(folder, ended[0]) if ended else JobView(name, "new", folder)
    holder = live_holder(folder)
    counts = dict(checkpoint.counts)
    status: Status = "interrupted"
    if holder is not None:
        status = "running"
    elif not counts.get("pending"):
        status = "waiting" if counts.get("waiting") else "failed"
    return JobView(
        job=checkpoint.job,
        status=status,
        folder=folder,
        total=checkpoint.total,
        counts=counts,
        last_completed=checkpoint.last_completed,
        run_id=checkpoint.run_id,
        launches=checkpoint.context.get("launches", 0),
        seq=checkpoint.seq,
        started_at=checkpoint.started_at,
        updated_at=checkpoint.updated_at,
        age_seconds=age_seconds(checkpoint.updated_at),
        holder=holder,
        agent=checkpoint.context.get("agent", ""),
        versions=checkpoint.context.get("versions", {}),
        cost=checkpoint.usage.get("cost"),
        running=checkpoint.running if holder else [],
        failed=checkpoint.failed,
        waiting=checkpoint.waiting,
    )


def _of_summary(folder: Path, summary: dict[str, Any]) -> JobView:
    output = summary.get("output")
    ended_at = str(summary.get("ended_at", ""))
    return JobView(
        job=str(summary.get("job", folder.name)),
        status="finished" if summary.get("status") == "finished" else "interrupted",
        folder=folder,
        total=summary.get("total", 0),
        counts=summary.get("counts", {}),
        last_completed=summary.get("total", 0) - 1,
        run_id=str(summary.get("run_id", "")),
        launches=summary.get("launches", 0),
        started_at=str(summary.get("started_at", "")),
        updated_at=ended_at,
        age_seconds=age_seconds(ended_at),
        agent=summary.get("agent") or "",
        versions=summary.get("versions", {}),
        cost=summary.get("usage", {}).get("cost"),
        output=output.get("path") if isinstance(output, dict) else None,
    )


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """state.json as it is now, or None."""
    path = folder / "state.json"
    try:
        return decode_checkpoint(path.read_bytes(), where=str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None


def read_summaries(folder: Path) -> list[dict[str, Any]]:
    """Of the runs that ended, newest first."""
    found = []
    for path in sorted((folder / "runs").glob("*.json"), reverse=True):
        try:
            found.append(orjson.loads(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return [summary for summary in found if isinstance(summary, dict)]


def live_holder(folder: Path) -> Holder | None:
    """Who is at work on the job, if somebody is."""
    from agentrun.processes import is_alive
    from agentrun.store.lock import read_holder

    holder = read_holder(folder / "lock")
    if holder is None or not is_alive(holder.pid, holder.host, holder.started):
        return None
    return holder


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item: its state and its newest record, if it has one."""

    index: int
    key: str
    state: str
    record: dict[str, Any] | None = None

    @property
    def seconds(self) -> float:
        return float(self.record.get("seconds", 0.0)) if self.record else 0.0

    @property
    def attempts(self) -> int:
        if self.record is None:
            return 0
        tries = self.record.get("tries")
        return len(tries) if tries else 1

    @property
    def at(self) -> float:
        """When its first attempt began, in seconds since the epoch."""
        return float(self.record.get("at", 0.0)) if self.record else 0.0

    @property
    def agent(self) -> str:
        return str(self.record.get("agent", "")) if self.record else ""

    @property
    def cause(self) -> str:
        from agentrun.failure import Failure

        error = self.record.get("error") if self.record else None
        return Failure.from_json(error).cause if error else ""


def read_items(folder: Path, job: Any = None) -> Iterator[ItemView]:
    """The items of the current run, or of the last one that finished, in item order.

    With the job, items without a record are there too, and the order is that of the source now.
    """
    for attempt in range(READ_AGAIN):
        try:
            checkpoint = read_checkpoint(folder)
            if checkpoint is None:
                yield from _finished_items(folder)
            elif job is None:
                yield from _recorded_items(folder)
            else:
                yield from _listed_items(folder, job)
            return
        except _Moved:
            # A runner compacted the journal or finished the run between two reads.
            if attempt == READ_AGAIN - 1:
                raise CheckpointError(f"{folder}: changes faster than it can be read; try again") from None


class _Moved(Exception):
    pass


def _records(folder: Path) -> dict[str, dict[str, Any]]:
    from agentrun.store.folder import FolderStore

    store = FolderStore(folder)
    try:
        if store.load().checkpoint is None:
            raise _Moved
        newest = {record["key"]: record for _, record in store.scan()}
    except CheckpointError as error:
        current = read_checkpoint(folder)
        if current is None or not (folder / current.journal_name).exists() and current.journal_length:
            raise _Moved from None
        raise error
    return newest


def _recorded_items(folder: Path) -> Iterator[ItemView]:
    for record in sorted(_records(folder).values(), key=lambda record: int(record["index"])):
        yield ItemView(record["index"], record["key"], record["kind"], record)


def _listed_items(folder: Path, job: Any) -> Iterator[ItemView]:
    from agentrun.item import key_digest
    from agentrun.plan import RepeatedKeys
    from agentrun.sources import open_source

    records = _records(folder)
    checkpoint = read_checkpoint(folder)
    if checkpoint is None:
        raise _Moved
    context = checkpoint.context
    spool = folder / context["spool"] if context.get("spool") else None
    exclude = [
        job.output_path(run_id=checkpoint.run_id, date=context.get("date", "")),
        job.partial_path(run_id=checkpoint.run_id, date=context.get("date", "")),
    ]
    running = {item["key"] for item in checkpoint.running} if live_holder(folder) else set()
    source = open_source(job.items, job.base, exclude=exclude, spool=spool)
    repeats = RepeatedKeys()
    seen: set[bytes] = set()
    for index, raw in enumerate(source):
        key = source.identify(raw).key
        digest = key_digest(key)
        if digest in seen:
            key, digest = repeats.next_free(key, lambda one: one not in seen)
        seen.add(digest)
        record = records.get(key)
        state = "running" if key in running else record["kind"] if record else "pending"
        yield ItemView(index, key, state, record)


def _finished_items(folder: Path) -> Iterator[ItemView]:
    from agentrun.record import decode_record

    ended = read_summaries(folder)
    if not ended:
        return
    path = folder / "runs" / f"{ended[0].get('run_id')}.jsonl"
    try:
        with path.open("rb") as file:
            newest = {record["key"]: record for record in (decode_record(line[:-1]) for line in file)}
    except FileNotFoundError:
        return
    for record in sorted(newest.values(), key=lambda record: int(record["index"])):
        yield ItemView(record["index"], record["key"], record["kind"], record)
