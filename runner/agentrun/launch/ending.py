"""How a launch ends: the run is complete, something is left over, or it was cut short."""

from __future__ import annotations

from itertools import islice

from agentrun.checkpoint.ledger import WAITING
from agentrun.checkpoint.record import Question
from agentrun.checkpoint.summary import OpenQuestion, Summary
from agentrun.launch.slots import StopReason
from agentrun.outputs.results import write_results
from agentrun.runs.run import Run
from agentrun.store.port import Store
from agentrun.system.disk import Disk, discard

QUESTIONS_SHOWN = 5


def complete(run: Run, store: Store, disk: Disk) -> Summary:
    """Write the results, file the run, and clear its state.

    Everything is settled, and the checkpoint on disk says so and where the results go.
    """
    output = write_results(run.ledger, store, run.output, disk)
    summary = Summary.of(run.checkpoint, status="finished")
    summary.output = output
    store.finish(summary)
    store.prune()
    if run.partial_output.exists():
        discard(disk, str(run.partial_output))
    return summary


def incomplete(run: Run, store: Store, disk: Disk) -> Summary:
    """Nothing is left to run, but some items have failed or wait: write the results so far beside the output."""
    counts = run.ledger.counts
    code, what = (1, "failed") if run.too_many_failed else (3, "waiting")
    write_results(run.ledger, store, run.partial_output, disk)
    summary = Summary.of(run.checkpoint, status="stopped")
    summary.exit_code = code
    summary.reason = f"{counts[what]} of {len(run.ledger)} items {'failed' if code == 1 else 'wait for a person'}"
    summary.partial, summary.left, summary.questions = str(run.partial_output), run.left, _questions(run, store)
    return summary


def cut_short(run: Run, reason: StopReason) -> Summary:
    """It stopped with items left to run."""
    summary = Summary.of(run.checkpoint, status="stopped")
    summary.exit_code, summary.reason = reason.exit_code, reason.text
    summary.hint, summary.flags = reason.hint, reason.flags
    return summary


def _questions(run: Run, store: Store) -> list[OpenQuestion]:
    """The first of the items that wait for a person."""
    ledger = run.ledger
    rows = list(islice(ledger.rows_in(WAITING), QUESTIONS_SHOWN))
    records = store.read(ledger.refs[row] for row in rows)
    return [
        OpenQuestion(record.key, ledger.positions[row], record.question.text)
        for row, record in zip(rows, records, strict=True)
        if isinstance(record.question, Question)
    ]
