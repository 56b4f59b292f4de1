"""agentrun results: the results so far, in item order, as JSON lines."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags


def results(
    job: flags.KnownJob,
    full: Annotated[bool, typer.Option("--full", help="With times, attempts, cost and the agent's version.")] = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Print the results so far, as JSON lines in item order.

    \b
    agentrun results triage > so-far.jsonl
    agentrun results triage --full
    """
    from agentrun.views.results import read_output, result_lines
    from agentrun_cli.asking.choosing import open_items, open_known
    from agentrun_cli.terminal import put_json_lines, say

    known = open_known(job, state_dir)
    if not full and (pieces := read_output(known.store)) is not None:
        for piece in pieces:
            put_json_lines(piece)
        return
    count = 0
    with open_items(known) as listing:
        for line in result_lines(listing, full=full):
            put_json_lines(line)
            count += 1
    if not count:
        say(f"{known.name}: there are no results yet")
