"""The last lines of a launch: how it ended and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentrun_cli import terminal as console
from agentrun_cli.terminal import clean, coloured

if TYPE_CHECKING:
    from agentrun.money.budget import Totals
    from agentrun.views.jobs import OpenQuestion, Summary


def nothing_lines(summary: Summary, job: str, name: str) -> Iterator[str]:
    """For a start that kept everything: what there is, and the command that runs it again all the same."""
    from agentrun_cli.drawing.plan import began_at

    where = f" → {console.shown_path(summary.output.path)}" if summary.output is not None else ""
    kept = console.counted(summary.kept, "result")
    yield f"{job}: nothing to run, {kept} kept from the run of {began_at(summary.run_id)}{where}"
    if summary.kept_old_agent:
        again = f"agentrun start {name} --rerun old-agent"
        yield f"  by an older agent: {summary.kept_old_agent:,}; to run them again: {again}"
    yield f"  to run everything again: agentrun start {name} --fresh"


def closing_lines(summary: Summary, job: str, name: str, seconds: float) -> Iterator[str]:
    """How it ended, and the commands for what comes next; `name` names the job in them."""
    from agentrun.money.usage import format_cost
    from agentrun.values.units import format_duration
    from agentrun_cli.drawing.plan import last_run

    counts, total, code = summary.counts, summary.total, summary.exit_code
    where = f" → {console.shown_path(summary.output.path)}" if summary.output is not None else ""
    others = "".join(f", {counts[kind]:,} {kind}" for kind in ("failed", "skipped", "waiting") if counts.get(kind))
    if summary.nothing_to_do:
        yield f"{job}: nothing to resume; the last run {last_run(summary)}{where}"
        return
    done = f"{counts.get('done', 0):,} of {total:,}"
    took = f" in {format_duration(seconds)}"
    if code == 0:
        kept = f" ({summary.ran:,} run, {summary.kept:,} kept)" if summary.kept else ""
        yield f"{coloured('done', 'green')}: {done}{others}{kept}{took}{where}"
        yield from _cost_lines(summary.usage)
        if summary.kept and summary.results_cost is not None:
            yield f"  all results:  {format_cost(summary.results_cost)}, in this run and earlier ones"
        yield from _empty_lines(summary, name)
        if counts.get("failed"):
            yield f"  the reasons:  agentrun failures {name}"
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
    yield from _cost_lines(summary.usage)
    yield from _empty_lines(summary, name)
    if counts.get("failed"):
        yield f"  the reasons:  agentrun failures {name}"
    if counts.get("waiting"):
        yield from _question_lines(summary.questions, counts["waiting"], name)
    # Without --failed it would run nothing: every item that is not done has failed, and is left.
    failed = " --failed" if code == 1 and summary.left == counts["failed"] else ""
    flags = f" {summary.flags}" if summary.flags else ""
    label = "the rest:  " if summary.stopped_by == "only" else "to resume:"
    yield f"  {label}    agentrun resume {name}{failed}{flags}"


def _cost_lines(usage: Totals) -> Iterator[str]:
    """What the run has cost so far, over all its launches."""
    from agentrun.money.usage import format_cost, format_tokens

    if usage.cost is None and not usage.tokens:
        return
    parts = [format_cost(usage.cost)] if usage.cost is not None else []
    parts += [format_tokens(usage)] if usage.tokens else []
    lost = f" ({format_cost(usage.lost)} of it lost in crashes)" if usage.lost else ""
    label = "cost:" if usage.cost is not None else "used:"
    yield f"  {label}         {', '.join(parts)}{lost}"


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
