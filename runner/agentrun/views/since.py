"""What the next start would find new, changed or gone since the last finished run, without loading the agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary, checkpoint_after, last_finished, next_number
from agentrun.job.options import Options
from agentrun.outputs.workspace import Workspace
from agentrun.runs.places import place_of
from agentrun.runs.recovery import open_items, recover
from agentrun.store.port import Posted, Reader, Store

if TYPE_CHECKING:
    from agentrun.job.job import Job


@dataclass(frozen=True, slots=True)
class Changes:
    """How many items differ from those of a finished run."""

    new: int = 0
    changed: int = 0
    gone: int = 0
    failed: int = 0
    """Failed then, and tried again by the next start."""
    other: int = 0
    """Unchanged, but run again: older than max_age, made with other params, or their files are missing."""

    @property
    def to_run(self) -> int:
        """How many items the next start would run."""
        return self.new + self.changed + self.failed + self.other

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"to_run": self.to_run}


def changes_since(store: Store, job: Job) -> Changes | None:
    """What has changed since the newest finished run; None if there is none, or its items were not kept.

    As if the agent were the same: what its change means is for the plan to say. A source that cannot be read raises.
    """
    with store.reader() as reader:
        finished = last_finished(reader.summaries)
        if reader.checkpoint is not None or finished is None:
            return None
    with store.reader(run_id=finished.run_id) as reader:
        return _compare(store, job, reader, finished)


def _compare(store: Store, job: Job, reader: Reader, finished: Summary) -> Changes | None:
    checkpoint = checkpoint_after(finished, number=next_number(reader.summaries))
    spool = Workspace(store).spool(checkpoint.context.spool) if checkpoint.context.spool else None
    source = open_items(job, checkpoint, ended=reader.summaries, folder=store.folder, spool=spool)
    if source is None:
        return None
    run = recover(
        _Unposted(reader),
        job,
        source,
        checkpoint,
        agent=finished.agent or "",
        options=Options(allow_gone=True, adopt=True),
        finished=finished,
        place=place_of(job, store),
    )
    plan = run.plan
    other = plan.to_run - plan.run - plan.changed - plan.failed
    return Changes(plan.run, plan.changed, plan.gone, plan.failed, other)


class _Unposted:
    """The records of a run without what people posted about it since, which is shown apart."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def scan(self) -> Iterator[tuple[int, Record]]:
        return self._reader.scan()

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        return self._reader.read(refs)

    def inbox(self) -> list[Posted]:
        return []
