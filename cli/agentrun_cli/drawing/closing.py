"""The last lines of a launch: how it ended and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentrun_cli import terminal as console
from agentrun_cli.terminal import clean, coloured

if TYPE_CHECKING:
    from agentrun.job.job import Job
    from agentrun.money.budget import Totals
    from agentrun.views.jobs import OpenQuestion, Summary
    from agentrun.views.since import Changes


_COMPARED = {"lines": "lines", "jsonl": "records", "csv": "rows", "python": "values"}
"""What is compared of items that may only point at their content."""


def nothing_lines(summary: Summary, job: Job, name: str) -> Iterator[str]:
    """For a start that kept everything: what there is, and the commands that run some or all of it again."""
    from agentrun_cli.drawing.plan import began_at, old_agent_lines

    where = f" → {console.shown_path(summary.output.path)}" if summary.output is not None else ""
    kept = console.counted(summary.kept, "result")
    yield f"{job.name}: nothing to run, {kept} kept from the run of {began_at(summary.run_id)}{where}"
    yield from old_agent_lines(summary.old_agents, name)
    if summary.left:
        yield f"  failed before and left: {summary.left:,}; to retry them: agentrun start {name} --failed"
    if what := _COMPARED.get(job.items.kind):
        yield f"  only the {what} are compared, not what they point to, such as files or pages"
    yield f"  to run everything again: agentrun start {name} --fresh"


def resume_lines(summary: Summary, job: str, name: str, since: Changes | None, problem: str) -> Iterator[str]:
    """For a resume without an unfinished run: when the last one ended, and what a start would run now."""
    from agentrun_cli.drawing.plan import last_run

    where = f" → {console.shown_path(summary.output.path)}" if summary.output is not None else ""
    yield f"{job}: nothing to resume; the last run {last_run(summary)}{where}"
    if since is not None:
        yield f"  since then:   {since_words(since)}"
        if since.to_run or since.gone:
            yield f"  to run them:  agentrun start {name}"
    elif problem:
        yield f"  its items cannot be compared: {clean(problem, limit=1000)}"


def since_words(since: Changes) -> str:
    """How the items differ from those of the last finished run."""
    parts = [f"{count:,} {name}" for name in ("new", "changed", "gone", "failed") if (count := getattr(since, name))]
    parts += [f"{since.other:,} to run again (too old, other params, or files missing)"] if since.other else []
    return ", ".join(parts) or "nothing is new or changed"


def closing_lines(summary: Summary, job: str, name: str, seconds: float) -> Iterator[str]:
    """How it ended, and the commands for what comes next; `name` names the job in them."""
    from agentrun.values.units import format_duration

    counts, total, code = summary.counts, summary.total, summary.exit_code
    where = f" → {console.shown_path(summary.output.path)}" if summary.output is not None else ""
    others = "".join(f", {counts[kind]:,} {kind}" for kind in ("failed", "skipped", "waiting") if counts.get(kind))
    done = f"{counts.get('done', 0):,} of {total:,}"
    took = f" in {format_duration(seconds)}"
    if code == 0:
        yield f"{coloured('done', 'green')}: {done}{others}{took}{where}"
        if summary.kept:
            yield f"  {kept_words(summary)}"
        if not summary.kept or summary.usage.tokens or summary.usage.lost or summary.usage.may_be_lost:
            yield from _cost_lines(summary.usage)
        yield from _look_lines(summary, name)
        yield from _empty_lines(summary, name)
        if counts.get("failed"):
            yield f"  to retry:     agentrun start {name}"
        return
    if code in (1, 3):
        yield f"{job}: {coloured(f'{done} done{others}', 'yellow')}{took}"
        if summary.partial:
            yield f"  so far:       {console.shown_path(summary.partial)}"
    else:
        reason = clean(summary.reason or "stopped", limit=1000)
        yield f"{job}: {coloured(reason, 'yellow')}"
        if summary.hint:
            yield f"  {clean(summary.hint)}"
        yield f"  so far:       {done} done{others}{took}; all of it is kept"
    if summary.estimate is not None:
        from agentrun_cli.drawing.estimate import estimate_lines

        yield from estimate_lines(summary.estimate)
    yield from _cost_lines(summary.usage)
    yield from _empty_lines(summary, name)
    yield from _look_lines(summary, name)
    if counts.get("waiting"):
        yield from _question_lines(summary.questions, counts["waiting"], name)
    # Without --failed it would run nothing: every item that is not done has failed, and is left.
    failed = " --failed" if code == 1 and summary.left == counts["failed"] else ""
    flags = f" {summary.flags}" if summary.flags else ""
    label = "the rest: " if summary.stopped_by in ("only", "pilot") else "to resume:"
    yield f"  {label}    agentrun resume {name}{failed}{flags}"
    if code == 1:
        yield f"  without them: agentrun skip {name} --failed"
        yield f"            or: agentrun resume {name} --allow-failures {counts['failed']}"


def _look_lines(summary: Summary, name: str) -> Iterator[str]:
    """The commands that show what there is; where the results are in a file, its name is shown already."""
    if summary.counts.get("done") and summary.output is None and not summary.partial:
        yield f"  to look:      agentrun results {name}"
    if summary.counts.get("failed"):
        yield f"  the reasons:  agentrun failures {name}"


def kept_words(summary: Summary) -> str:
    """For a run that kept results of earlier ones: how many it ran itself, and what these and all of them cost."""
    from agentrun.money.usage import format_cost

    words = f"{summary.ran:,} run, {summary.kept:,} kept"
    if summary.results_cost is None:
        return words
    here, all_ = format_cost(summary.usage.cost or 0.0), format_cost(summary.results_cost)
    return f"{words}; {here} this run, {all_} for all results"


def _cost_lines(usage: Totals) -> Iterator[str]:
    """What the run has cost so far, over all its launches."""
    from agentrun.money.budget import lost_words
    from agentrun.money.usage import format_cost, format_tokens

    if usage.cost is None and not usage.tokens:
        return
    parts = [format_cost(usage.cost)] if usage.cost is not None else []
    parts += [format_tokens(usage)] if usage.tokens else []
    lost = lost_words(usage.as_json())
    label = "cost:" if usage.cost is not None else "used:"
    yield f"  {label}         {', '.join(parts)}{f' ({lost})' if lost else ''}"


def _empty_lines(summary: Summary, name: str) -> Iterator[str]:
    if summary.empty:
        what = "1 output is empty" if summary.empty == 1 else f"{summary.empty:,} outputs are empty"
        yield f"  empty:        {what}: agentrun items {name} --empty"


def _question_lines(questions: list[OpenQuestion], waiting: int, name: str) -> Iterator[str]:
    """The questions, each with the command that answers it."""
    from agentrun.people.selecting import words_for

    for one in questions:
        yield f"  {coloured('asks', 'yellow')}  {clean(one.key, limit=120)}: {clean(one.text, limit=300)}"
        yield f"        agentrun answer {name} {words_for(one.key, one.index)} --yes"
    if questions and waiting > len(questions):
        yield f"        and {waiting - len(questions):,} more"
    yield f"  answer with:  agentrun review {name}"
