"""agentrun show: all that is known of one item."""

from __future__ import annotations

import sys
import time
from pathlib import Path
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
_INPUT_CHARACTERS, _INPUT_LINES = 2000, 12


def show(
    job: flags.KnownJob,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="A key, or a path to the item's file.")] = None,
    index: Annotated[int | None, typer.Option("--index", metavar="N", help="The item's position; 0 is first.")] = None,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Show one item: input, attempts, question, steps, traceback, output, cost, the end of its log."""
    from agentrun_cli.asking.choosing import choose_view, find_input, open_items, open_known
    from agentrun_cli.terminal import put_json

    known = open_known(job, state_dir)
    with open_items(known) as listing:
        view = choose_view(known, listing, item, index)
        steps = listing.steps(view)
        facts = _facts(known, listing, view, find_input(known, view.key), steps)
    if as_json:
        put_json(facts)
    else:
        _draw(known, facts, view, steps)


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
    """What the agent gets, or where it is and how it begins."""
    if item is None:
        return None
    if item.path is not None:
        try:
            size = item.path.stat().st_size
            with item.path.open("rb") as file:
                begins = file.read(_INPUT_CHARACTERS).decode("utf-8", "replace")
        except OSError as error:
            return {"path": str(item.path), "problem": error.strerror}
        return {"path": str(item.path), "bytes": size, "begins": begins}
    return {"text": item.line} if item.line is not None else {"data": item.data}


def _draw(known: KnownJob, facts: dict[str, Any], view: ItemView, steps: list[dict[str, Any]]) -> None:
    from agentrun_cli.asking.choosing import words_for
    from agentrun_cli.terminal import clean, coloured, say

    failed, state = facts["error"] or {}, facts["state"]
    colour = {"done": "green", "failed": "red", "waiting": "yellow", "running": "blue"}.get(state)
    _line("item", clean(facts["key"], limit=1100))
    _line("index", f"{facts['index']} (of {facts['total']:,})")
    _line("state", coloured(state, colour, sys.stdout) + _more(facts))  # type: ignore[arg-type]
    if facts["agent"]:
        other = facts["agent_now"] and facts["agent_now"] != facts["agent"]
        _line("agent", clean(facts["agent"]) + (f" (now {clean(facts['agent_now'])})" if other else ""))
    if facts["generation"]:
        _line("generation", f"{facts['generation']} (begun anew that often)")
    _draw_input(facts["input"])
    _draw_attempts(facts["attempts"])
    if facts["usage"]:
        _line("cost", _cost(facts["usage"]))
    if facts["warning"]:
        _line("warning", clean(facts["warning"], limit=1000))
    _draw_question(known, view, steps)
    if failed.get("traceback"):
        _block("traceback", failed["traceback"])
    elif failed:
        _block("cause", str(failed.get("message", "")))
    if state == "done":
        _block("output" + _edited(facts["edited"]), _pretty(facts["output"]))
    if facts["files"]:
        _block("files", "\n".join(f"{one['size']:>12,}  {clean(one['path'], limit=1100)}" for one in facts["files"]))
    if facts["log"] and facts["log"]["lines"]:
        _block(f"log, its end ({_shown(facts['log']['path'])})", "\n".join(facts["log"]["lines"]))
        say(f"all of it: agentrun log {known.name} {words_for(facts['key'], facts['index'])}")


def _more(facts: dict[str, Any]) -> str:
    if facts["changed"]:
        return ", changed since its last result, which does not count any more"
    if facts["state"] == "failed" and (facts["failed_launches"] or 1) > 1:
        return f", in {facts['failed_launches']} launches"
    if facts["state"] == "skipped" and facts["by"]:
        from agentrun_cli.terminal import clean

        return f", by {clean(facts['by'], limit=100)}"
    if facts["state"] == "running" and facts["attempts"]:
        return " again; what is below is of the launch before"
    return ""


def _cost(usage: dict[str, Any]) -> str:
    from agentrun.money.usage import format_cost, format_tokens
    from agentrun_cli.terminal import counted

    parts = [format_cost(usage["cost"])] if usage.get("cost") is not None else ["not known"]
    return ", ".join([*parts, format_tokens(usage), counted(usage.get("requests") or 0, "request")])


def _edited(edited: dict[str, Any] | None) -> str:
    from agentrun.values.clock import age_seconds
    from agentrun_cli.terminal import ago, clean

    if not edited:
        return ""
    return f", corrected by {clean(edited.get('by', ''), limit=100)} {ago(age_seconds(str(edited.get('at', ''))))}"


def _draw_question(known: KnownJob, view: ItemView, steps: list[dict[str, Any]]) -> None:
    """What a waiting item asks, with its details; and of any that is not settled, its steps and answers so far."""
    from agentrun_cli.drawing.questions import how_to_answer, question_lines
    from agentrun_cli.terminal import coloured, put, say

    if view.question is None and not steps:
        return
    put("")
    put(coloured("question" if view.question else "so far", "dim", sys.stdout))
    # Without a question, its line is empty.
    for line in list(question_lines(view, steps, full=view.question is not None))[0 if view.question else 1 :]:
        put(f"  {line}")
    if view.question is not None:
        say(f"answer it: {how_to_answer(known, view)} --yes")


def _draw_input(given: dict[str, Any] | None) -> None:
    from agentrun_cli.terminal import clean

    if given is None:
        _line("input", "not there any more")
    elif "problem" in given:
        _line("input", f"{_shown(given['path'])}: {clean(given['problem'])}")
    elif "path" in given:
        _line("input", f"{_shown(given['path'])} ({given['bytes']:,} bytes)")
        _indent(_beginning(given["begins"], cut=given["bytes"] > _INPUT_CHARACTERS))
    else:
        _line("input", "")
        _indent(_beginning(given["text"] if "text" in given else _pretty(given["data"])))


def _beginning(text: str, *, cut: bool = False) -> str:
    lines = text[:_INPUT_CHARACTERS].split("\n")
    cut = cut or len(text) > _INPUT_CHARACTERS or len(lines) > _INPUT_LINES
    return "\n".join(lines[:_INPUT_LINES]).rstrip("\n") + ("\n…" if cut else "")


def _draw_attempts(attempts: list[dict[str, Any]]) -> None:
    from agentrun.money.usage import format_cost
    from agentrun_cli.commands.items import format_took
    from agentrun_cli.terminal import clean

    for one in attempts:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at"]))
        cause = f"  {clean(one['cause'])}" if one.get("cause") else ""
        cost = (one.get("usage") or {}).get("cost")
        spent = f"  {format_cost(cost)}" if cost is not None else ""
        place = f"launch {one['launch']}, {at}"
        _line(f"attempt {one['number']}", f"{place}  {format_took(one['seconds']):>6}{spent}{cause}")


def _pretty(value: Any) -> str:
    import orjson

    if isinstance(value, str) and "\n" in value:
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()


def _shown(path: str) -> str:
    from agentrun_cli.terminal import shown_path

    return shown_path(Path(path))


def _line(name: str, text: str) -> None:
    from agentrun_cli.terminal import coloured, put

    put(f"{coloured(f'{name:<12}', 'dim', sys.stdout)}{text}".rstrip())


def _block(name: str, text: str) -> None:
    from agentrun_cli.terminal import coloured, put

    put("")
    put(coloured(name, "dim", sys.stdout))
    _indent(text)


def _indent(text: str) -> None:
    from agentrun_cli.terminal import clean_text, put

    for line in clean_text(text).rstrip("\n").split("\n"):
        put(f"    {line}".rstrip())
