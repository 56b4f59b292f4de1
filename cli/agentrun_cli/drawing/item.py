"""One item in full, for `show`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun_cli.drawing.table import ITEM_COLOURS, format_took
from agentrun_cli.terminal import ago, clean, clean_text, coloured, counted, shown_path

if TYPE_CHECKING:
    from agentrun.views.item import ItemView


INPUT_CHARACTERS, _INPUT_LINES = 2000, 12
Facts = Mapping[str, Any]
"""As `show --json` has them."""


def item_lines(facts: Facts, view: ItemView, steps: list[dict[str, Any]]) -> Iterator[str]:
    """All that is known of an item: what it was given, what happened, what came of it."""
    failed, state = facts["error"] or {}, facts["state"]
    yield _line("item", clean(facts["key"], limit=1100))
    yield _line("index", f"{facts['index']} (of {facts['total']:,})")
    yield _line("state", coloured(state, ITEM_COLOURS.get(state), sys.stdout) + _more(facts))
    if facts["agent"]:
        other = facts["agent_now"] and facts["agent_now"] != facts["agent"]
        yield _line("agent", clean(facts["agent"]) + (f" (now {clean(facts['agent_now'])})" if other else ""))
    if facts["generation"]:
        yield _line("generation", f"{facts['generation']} (times started over)")
    yield from _input_lines(facts["input"])
    yield from _attempt_lines(facts["attempts"])
    if facts["usage"]:
        yield _line("cost", _cost(facts["usage"]))
    if facts["warning"]:
        yield _line("warning", clean(facts["warning"], limit=1000))
    yield from _question_lines(view, steps)
    if failed.get("traceback"):
        yield from _block("traceback", failed["traceback"])
    elif failed:
        yield from _block("cause", str(failed.get("message", "")))
    if state == "done":
        yield from _block("output" + _edited(facts["edited"]), _pretty(facts["output"]))
    if facts["files"]:
        sizes = (f"{one['size']:>12,}  {clean(one['path'], limit=1100)}" for one in facts["files"])
        yield from _block("files", "\n".join(sizes))
    if facts["log"] and facts["log"]["lines"]:
        where = shown_path(Path(facts["log"]["path"]))
        yield from _block(f"end of the log ({where})", "\n".join(facts["log"]["lines"]))


def _more(facts: Facts) -> str:
    if facts["changed"]:
        return ", changed since its last result, which no longer counts"
    if facts["state"] == "failed" and (facts["failed_launches"] or 1) > 1:
        return f", in {facts['failed_launches']} launches"
    if facts["state"] == "skipped" and facts["by"]:
        return f", by {clean(facts['by'], limit=100)}"
    if facts["state"] == "running" and facts["attempts"]:
        return " again; what follows is from the previous launch"
    return ""


def _cost(usage: Mapping[str, Any]) -> str:
    from agentrun.money.usage import format_cost, format_tokens

    parts = [format_cost(usage["cost"])] if usage.get("cost") is not None else ["not known"]
    return ", ".join([*parts, format_tokens(usage), counted(usage.get("requests") or 0, "request")])


def _edited(edited: Mapping[str, Any] | None) -> str:
    from agentrun.values.clock import age_seconds

    if not edited:
        return ""
    return f", corrected by {clean(edited.get('by', ''), limit=100)} {ago(age_seconds(str(edited.get('at', ''))))}"


def _question_lines(view: ItemView, steps: list[dict[str, Any]]) -> Iterator[str]:
    """The question of a waiting item, with its details; the steps and answers so far of an unsettled one."""
    from agentrun_cli.drawing.questions import question_lines

    if view.question is None and not steps:
        return
    yield ""
    yield coloured("question" if view.question else "so far", "dim", sys.stdout)
    # Without a question, its line is empty.
    for line in list(question_lines(view, steps, full=view.question is not None))[0 if view.question else 1 :]:
        yield f"  {line}"


def _input_lines(given: Mapping[str, Any] | None) -> Iterator[str]:
    if given is None:
        yield _line("input", "no longer there")
    elif "problem" in given:
        yield _line("input", f"{shown_path(Path(given['path']))}: {clean(given['problem'])}")
    elif "path" in given:
        yield _line("input", f"{shown_path(Path(given['path']))} ({given['bytes']:,} bytes)")
        yield from _indented(_beginning(given["begins"], cut=given["bytes"] > INPUT_CHARACTERS))
    else:
        yield _line("input", "")
        yield from _indented(_beginning(given["text"] if "text" in given else _pretty(given["data"])))


def _beginning(text: str, *, cut: bool = False) -> str:
    lines = text[:INPUT_CHARACTERS].split("\n")
    cut = cut or len(text) > INPUT_CHARACTERS or len(lines) > _INPUT_LINES
    return "\n".join(lines[:_INPUT_LINES]).rstrip("\n") + ("\n…" if cut else "")


def _attempt_lines(attempts: list[dict[str, Any]]) -> Iterator[str]:
    from agentrun.money.usage import format_cost

    for one in attempts:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at"]))
        cause = f"  {clean(one['cause'])}" if one.get("cause") else ""
        cost = (one.get("usage") or {}).get("cost")
        spent = f"  {format_cost(cost)}" if cost is not None else ""
        place = f"launch {one['launch']}, {at}"
        yield _line(f"attempt {one['number']}", f"{place}  {format_took(one['seconds']):>6}{spent}{cause}")


def _pretty(value: Any) -> str:
    import orjson

    if isinstance(value, str) and "\n" in value:
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()


def _line(name: str, text: str) -> str:
    return f"{coloured(f'{name:<12}', 'dim', sys.stdout)}{text}".rstrip()


def _block(name: str, text: str) -> Iterator[str]:
    yield ""
    yield coloured(name, "dim", sys.stdout)
    yield from _indented(text)


def _indented(text: str) -> Iterator[str]:
    for line in clean_text(text).rstrip("\n").split("\n"):
        yield f"    {line}".rstrip()
