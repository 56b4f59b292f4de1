"""How a launch ends: the run is complete, something is left over, or it was cut short."""

from __future__ import annotations

from itertools import islice
from shlex import quote

from agentrun.checkpoint.ledger import WAITING
from agentrun.checkpoint.record import Question
from agentrun.checkpoint.summary import OpenQuestion, Status, Summary
from agentrun.launch.slots import StopReason
from agentrun.outputs.claim import Claim, OutputTakenError
from agentrun.outputs.results import result_lines, write_results
from agentrun.runs.books import Books
from agentrun.runs.reuse import count_kept
from agentrun.runs.run import Run
from agentrun.store.port import Store
from agentrun.system.disk import Disk, discard

QUESTIONS_SHOWN = 5


def complete(run: Run, store: Store, disk: Disk, claim: Claim) -> Summary:
    """Write the results, file the run, and clear its state.

    Everything is settled, and the checkpoint on disk says so and where the results go.
    """
    books = Books(run, store)
    output = write_results(books.lines(), run.output, disk, claim.check)
    summary = _summarise(run, "finished")
    summary.output, summary.order = output, run.ledger.order_digest()
    summary.results_cost = books.results_cost
    store.finish(summary)
    store.prune()
    if run.partial_output.exists():
        discard(disk, str(run.partial_output))
    claim.release()
    return summary


def incomplete(run: Run, store: Store, disk: Disk, claim: Claim) -> Summary:
    """Nothing is left to run, but some items have failed or wait: write the results so far beside the output."""
    counts = run.ledger.counts
    code, what = (1, "failed") if run.too_many_failed else (3, "waiting")
    write_results(result_lines(run.ledger, store), run.partial_output, disk, claim.check)
    summary = _summarise(run, "stopped")
    summary.exit_code = code
    summary.reason = f"{counts[what]} of {len(run.ledger)} items {'failed' if code == 1 else 'wait for a person'}"
    summary.partial, summary.left, summary.questions = str(run.partial_output), run.left, _questions(run, store)
    return summary


def taken(run: Run, error: OutputTakenError) -> Summary:
    """Another job has the output: nothing is replaced, and the run stays open."""
    other = run.output.with_name(f"{run.output.stem}.{run.run_id}{run.output.suffix}")
    hint = "its results are complete, and nothing was replaced; write them elsewhere"
    return cut_short(run, StopReason(4, str(error), hint, flags=f"-o {quote(str(other))}"))


def cut_short(run: Run, reason: StopReason) -> Summary:
    """It stopped with items left to run."""
    summary = _summarise(run, "stopped")
    summary.exit_code, summary.reason = reason.exit_code, reason.text
    summary.hint, summary.flags, summary.stopped_by = reason.hint, reason.flags, reason.by
    return summary


def _summarise(run: Run, status: Status) -> Summary:
    summary, kept = Summary.of(run.checkpoint, status=status), count_kept(run)
    summary.ran, summary.kept, summary.kept_old_agent = kept.ran, kept.kept, kept.old_agent
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
