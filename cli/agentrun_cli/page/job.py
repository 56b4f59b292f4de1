"""One job: how far it is, what is in flight, what to do next. Kept up to date while the page is open."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from agentrun.money.usage import format_cost, format_tokens
from agentrun.report.advice import Commands, describe
from agentrun.values.clock import local_time, now_seconds, seconds_of
from agentrun.values.units import format_duration, rate_words
from agentrun.views.finding import KnownJob
from agentrun.views.jobs import JobView
from agentrun.views.runs import RunView, list_runs
from agentrun_cli.page import said
from agentrun_cli.page.frame import bar, button, clock, counted, document, facts, verdict
from agentrun_cli.page.markup import NOTHING, Html, cut, h, join, url
from agentrun_cli.page.visit import Visit

_RUNNING_SHOWN, _RUNS_SHOWN = 12, 8


def job_page(visit: Visit) -> Response:
    known = visit.job()
    view = visit.place.view(known)
    runs = list_runs(known.store) if view.status not in ("damaged", "unreachable") and not view.figures_only else []
    body = h(
        '{said}<div id="live" data-live="{live}">{standing}</div>{facts}{runs}',
        said=said.words_of(visit),
        live=url("jobs", known.name, "live"),
        standing=standing(known, view),
        facts=h("<section><h2>This run</h2>{facts}</section>", facts=facts(_facts(known, view)))
        if view.run_id
        else NOTHING,
        runs=_runs(runs) if len(runs) > 1 else NOTHING,
    )
    return document(known.name, body, view=view, tab="")


def standing(known: KnownJob, view: JobView) -> Html:
    """The part that changes. Times are times of day: an age would change every second."""
    if view.status in ("damaged", "unreachable"):
        return h(
            '<h1>{job} {verdict}</h1><p class="card odd">{problem}</p>',
            job=view.job,
            verdict=verdict(view),
            problem=view.problem,
        )
    if view.status == "new":
        return h("<h1>{job} {verdict}</h1>", job=view.job, verdict=verdict(view))
    return h(
        '<h1>{job} {verdict}</h1><p class="stands">{words}</p>{odd}{bar}<dl class="tiles">{tiles}</dl>'
        "{actions}{running}",
        job=view.job,
        verdict=verdict(view),
        words=describe(view),
        odd=h('<p class="card odd">{problem}</p>', problem=view.problem) if view.problem else NOTHING,
        bar=bar(view),
        tiles=join(_tiles(view)),
        actions=_actions(known, view) if not view.figures_only else NOTHING,
        running=_running(view),
    )


def _facts(known: KnownJob, view: JobView) -> Iterator[tuple[str, object]]:
    """What does not change from one checkpoint to the next."""
    began = local_time(seconds_of(view.started_at))
    launches = f", in {counted(view.launches, 'launch', 'launches')}" if view.launches else ""
    yield "Started", f"{began:%A, %-d %B %Y, %H:%M}{launches}"
    if known.job is not None:
        yield "Job", known.job.file or known.job.base
    if view.reference:
        yield "Agent", view.reference
    if view.tokens:
        yield "Tokens", format_tokens(view.usage)
    if view.output:
        yield "Results", view.output
    if known.problem:
        yield "Problem", f"{known.problem}; only what is on record is shown"


def _tile(name: str, value: object, note: object = "", tone: str = "") -> Html:
    return h(
        '<div class="{tone}"><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>',
        tone=tone,
        name=name,
        value=value,
        note=note,
    )


def _tiles(view: JobView) -> Iterator[Html]:
    counts = view.counts
    done, pending = counts.get("done", 0), counts.get("pending", 0)
    yield _tile("done", f"{done:,}", f"of {view.total:,}", "good" if done else "")
    if failed := counts.get("failed"):
        yield _tile(
            "failed", f"{failed:,}", h('<a href="{href}">see why</a>', href=url("jobs", view.job, "failures")), "bad"
        )
    if waiting := counts.get("waiting"):
        yield _tile(
            "waiting",
            f"{waiting:,}",
            h('<a href="{href}">for an answer</a>', href=url("jobs", view.job, "review")),
            "warn",
        )
    if skipped := counts.get("skipped"):
        yield _tile("skipped", f"{skipped:,}")
    if pending:
        yield _tile("to run", f"{pending:,}", f"{len(view.running):,} in flight" if view.running else "")
    if view.cost is not None:
        yield _tile("cost", format_cost(view.cost), f"of {format_cost(view.budget)}" if view.budget else "")
    if view.pace is not None:
        yield _tile(
            "pace",
            rate_words(view.pace.per_second),
            f"done at about {local_time(now_seconds() + view.pace.left_seconds):%H:%M}",
        )


def _actions(known: KnownJob, view: JobView) -> Html:
    waiting = view.counts.get("waiting", 0) - view.posted.get("answer", 0)
    review = h(
        '<a class="button {tone}" id="to-review" href="{href}">Review {questions}</a>',
        tone="main",
        href=url("jobs", view.job, "review"),
        questions=counted(waiting, "question"),
    )
    parts = [review] if waiting > 0 else []
    parts += [continue_part(known, view)]
    posted = [counted(count, "message" if kind == "unreadable" else kind) for kind, count in view.posted.items()]
    words = f"Posted and not processed yet: {', '.join(posted)}." if posted else ""
    return h('<div class="actions">{parts}<p class="more">{words}</p></div>', parts=join(parts), words=words)


def continue_part(known: KnownJob, view: JobView) -> Html:
    """How to run the rest: a button, or the command where a person has to decide something first."""
    reference = (known.job.agent if known.job is not None else "") or view.reference
    commands = Commands(known.shown, reference)
    if view.status == "running" or (view.status == "finished" and not view.posted):
        return NOTHING
    if view.status == "moved":
        return h(
            '<div class="wide">It is continued where it was imported. If it runs nowhere else, have it back with:'
            '<code class="cmd">{command}</code></div>',
            command=commands.of("export", "--undo"),
        )
    if commands.is_held:
        return h('<p class="more">Only the script or notebook that started this job can continue it: run it again.</p>')
    flags = view.stopped.flags if view.stopped is not None else ""
    if flags:
        return h(
            '<div class="wide">To continue, decide in a terminal:<code class="cmd">{command}</code></div>',
            command=commands.of("resume", flags),
        )
    return button(url("jobs", view.job, "resume"), "Continue", name="continue")


def _running(view: JobView) -> Html:
    if not view.running:
        return NOTHING
    oldest = sorted(view.running, key=lambda one: one.since or "~")
    rows = join(
        h(
            '<li><a href="{href}">{key}</a> <span>since {since}</span></li>',
            href=url("jobs", view.job, "items", one.index),
            key=cut(one.key, 120),
            since=clock(seconds_of(one.since)),
        )
        for one in oldest[:_RUNNING_SHOWN]
    )
    left = len(oldest) - _RUNNING_SHOWN
    more = h('<li class="more">and {left} more</li>', left=f"{left:,}") if left > 0 else NOTHING
    return h('<section><h2>In flight</h2><ul class="card keys plain">{rows}{more}</ul></section>', rows=rows, more=more)


def _runs(runs: list[RunView]) -> Html:
    rows = join(
        h(
            "<tr><td>{shown}</td><td>{status}</td><td>{began}</td><td class='num'>{done}</td>"
            "<td class='num'>{took}</td>"
            "<td class='num'>{cost}</td></tr>",
            shown=one.shown,
            status=one.status,
            began=f"{local_time(seconds_of(one.started_at)):%-d %b %H:%M}",
            done=f"{one.counts.get('done', 0):,} of {one.total:,}",
            took=format_duration(round(one.seconds)),
            cost=format_cost(one.cost) if one.cost else "",
        )
        for one in runs[:_RUNS_SHOWN]
    )
    return h(
        '<section><h2>Runs</h2><div class="card table scroll" tabindex="0" role="region" aria-label="Runs">'
        "<table><thead><tr>"
        "<th>run</th><th>state</th><th>began</th><th class='num'>done</th><th class='num'>took</th>"
        "<th class='num'>cost</th>"
        "</tr></thead><tbody>{rows}</tbody></table></div></section>",
        rows=rows,
    )
