"""agentrun report: the morning report, as a file or as Markdown."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags


def report(
    job: flags.KnownJob,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="PATH", help="Write it here: .html, or .md; -: standard output."),
    ] = None,
    md: Annotated[bool, typer.Option("--md", help="As Markdown; without -o, on standard output.")] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Of this run: a number, or an id; see runs.")
    ] = None,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Write a report: what to do next, failures, questions, plots.

    One HTML file that needs nothing else, to open or to send; or Markdown.

    \b
    agentrun report triage
    agentrun report triage -o monday.html
    agentrun report triage --md | mail -s triage me@example.org
    """
    from agentrun.job.job import default_report
    from agentrun.report.reading import read_report
    from agentrun.report.writing import report_text, write_report
    from agentrun.values.templates import fill
    from agentrun_cli.asking.choosing import open_known
    from agentrun_cli.terminal import HERE, clean_text, put, say, shown_path

    known = open_known(job, state_dir, store)
    made = read_report(known, run=run, here=HERE)
    if output == "-" or (md and output is None):
        put(clean_text(report_text(made, markdown=md)).rstrip("\n"))
        return
    if output is not None:
        path = HERE / output
    elif known.job is not None and known.job.report is not None and run is None:
        path = known.job.report_path(run_id=made.view.run_id, date=made.date)
    else:
        path = HERE / fill(default_report(known.name), {})
    say(f"{known.name}: {shown_path(write_report(made, path, markdown=md or None))}")
