"""Checkpoints, records, summaries and messages for tests of stores."""

from __future__ import annotations

from typing import Any

import orjson
from msgspec import Raw

from agentrun.agents.failure import Failure
from agentrun.agents.messages import Answer
from agentrun.checkpoint.checkpoint import Checkpoint, RunContext, Running
from agentrun.checkpoint.message import AnswerMessage, EditMessage, RedoMessage, Reply, SkipMessage
from agentrun.checkpoint.record import Kind, Question, Record, Try
from agentrun.checkpoint.summary import Status, Summary
from agentrun.store.port import Store

RUN = "20260504T220311-0a2f19f3a1c"
LATER_RUN = "20260505T220311-0a2f19f3a1c"


def checkpoint(seq: int, *, run_id: str = RUN, **more: Any) -> Checkpoint:
    """The checkpoint of the commit `seq`; further fields by name."""
    values = {"context": context(), "started_at": "2026-05-04T22:03:11.000Z", **more}
    return Checkpoint(job="triage", run_id=run_id, seq=seq, **values)


def context(**more: Any) -> RunContext:
    return RunContext(launches=more.pop("launches", 1), date="2026-05-04", **more)


def full_checkpoint(seq: int) -> Checkpoint:
    """A checkpoint that says something in every field."""
    return checkpoint(
        seq,
        last_completed=2,
        total=9,
        counts={"pending": 3, "done": 4, "failed": 1, "skipped": 0, "waiting": 1},
        done=[[0, 2], [5, 5]],
        failed=[[3, 3]],
        waiting=[[4, 4]],
        running=[Running(index=6, key="k6", slot=1, reserved=0.25), Running(index=7, key='k"7\n')],
        context=context(
            identity={"items": "files:*.txt", "params": {"customer": "acmé"}},
            agent="v1",
            kept={"run": {"retries": 0}},
            deaths={"k6": 2},
            versions={"v1": 4},
            budget=1.5,
            carry={"sum": [1, None, "\u2028"]},
        ),
        updated_at="2026-05-04T22:04:11.000Z",
    )


def record(key: str, output: Any = "x" * 40, *, kind: Kind = "done", **more: Any) -> Record:
    """A record of the item `key`, with a value or JSON text as its output; further fields by name."""
    values = {"gen": 0, "index": 0, "hash": "0" * 16, "agent": "v1", "launch": 1, "at": 1.5, "seconds": 0.25, **more}
    if kind in ("done", "step"):
        values["output"] = output if isinstance(output, Raw) else Raw(orjson.dumps(output))
    return Record(kind=kind, key=key, **values)


def records_of_every_kind() -> list[Record]:
    failure = Failure("exception", "no such page", ("agentrun.errors.Fail",))
    tries = [Try(launch=1, number=1, at=1.5, seconds=0.25, cause="Fail: no such page")]
    return [
        record("done", {"é": "\u2028", "n": [2**63, -1.5, None, True]}),
        record("null", None),
        record("failed", kind="failed", error=failure, tries=tries, failed_launches=2),
        record("skipped", kind="skipped", error=failure),
        record("waiting", kind="waiting", question=Question(n=2, text="Send?", details={"draft": "a\nb"}, at="2026")),
        record("waiting", kind="answer", question=2, asked="Send?", answer=Answer(yes=False, text="no", by="ada")),
        record("step", ["found"], kind="step", name="search", n=1, no=4),
        record("done", kind="redo", by="ada", id="0" * 16),
        record('a "quoted"\nkey\\', "", gen=3, index=2**32 - 2, carry={"n": 1}, after=0, stamp=2**64 - 1),
    ]


def summary(run_id: str = RUN, *, status: Status = "finished", **more: Any) -> Summary:
    return Summary(job="triage", run_id=run_id, status=status, **more)


def _about(key: str, more: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "id": "0" * 16, "run_id": RUN, "key": key, "gen": 0, "by": "ada", "at": "2026", **more}


def answer(key: str, **more: Any) -> AnswerMessage:
    return AnswerMessage(**_about(key, {"question": 1, "answer": Reply(yes=True, text="", details={}), **more}))


def redo(key: str, **more: Any) -> RedoMessage:
    return RedoMessage(**_about(key, {"keep_before": None, "now": False, **more}))


def edit(key: str, output: Any = "better", **more: Any) -> EditMessage:
    return EditMessage(**_about(key, {"seq": 1, "output": Raw(orjson.dumps(output)), **more}))


def skip(key: str, **more: Any) -> SkipMessage:
    return SkipMessage(**_about(key, {"reason": "a duplicate", **more}))


def keys(store: Store) -> list[str]:
    """The keys of the loaded run's records, oldest first."""
    return [found.key for _, found in store.scan()]


def end_run(store: Store, run_id: str = RUN, names: str = "abc") -> None:
    """A whole run: a commit for each name, and the finish. The store has no unfinished run."""
    for seq, name in enumerate(names, 1):
        store.commit(checkpoint(seq, run_id=run_id), [record(name, {"n": seq})])
    if not names:
        store.commit(checkpoint(1, run_id=run_id))
    store.finish(summary(run_id))


def reopen(store: Store, run_id: str = RUN) -> Checkpoint:
    """Begin a new run with all records of one that ended. The checkpoint is that of the commit before its first."""
    with store.reader(run_id=run_id) as reader:
        records = [one for _, one in reader.records()]
    seq = max((one.seq for one in records), default=0)
    store.reopen(records, seq=seq)
    return checkpoint(seq, run_id=LATER_RUN, context=context(launches=0, from_run=run_id))
