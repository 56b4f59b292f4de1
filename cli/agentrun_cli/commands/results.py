"""agentrun results: the results so far, in item order, as JSON lines or written to a file or folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from agentrun.views.finding import KnownJob
    from agentrun.views.listing import Listing


def results(
    job: flags.KnownJob,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="PATH", help="Write them here: .jsonl, .csv, or 'out/{key}.md'."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Of this run: a number, or an id; see runs.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="With times, attempts, cost and the agent's version.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="With -o: replace what is there.")] = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Print the results so far, as JSON lines, or write them to a file.

    They are in item order. -o also writes CSV, or a folder with a file per item.

    \b
    agentrun results triage | jq .output
    agentrun results triage -o triage.csv
    agentrun results triage --run 3 -o 'out/{key}.md'
    """
    from agentrun.errors import UsageError
    from agentrun.views.exporting import export_results
    from agentrun.views.results import read_output, result_lines
    from agentrun_cli.asking.choosing import open_known
    from agentrun_cli.terminal import HERE, counted, put_json_lines, say, shown_path

    if full and output is not None:
        raise UsageError("--full prints JSON lines; leave out -o, or redirect them: agentrun results JOB --full > FILE")
    known = open_known(job, state_dir, store)
    if not full and output is None and run is None and (pieces := read_output(known.store)) is not None:
        for piece in pieces:
            put_json_lines(piece)
        return
    with _open(known, run) as listing:
        count = listing.counts["done"]
        if not count:
            say(f"{known.name}: there are no results yet")
        elif output is not None:
            path = export_results(listing, output, here=HERE, overwrite=overwrite)
            say(f"{known.name}: {counted(count, 'result')} → {shown_path(path)}")
        else:
            for line in result_lines(listing, full=full):
                put_json_lines(line)


def _open(known: KnownJob, run: str | None) -> Listing:
    """The items of the current run, or of the one that is asked for."""
    from agentrun.views.listing import open_run_listing
    from agentrun.views.runs import check_records, find_run, list_runs
    from agentrun_cli.asking.choosing import open_items, warn

    found = find_run(list_runs(known.store), run, known.shown) if run is not None else None
    if found is None or found.status == "unfinished":
        return open_items(known)
    listing = open_run_listing(known.store, check_records(found, known.shown).run_id)
    if listing.note:
        warn(f"{known.name}: {listing.note}")
    return listing
