"""The first page: the jobs that are known here."""

from __future__ import annotations

from starlette.responses import Response

from agentrun.money.usage import format_cost
from agentrun.values.clock import seconds_of
from agentrun.views.jobs import JobView
from agentrun_cli.page.frame import bar, clock, document, verdict
from agentrun_cli.page.markup import NOTHING, Html, h, join, url
from agentrun_cli.page.visit import Visit

_URGENT = {"running": 0, "waiting": 1, "failed": 2, "interrupted": 3, "damaged": 4, "unreachable": 5}


def jobs_page(visit: Visit) -> Response:
    """Jobs that need somebody come first."""
    views = sorted(visit.place.jobs(), key=lambda view: (_URGENT.get(view.status, 9), view.age_seconds))
    body = h('<ul class="jobs">{jobs}</ul>', jobs=join(_job(view) for view in views))
    if not views:
        body = h(
            '<p class="card blank">No job has run here yet. Start one in a terminal:'
            '<code class="cmd">agentrun start job.toml</code></p>'
        )
    where = h('<p class="when">in <code>{root}</code></p>', root=visit.place.root.parent)
    return document("Jobs", h("<h1>Jobs</h1>{where}{body}", where=where, body=body))


def _job(view: JobView) -> Html:
    counts = view.counts
    parts = [f"{counts.get('done', 0):,} of {view.total:,} done"]
    parts += [f"{counts[kind]:,} {kind}" for kind in ("failed", "waiting", "skipped") if counts.get(kind)]
    if view.cost:
        parts.append(format_cost(view.cost))
    problem = h('<p class="where">{problem}</p>', problem=view.problem) if view.problem else NOTHING
    facts = h(
        "{bar}<p class='where'>{counts}<span class='at'>{at}</span></p>",
        bar=bar(view),
        counts=" · ".join(parts),
        at=clock(seconds_of(view.updated_at)),
    )
    return h(
        '<li class="card job"><h2><a href="{href}">{job}</a> {verdict}</h2>{facts}</li>',
        href=url("jobs", view.job),
        job=view.job,
        verdict=verdict(view),
        facts=problem if problem and not view.figures_only else facts,
    )
