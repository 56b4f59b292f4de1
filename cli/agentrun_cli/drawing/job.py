"""One job in detail, for `status JOB`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agentrun_cli.asked import Asked
from agentrun_cli.drawing.table import JOB_COLOURS
from agentrun_cli.hints import how_to_name, how_to_resume, shorten_hints
from agentrun_cli.terminal import ago, clean, coloured, counted, is_terminal, shown_path

if TYPE_CHECKING:
    from pathlib import Path

    from agentrun.views.finding import KnownJob
    from agentrun.views.jobs import JobView, Moved, Speed, Stopped
    from agentrun.views.since import Changes


_RANGES_SHOWN = 12
_IN_FLIGHT_SHOWN, _IN_FLIGHT_WATCHED = 4, 8
_WIDEST_BAR = 78


def job_lines(
    view: JobView,
    known: KnownJob,
    *,
    output: Path | str | None,
    state_dir: str | None,
    store: str | None = None,
    since: Changes | None = None,
    is_watched: bool = False,
) -> Iterator[str]:
    """How the job is doing, why it is not running, and the command that continues it.

    `output`: where its results are or will be. `since`: what changed after a finished run.
    """
    state = coloured(view.status, JOB_COLOURS.get(view.status), sys.__stdout__)
    if view.status in ("damaged", "unreachable"):
        yield f"{clean(view.job)}: {state}"
        yield f"  {clean(shorten_hints(view.problem), limit=2000)}"
        return
    if view.status == "new":
        yield f"{clean(view.job)}: has not run yet"
        return
    yield f"{clean(view.job)}: {state}{_sealed(view)}, {_counts(view)}"
    if is_watched and view.status == "running" and is_terminal(sys.__stdout__):
        yield _bar(view)
    name = how_to_name(known.name, view.folder, Asked(None, state_dir=state_dir, store=store))
    most = _IN_FLIGHT_WATCHED if is_watched else _IN_FLIGHT_SHOWN
    for label, text in (*_standing(view, most), *_facts(view, output), *_news(view, since), *_unseen(view)):
        yield f"  {label:<11} {text}".rstrip()
    yield from _commands(view, known, name, since)


def _sealed(view: JobView) -> str:
    return f" ({'sealed' if view.sealed else 'not sealed'})" if view.figures_only else ""


def _unseen(view: JobView) -> Iterator[tuple[str, str]]:
    """Why there is no more to see of it."""
    if view.figures_only:
        yield "sealed" if view.sealed else "not sealed", clean(view.problem, limit=2000)


def _commands(view: JobView, known: KnownJob, name: str, since: Changes | None) -> Iterator[str]:
    if view.newest_run:
        yield f"  the newest: agentrun status {name}"
    elif view.status == "moved":
        yield f"  to undo:    agentrun export {name} --undo   (if it runs nowhere else)"
    elif view.figures_only and not view.sealed:
        yield f"  to seal:    agentrun rekey {name} --seal"
    elif view.status in ("interrupted", "failed", "waiting"):
        if view.counts.get("waiting"):
            yield f"  answer:     agentrun review {name}"
        needed = f" {view.stopped.flags}" if view.stopped is not None and view.stopped.flags else ""
        yield f"  to resume:  {how_to_resume(name, view.reference, known)}{needed}"
    elif view.status == "finished" and view.posted:
        yield f"  to apply:   agentrun resume {name}"
    if since is not None and (since.to_run or since.gone):
        yield f"  to run:     agentrun start {name}"


def _counts(view: JobView) -> str:
    words = [f"{view.counts.get('done', 0):,} of {view.total:,} done"]
    for kind in ("failed", "skipped", "waiting"):
        if count := view.counts.get(kind):
            words.append(f"{count:,} {kind}")
    if pending := view.counts.get("pending"):
        words.append(f"{pending:,} to run")
    return ", ".join(words)


def _bar(view: JobView) -> str:
    """How far it is, over the width of the terminal."""
    from agentrun.values.units import format_duration

    settled = view.total - view.counts.get("pending", 0) - view.counts.get("waiting", 0)
    share = settled / view.total if view.total else 1.0
    left = f"  {format_duration(round(view.pace.left_seconds))} left" if view.pace is not None else ""
    end = f"  {share:4.0%}{left}"
    width = max(min(shutil.get_terminal_size().columns, _WIDEST_BAR) - len(end), 4)
    encoding = (sys.__stdout__.encoding if sys.__stdout__ is not None else "") or ""
    full, empty = "━─" if encoding.lower().startswith("utf") else "#-"
    return full * round(width * share) + empty * (width - round(width * share)) + end


def _standing(view: JobView, most: int) -> Iterator[tuple[str, str]]:
    """Why it is not running, or what it is doing."""
    if view.moved is not None:
        yield "moved", _moved(view.moved)
    elif view.why:
        yield from _stop(view, view.stopped)
    if view.paused is not None:
        from agentrun.values.clock import now_seconds
        from agentrun.values.until import pause_words

        words = pause_words(view.paused.until, clean(view.paused.reason, limit=300), now_seconds())
        yield "paused", words.removeprefix("paused ")
    elif view.pace is not None:
        yield "pace", _pace(view)
    if view.speed is not None and view.paused is None:
        yield "speed", f"{_speed(view.speed)}: the server asks us to slow down"
    if view.running:
        from agentrun.values.clock import age_seconds
        from agentrun.values.units import format_duration

        oldest = sorted(view.running, key=lambda one: one.since or "~")
        for number, item in enumerate(oldest[:most]):
            age = format_duration(round(age_seconds(item.since))) if item.since else "-"
            where = f"  on {clean(item.where, limit=60)}" if item.where else ""
            yield "in flight" if not number else "", f"{age:>6}  {clean(item.key, limit=60)}{where}"
        if len(oldest) > most:
            yield "", f"        and {len(oldest) - most:,} more"


def _moved(mark: Moved) -> str:
    from agentrun.values.clock import age_seconds, local_clock

    if mark.is_interrupted:
        return f"to {clean(mark.file, limit=300)}, but the export was interrupted; finish it, or undo it"
    when = f"{ago(age_seconds(mark.at))} ({local_clock(mark.at)})"
    return f"to {clean(mark.file, limit=300)} on {clean(mark.host, limit=100)}, {when}"


def _stop(view: JobView, stopped: Stopped | None) -> Iterator[tuple[str, str]]:
    from agentrun.values.clock import age_seconds, local_clock, now_seconds, seconds_of, seconds_until
    from agentrun.values.units import format_duration
    from agentrun.values.until import moment_words

    why = clean(view.why, limit=400).removeprefix("stopped by ")
    if stopped is None:
        yield "stopped", f"{why}; last checkpoint {ago(view.age_seconds)} ({local_clock(view.updated_at)})"
        return
    yield "stopped", f"{why}, {ago(age_seconds(stopped.at))} ({local_clock(stopped.at)})"
    if stopped.resume_at:
        left = seconds_until(stopped.resume_at)
        what = f" ({clean(stopped.waits_for, limit=300)})" if stopped.waits_for else ""
        until = f"resume after {moment_words(seconds_of(stopped.resume_at), now_seconds())}"
        then = f"{format_duration(round(left))} from now{what}" if left else "which has passed"
        yield "wait", f"{until}, {then}"
    elif stopped.hint:
        yield "", clean(stopped.hint, limit=300)


def _speed(speed: Speed) -> str:
    from agentrun.values.units import rate_words

    words = [rate_words(speed.pace)] if speed.pace is not None else []
    return ", ".join([*words, *([f"{speed.number:,} at a time"] if speed.number else [])])


def _pace(view: JobView) -> str:
    from agentrun.values.clock import local_clock, now_seconds, time_text
    from agentrun.values.units import format_duration

    assert view.pace is not None
    rate, left = view.pace.per_second, view.pace.left_seconds
    shown = f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min" if rate * 60 >= 1 else f"{rate * 3600:.1f}/h"
    return f"{shown}, {format_duration(round(left))} left (until {local_clock(time_text(now_seconds() + left))})"


def _facts(view: JobView, output: Path | str | None) -> Iterator[tuple[str, str]]:
    ended = view.status == "finished" or bool(view.newest_run)
    if not ended:
        settled = f"every item up to index {view.last_completed} is settled"
        yield "position", settled if view.last_completed >= 0 else "at the first item"
    if view.failed:
        yield "failed", _ranges(view.failed)
    if view.waiting:
        yield "waiting", _ranges(view.waiting)
    if view.holder is not None:
        yield "runner", clean(view.holder.describe())
    launches = f", {view.launches} {'launch' if view.launches == 1 else 'launches'}" if view.launches else ""
    yield "run", view.run_id + launches + (f", not the newest ({view.newest_run})" if view.newest_run else "")
    if view.versions:
        of = ", ".join(f"{count:,} of version {clean(name)}" for name, count in view.versions.items())
        yield "results", of + (" (from several versions)" if len(view.versions) > 1 else "")
    if view.empty:
        yield "empty", f"{counted(view.empty, 'output')} (listed by: items --empty)"
    if view.cost is not None or view.tokens or view.budget or view.token_budget:
        yield "cost", _cost(view)
    seq = f", seq {view.seq}" if view.seq and not ended else ""
    yield "checkpoint" if view.seq and not ended else "ended", ago(view.age_seconds) + seq
    if output:
        yield "output", shown_path(output)
    if view.where:
        yield "state", clean(view.where, limit=200)
    elif view.folder is not None:
        yield "state", shown_path(view.folder)


def _news(view: JobView, since: Changes | None) -> Iterator[tuple[str, str]]:
    """What people posted, and what changed since a finished run."""
    posted = {kind: count for kind, count in view.posted.items() if kind != "unreadable"}
    if posted:
        words = ", ".join(counted(count, kind) for kind, count in posted.items())
        verb = "waits" if sum(posted.values()) == 1 else "wait"
        if view.status == "running":
            later = "; a redo waits for the next start" if "redo" in posted else ""
            yield "posted", f"{words}, not applied yet{later}"
        else:
            yield "posted", f"{words} {verb} for the next start"
    if count := view.posted.get("unreadable"):
        yield "posted", f"{counted(count, 'file')} that cannot be read as a message"
    if since is not None:
        from agentrun_cli.drawing.closing import since_words

        yield "since then", since_words(since)


def _cost(view: JobView) -> str:
    """What the run has cost so far, and what it may."""
    from agentrun.money.budget import lost_words
    from agentrun.money.usage import format_cost, format_tokens

    text = format_cost(view.cost) if view.cost is not None else "not reported"
    if view.budget is not None:
        text += f" of a budget of {format_cost(view.budget)}"
    lost = lost_words(view.usage.as_json())
    if lost and view.cost is not None:
        text += f", {lost}"
    if view.tokens or view.token_budget is not None:
        text += f"; {format_tokens(view.usage)}"
    if view.token_budget is not None:
        text += f", of a budget of {view.token_budget:,}"
    return f"{text}, {lost}" if lost and view.cost is None else text


def _ranges(ranges: Sequence[Sequence[int]]) -> str:
    """Positions as people write them; only the newest 64 ranges are known."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[-_RANGES_SHOWN:]]
    return ("… " if len(ranges) > _RANGES_SHOWN else "") + "index " + ", ".join(shown)
