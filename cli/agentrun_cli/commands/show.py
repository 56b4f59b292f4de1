"""agentrun show: everything known about one item."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags


def show(
    job: flags.KnownJob,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="A key, or a path to the item's file.")] = None,
    index: Annotated[int | None, typer.Option("--index", metavar="N", help="The item's position; 0 is first.")] = None,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Show one item: its input, attempts, steps, output and log.

    \b
    agentrun show triage documents/0007.txt
    agentrun show triage --index 7 --json
    """
    from agentrun.people.selecting import select_one, words_for
    from agentrun.views.details import read_details
    from agentrun_cli.asking.choosing import open_items, open_known, select
    from agentrun_cli.drawing.item import item_lines
    from agentrun_cli.drawing.questions import how_to_answer
    from agentrun_cli.terminal import put, put_json, say

    known = open_known(job, state_dir, store)
    with open_items(known) as listing:
        view = select_one(known, listing, select(item, index))
        details = read_details(known, listing, view)
    if as_json:
        put_json(details.as_json())
        return
    for line in item_lines(details):
        put(line)
    if view.question is not None:
        say(f"answer it: {how_to_answer(known, view.key, view.index)} --yes")
    if details.log_lines:
        say(f"the whole log: agentrun log {known.shown} {words_for(view.key, view.index)}")
