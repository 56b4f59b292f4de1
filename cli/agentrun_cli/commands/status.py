"""agentrun status: the jobs here, or one of them in detail. Reads without the lock."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.terminal import HERE, Colour, ago, clean, coloured, is_terminal, put, put_json, say, shown_path

if TYPE_CHECKING:
    from pathlib import Path

    from agentrun.views.jobs import JobView


_COLOURS: dict[str, Colour] = {
    "running": "blue",
    "interrupted": "yellow",
    "waiting": "yellow",
    "failed": "red",
    "damaged": "red",
    "finished": "green",
}
_RANGES_SHOWN = 12


def status(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="One job, in detail.")] = None,
    as_json: flags.AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again every second, until Ctrl-C.")] = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Show how the jobs here are doing, or one in detail."""
    folder = flags.job_folder(job, state_dir) if job is not None else None
    if not watch:
        _show(folder, state_dir, as_json=as_json)
        return
    try:
        _watch(folder, state_dir, as_json=as_json)
    except KeyboardInterrupt:
        pass


def _show(folder: Path | None, state_dir: str | None, *, as_json: bool) -> None:
    from agentrun.job.home import known_jobs
    from agentrun.views.jobs import read_job_view

    views = [read_job_view(one) for one in ([folder] if folder else known_jobs(HERE, state_dir, os.environ))]
    if as_json:
        put_json(views[0].as_json() if folder else [view.as_json() for view in views])
        return
    for line in _lines(views, folder, state_dir):
        put(line)
    if not views:
        say("no jobs are known here; begin with: agentrun init, or: agentrun start JOB")


def _watch(folder: Path | None, state_dir: str | None, *, as_json: bool) -> None:
    """On a terminal the lines are drawn over; elsewhere they are told again when they change."""
    from agentrun.job.home import known_jobs
    from agentrun.views.jobs import read_job_view

    live = is_terminal(sys.__stdout__) and not as_json
    drawn, height = "", 0
    while True:
        if as_json:
            _show(folder, state_dir, as_json=True)
        else:
            found = [folder] if folder else known_jobs(HERE, state_dir, os.environ)
            lines = list(_lines([read_job_view(one) for one in found], folder, state_dir)) or ["no jobs are known here"]
            text = "\n".join(f"\x1b[2K{line}" if live else line for line in lines)
            if text != drawn:
                put((f"\x1b[{height}A\x1b[0J" if live and height else "") + text)
                drawn, height = text, len(lines)
        time.sleep(1.0)


def _lines(views: list[JobView], folder: Path | None, state_dir: str | None) -> Iterator[str]:
    if folder is not None:
        yield from _detail(views[0], state_dir)
    elif views:
        yield from _table(views)


def _table(views: list[JobView]) -> Iterator[str]:
    from agentrun.money.usage import format_cost

    has_cost = any(view.cost for view in views)
    waits = any(view.counts.get("waiting") for view in views)
    more = [*(["WAITING"] if waits else []), *(["COST"] if has_cost else [])]
    head = ["JOB", "STATE", "DONE", "FAILED", *more, "LAST CHECKPOINT"]
    rows = [head]
    for view in views:
        known = view.status not in ("new", "damaged")
        cells = [clean(view.job, limit=40), view.status]
        cells += [f"{view.counts.get('done', 0):,}/{view.total:,}" if known else "-"]
        cells += [f"{view.counts.get('failed', 0):,}" if known else "-"]
        cells += [f"{view.counts.get('waiting', 0):,}" if known else "-"] if waits else []
        cells += [format_cost(view.cost) if view.cost else "-"] if has_cost else []
        rows.append([*cells, ago(view.age_seconds) if known else "-"])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for number, row in enumerate(rows):
        padded = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        colour = _COLOURS.get(row[1]) if number else "dim"
        if number:
            padded[1] = coloured(padded[1], colour, sys.__stdout__)
            yield "  ".join(padded).rstrip()
        else:
            yield coloured("  ".join(padded).rstrip(), colour, sys.__stdout__)


