"""How a launch ends: the run is complete, something is left over, or it was cut short."""

from __future__ import annotations

import asyncio
from itertools import islice
from shlex import quote

from agentrun.agents.loading import RUN_IT_AGAIN, is_held_by_script
from agentrun.checkpoint.checkpoint import Stopped
from agentrun.checkpoint.ledger import WAITING
from agentrun.checkpoint.record import Question
from agentrun.checkpoint.summary import OpenQuestion, Status, Summary
from agentrun.errors import AgentrunError, LaterError
from agentrun.job.job import Job
from agentrun.launch.stopping import StopReason
from agentrun.outputs.claim import Claim, OutputTakenError
from agentrun.outputs.output import Output
from agentrun.outputs.results import done_results
from agentrun.runs.books import Books
from agentrun.runs.reuse import count_kept
from agentrun.runs.run import Run
from agentrun.store.port import Store
from agentrun.system.disk import Disk
from agentrun.system.shortage import lacking
from agentrun.values.clock import now_text

QUESTIONS_SHOWN = 5
OUR_BUG, CANCELLED = 70, 130


def complete(run: Run, store: Store, output: Output, disk: Disk, claim: Claim) -> Summary:
    """Write the results, file the run, and clear its state.

    Everything is settled, and the checkpoint on disk says so and where the results go.
    """
    books = Books(run, store)
    written = output.write(books.results, disk, claim.check)
    summary = _summarise(run, "finished")
    summary.output, summary.order = written, run.ledger.order_digest()
    summary.gone = [digest.hex() for digest in run.ledger.gone()]
    summary.results_cost = books.results_cost
    store.finish(summary)
    store.prune()
    output.drop_partial(disk)
    claim.release()
    return summary


def incomplete(run: Run, store: Store, output: Output, disk: Disk, claim: Claim) -> Summary:
    """Nothing is left to run, but some items have failed or wait: write the results so far."""
    output.write_partial(lambda: done_results(run.ledger, store), disk, claim.check)
    summary, reason = _summarise(run, "stopped"), _left_over(run)
    summary.exit_code, summary.reason = reason.exit_code, reason.text
    summary.partial, summary.left, summary.questions = str(output.partial), run.left, _questions(run, store)
    return summary


def taken(run: Run, error: OutputTakenError) -> StopReason:
    """Another job has the output: nothing is replaced, and the run stays open."""
    other = run.output.with_name(f"{run.output.stem}.{run.run_id}{run.output.suffix}")
    if names := run.job.output_template.names(run_id=run.run_id, date=run.context.date):
        other = other / names
    hint = "its results are complete, and nothing was replaced; write them elsewhere"
    return StopReason(4, str(error), hint, flags=f"-o {quote(str(other))}")


def cut_short(run: Run, reason: StopReason) -> Summary:
    """It stopped with items left to run."""
    summary = _summarise(run, "stopped")
    summary.exit_code, summary.reason = reason.exit_code, reason.text
    summary.hint, summary.flags, summary.stopped_by = reason.hint, reason.flags, reason.by
    summary.resume_at = reason.resume_at
    return summary


def how_it_stopped(run: Run, reason: StopReason | None, error: BaseException | None = None) -> Stopped | None:
    """What the last checkpoint of a launch says of its end; None if the run is complete, and is about to be filed."""
    if error is not None:
        reason = _broken_off(error)
    elif reason is None:
        if run.is_complete:
            return None
        reason = _left_over(run)
    return Stopped(
        at=now_text(),
        reason=reason.text,
        exit_code=reason.exit_code,
        hint=reason.hint,
        resume_at=reason.resume_at,
        waits_for=reason.waits_for,
        flags=reason.flags,
        by=reason.by,
        next=_next_command(run.job, reason),
    )


def _left_over(run: Run) -> StopReason:
    """Everything was run, but the run is not complete."""
    counts, total = run.ledger.counts, len(run.ledger)
    if not run.too_many_failed:
        return StopReason(3, f"{counts['waiting']} of {total} items wait for a person")
    # Without it, the next launch would leave all of them alone.
    flags = "--failed" if run.left == counts["failed"] else ""
    return StopReason(1, f"{counts['failed']} of {total} items failed", flags=flags)


def _broken_off(error: BaseException) -> StopReason:
    """An error ended the launch, while the disk still works."""
    if isinstance(error, AgentrunError):
        return StopReason(error.exit_code, error.message)
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return StopReason(CANCELLED, "cancelled")
    if (lack := lacking(error)) is not None:
        return StopReason(LaterError.exit_code, lack)
    return StopReason(OUR_BUG, f"{type(error).__name__}: {error}")


def _next_command(job: Job, reason: StopReason) -> str:
    if job.agent and is_held_by_script(job.agent):
        return RUN_IT_AGAIN
    command = "review" if reason.exit_code == 3 else "resume"
    return f"agentrun {command} {quote(job.name)} {reason.flags}".rstrip()


def _summarise(run: Run, status: Status) -> Summary:
    summary, kept = Summary.of(run.checkpoint, status=status), count_kept(run)
    summary.ran, summary.kept = kept.ran, kept.kept
    summary.kept_old_agent, summary.old_agents = kept.old_agent, dict(kept.old_agents)
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
