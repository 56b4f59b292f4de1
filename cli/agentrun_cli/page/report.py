"""The report of a job, as `agentrun report` writes it."""

from __future__ import annotations

from starlette.responses import Response

from agentrun.report.page import report_body
from agentrun.report.reading import read_report
from agentrun_cli.page.frame import document
from agentrun_cli.page.markup import Html
from agentrun_cli.page.visit import Visit


def report_page(visit: Visit) -> Response:
    known = visit.job()
    made = read_report(known)
    return document(f"{known.name}: report", Html(report_body(made)), view=visit.place.view(known), tab="report")
