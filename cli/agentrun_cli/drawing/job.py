"""One job in detail, for `status JOB`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agentrun_cli import flags
from agentrun_cli.drawing.table import JOB_COLOURS
from agentrun_cli.terminal import ago, clean, coloured, counted, shown_path

if TYPE_CHECKING:
    from pathlib import Path

    from agentrun.views.finding import KnownJob
    from agentrun.views.jobs import JobView


_RANGES_SHOWN = 12


def job_lines(view: JobView, known: KnownJob, *, output: Path | str | None, state_dir: str | None) -> Iterator[str]:
    """How the job is doing, and the command that continues it. `output`: where its results are or will be."""
    state = coloured(view.status, JOB_COLOURS.get(view.status), sys.__stdout__)
    if view.status == "damaged":
        yield f"{clean(view.job)}: {state}"
        yield f"  {clean(flags.shorten_hints(view.problem), limit=2000)}"
        return
    if view.status == "new":
        yield f"{clean(view.job)}: has not run yet"
        return
    yield f"{clean(view.job)}: {state}, {_counts(view)}"
    for name, text in _rows(view, output):
        yield f"  {name:<11} {text}"
    if view.status in ("interrupted", "failed", "waiting"):
        name = flags.how_to_name(known.name, view.folder, flags.Asked(None, state_dir=state_dir))
        if view.counts.get("waiting"):
            yield f"  answer:     agentrun review {name}"
        yield f"  to resume:  {flags.how_to_resume(name, view.reference)}"


def _counts(view: JobView) -> str:
    words = [f"{view.counts.get('done', 0):,} of {view.total:,} done"]
    for kind in ("failed", "skipped", "waiting"):
        if count := view.counts.get(kind):
            words.append(f"{count:,} {kind}")
    if pending := view.counts.get("pending"):
        words.append(f"{pending:,} to run")
    return ", ".join(words)


def _rows(view: JobView, output: Path | str | None) -> Iterator[tuple[str, str]]:
    ended = view.status == "finished"
    if not ended:
        settled = f"every item up to index {view.last_completed} is settled"
        yield "position", settled if view.last_completed >= 0 else "at the first item"
    if view.failed:
        yield "failed", _ranges(view.failed)
    if view.waiting:
        yield "waiting", _ranges(view.waiting)
    if view.running:
        more = f" and {len(view.running) - 4} more" if len(view.running) > 4 else ""
        yield "running", ", ".join(clean(item.key, limit=60) for item in view.running[:4]) + more
    if view.holder is not None:
        yield "runner", clean(view.holder.describe())
    yield "run", f"{view.run_id}, {view.launches} {'launch' if view.launches == 1 else 'launches'}"
    if view.versions:
        of = ", ".join(f"{count:,} of version {clean(name)}" for name, count in view.versions.items())
        yield "results", of + (" (from several versions)" if len(view.versions) > 1 else "")
    if view.empty:
        yield "empty", f"{counted(view.empty, 'output')} (listed by: items --empty)"
    if view.cost is not None or view.tokens or view.budget or view.token_budget:
        yield "cost", _cost(view)
    yield "ended" if ended else "checkpoint", ago(view.age_seconds) + ("" if ended else f", seq {view.seq}")
    if output:
        yield "output", shown_path(output)
    if view.folder is not None:
        yield "state", shown_path(view.folder)


def _cost(view: JobView) -> str:
    """What the run has cost so far, and what it may."""
    from agentrun.money.usage import format_cost, format_tokens

    text = format_cost(view.cost) if view.cost is not None else "not reported"
    if view.budget is not None:
        text += f" of a budget of {format_cost(view.budget)}"
    if view.usage.lost:
        text += f", {format_cost(view.usage.lost)} of it lost in crashes"
    if view.tokens or view.token_budget is not None:
        text += f"; {format_tokens(view.usage)}"
    if view.token_budget is not None:
        text += f", of a budget of {view.token_budget:,}"
    return text


def _ranges(ranges: Sequence[Sequence[int]]) -> str:
    """Positions as people write them; only the newest 64 ranges are known."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[-_RANGES_SHOWN:]]
    return ("… " if len(ranges) > _RANGES_SHOWN else "") + "index " + ", ".join(shown)