def _detail(view: JobView, state_dir: str | None) -> Iterator[str]:
    state = coloured(view.status, _COLOURS.get(view.status), sys.__stdout__)
    if view.status == "damaged":
        yield f"{clean(view.job)}: {state}"
        yield f"  {clean(view.problem, limit=2000)}"
        return
    if view.status == "new":
        yield f"{clean(view.job)}: has not run yet"
        return
    yield f"{clean(view.job)}: {state}, {_counts(view)}"
    for name, text in _rows(view):
        yield f"  {name:<11} {text}"
    if view.status in ("interrupted", "failed", "waiting"):
        name = flags.how_to_name(view.folder.name, view.folder, flags.Asked(None, state_dir=state_dir))
        if view.counts.get("waiting"):
            yield f"  answer:     agentrun review {name}"
        yield f"  go on with: {flags.how_to_go_on(name, view.reference)}"


def _counts(view: JobView) -> str:
    words = [f"{view.counts.get('done', 0):,} of {view.total:,} done"]
    for kind in ("failed", "skipped", "waiting"):
        if count := view.counts.get(kind):
            words.append(f"{count:,} {kind}")
    if pending := view.counts.get("pending"):
        words.append(f"{pending:,} to run")
    return ", ".join(words)


def _rows(view: JobView) -> Iterator[tuple[str, str]]:
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
        yield "running", ", ".join(clean(item.get("key", ""), limit=60) for item in view.running[:4]) + more
    if view.holder is not None:
        from agentrun.values.clock import local_clock

        yield "runner", f"pid {view.holder.pid} on {clean(view.holder.host)}, since {local_clock(view.holder.since)}"
    yield "run", f"{view.run_id}, {view.launches} {'launch' if view.launches == 1 else 'launches'}"
    if view.versions:
        of = ", ".join(f"{count:,} of version {clean(name)}" for name, count in view.versions.items())
        yield "results", of + (" (they span versions)" if len(view.versions) > 1 else "")
    if view.cost is not None or view.tokens or view.budget or view.token_budget:
        yield "cost", _cost(view)
    yield "ended" if ended else "checkpoint", ago(view.age_seconds) + ("" if ended else f", seq {view.seq}")
    if output := view.output or _output(view):
        yield "output", shown_path(output)
    yield "state", shown_path(view.folder)


def _cost(view: JobView) -> str:
    """What the run has cost so far, and what it may."""
    from agentrun.money.usage import format_cost, format_tokens

    text = format_cost(view.cost) if view.cost is not None else "not reported"
    if view.budget is not None:
        text += f" of a budget of {format_cost(view.budget)}"
    if view.usage.get("lost"):
        text += f", {format_cost(view.usage['lost'])} of it lost in crashes"
    if view.tokens or view.token_budget is not None:
        text += f"; {format_tokens(view.usage)}"
    if view.token_budget is not None:
        text += f", of a budget of {view.token_budget:,}"
    return text


def _ranges(ranges: list[list[int]]) -> str:
    """Positions as people write them; the newest 64 ranges are known."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[-_RANGES_SHOWN:]]
    return ("… " if len(ranges) > _RANGES_SHOWN else "") + "index " + ", ".join(shown)


def _output(view: JobView) -> Path | None:
    """Where an unfinished run will put its results; None where the job cannot be read now."""
    from agentrun.errors import AgentrunError
    from agentrun.job.opening import open_job
    from agentrun.views.jobs import read_checkpoint

    try:
        checkpoint = read_checkpoint(view.folder)
        opened = open_job(view.folder.name, cwd=HERE, state_dir=str(view.folder.parent))
    except AgentrunError:
        return None
    if checkpoint is None:
        return None
    return opened.job.output_path(run_id=view.run_id, date=checkpoint.context.get("date", ""))
