"""agentrun show: everything known about one item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from agentrun.item import Item
    from agentrun.views.item import ItemView
    from agentrun.views.listing import Listing
    from agentrun_cli.asking.choosing import KnownJob


LOG_LINES = 20
_OF_STEP = ("kind", "name", "n", "at", "seconds", "output", "question", "answer")


def show(
    job: flags.KnownJob,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="A key, or a path to the item's file.")] = None,
    index: Annotated[int | None, typer.Option("--index", metavar="N", help="The item's position; 0 is first.")] = None,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Show one item: input, attempts, question, steps, traceback, output, cost, the end of its log."""
    from agentrun_cli.asking.choosing import choose_view, find_input, open_items, open_known, words_for
    from agentrun_cli.drawing.item import item_lines
    from agentrun_cli.drawing.questions import how_to_answer
    from agentrun_cli.terminal import put, put_json, say

    known = open_known(job, state_dir)
    with open_items(known) as listing:
        view = choose_view(known, listing, item, index)
        steps = listing.steps(view)
        facts = _facts(known, listing, view, find_input(known, view.key), steps)
    if as_json:
        put_json(facts)
        return
    for line in item_lines(facts, view, steps):
        put(line)
    if view.question is not None:
        say(f"answer it: {how_to_answer(known, view)} --yes")
    if facts["log"] and facts["log"]["lines"]:
        say(f"the whole log: agentrun log {known.name} {words_for(view.key, view.index)}")


def _facts(
    known: KnownJob, listing: Listing, view: ItemView, item: Item | None, steps: list[dict[str, Any]]
) -> dict[str, Any]:
    from agentrun_cli.commands.log import read_end

    record = view.record or {}
    path, lines = read_end(known.folder, view.key, view.slot, LOG_LINES)
    return {
        "job": known.folder.name,
        "index": view.index,
        "total": len(listing),
        "key": view.key,
        "state": view.state,
        "changed": view.changed,
        "generation": view.gen,
        "launch": record.get("launch"),
        "failed_launches": record.get("failed_launches"),
        "agent": view.agent or None,
        "agent_now": _agent_now(listing),
        "input": _input(item),
        "attempts": view.tries,
        "error": record.get("error"),
        "output": record.get("output"),
        "files": view.files,
        "usage": view.usage or None,
        "edited": view.edited,
        "by": record.get("by"),
        "warning": record.get("warning"),
        "question": view.question,
        "steps": [{name: one[name] for name in _OF_STEP if name in one} for one in steps],
        "log": {"path": str(path), "lines": lines} if path else None,
    }


def _agent_now(listing: Listing) -> str | None:
    if listing.checkpoint is not None:
        return listing.checkpoint.context.get("agent")
    return listing.summary.get("agent") if listing.summary else None


def _input(item: Item | None) -> dict[str, Any] | None:
    """What the agent gets: the value itself, or the file's path and how it begins."""
    from agentrun_cli.drawing.item import INPUT_CHARACTERS

    if item is None:
        return None
    if item.path is not None:
        try:
            size = item.path.stat().st_size
            with item.path.open("rb") as file:
                begins = file.read(INPUT_CHARACTERS).decode("utf-8", "replace")
        except OSError as error:
            return {"path": str(item.path), "problem": error.strerror}
        return {"path": str(item.path), "bytes": size, "begins": begins}
    return {"text": item.line} if item.line is not None else {"data": item.data}
