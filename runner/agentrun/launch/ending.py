"""How a launch ends: the run is complete, something is left over, or it was cut short. What is written, and told."""

from __future__ import annotations

from itertools import islice
from typing import Any

from agentrun.checkpoint.ledger import WAITING
from agentrun.checkpoint.summary import summarise
from agentrun.launch.slots import StopReason
from agentrun.outputs.results import write_results
from agentrun.runs.run import Run
from agentrun.store.port import Store
from agentrun.system.disk import Disk, discard

QUESTIONS_TOLD = 5


def complete(run: Run, store: Store, disk: Disk) -> dict[str, Any]:
    """All is settled, and the checkpoint that is on disk says so and where the results go: they are written, the run is
    filed, and its state cleared."""
    output = write_results(run.ledger, store, run.output, disk)
    summary = summarise(run.checkpoint, status="finished") | {"output": output, "exit_code": 0}
    store.finish(summary)
    store.prune()
    if run.partial_output.exists():
        discard(disk, str(run.partial_output))
    return summary


def incomplete(run: Run, store: Store, disk: Disk) -> dict[str, Any]:
    """Nothing is left to run, but some have failed or wait: the results so far are written beside the state."""
    counts = run.ledger.counts
    code, what = (1, "failed") if run.too_many_failed else (3, "waiting")
    write_results(run.ledger, store, run.partial_output, disk)
    return summarise(run.checkpoint, status="stopped") | {
        "exit_code": code,
        "reason": f"{counts[what]} of {len(run.ledger)} items {'failed' if code == 1 else 'wait for a person'}",
        "partial": str(run.partial_output),
        "left": run.left,
        "questions": _questions(run, store),
    }


def cut_short(run: Run, reason: StopReason) -> dict[str, Any]:
    """It stopped with items left to run."""
    return summarise(run.checkpoint, status="stopped") | {
        "exit_code": reason.exit_code,
        "reason": reason.text,
        "hint": reason.hint,
        "flags": reason.flags,
    }


def _questions(run: Run, store: Store) -> list[dict[str, Any]]:
    """The first of those that wait for a person."""
    ledger = run.ledger
    rows = list(islice(ledger.rows_in(WAITING), QUESTIONS_TOLD))
    records = store.read(ledger.refs[row] for row in rows)
    return [
        {"key": record["key"], "index": ledger.positions[row], "text": record.get("question", {}).get("text", "")}
        for row, record in zip(rows, records, strict=True)
    ]
