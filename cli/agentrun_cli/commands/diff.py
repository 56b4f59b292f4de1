"""agentrun diff: what differs between the results of two runs."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags


def diff(
    job: flags.KnownJob,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", show_default=False, help="A run's number, its id, or the beginning of that: see runs."
        ),
    ] = None,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Show which results differ between two runs.

    Compares the newest finished run with the one before it, or with RUN. Results are added, changed or gone.
    --json: one line per result that differs.

    \b
    agentrun diff triage
    agentrun diff triage 3
    """
    from collections import Counter

    from agentrun.views.differences import choose_runs, compare
    from agentrun.views.listing import open_run_listing
    from agentrun.views.runs import list_runs
    from agentrun_cli.asking.choosing import open_known
    from agentrun_cli.drawing.difference import difference_lines
    from agentrun_cli.drawing.plan import began_at
    from agentrun_cli.terminal import put, put_json, say

    known = open_known(job, state_dir, store)
    older, newer = choose_runs(list_runs(known.store), run, known.shown)
    counts: Counter[str] = Counter()
    with open_run_listing(known.store, older.run_id) as before, open_run_listing(known.store, newer.run_id) as after:
        for one in compare(before, after):
            counts[one.change] += 1
            if as_json:
                put_json(one.as_json())
                continue
            for line in difference_lines(one):
                put(line)
        same = after.counts["done"] - counts["added"] - counts["changed"]
    shown = ", ".join(f"{counts[kind]:,} {kind}" for kind in ("added", "changed", "gone"))
    runs = f"run {newer.shown} ({began_at(newer.run_id)}) against run {older.shown} ({began_at(older.run_id)})"
    say(f"{known.name}: {runs}: {shown}, {same:,} the same")
