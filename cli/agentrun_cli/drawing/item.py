"""One item in full, for `show`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from agentrun_cli.drawing.table import ITEM_COLOURS, format_took
from agentrun_cli.terminal import ago, clean, clean_text, coloured, counted, shown_path

if TYPE_CHECKING:
    from agentrun.money.usage import Usage
    from agentrun.views.details import InputView, ItemDetails
    from agentrun.views.item import ItemView, StepView, Try


_INPUT_CHARACTERS, _INPUT_LINES = 2000, 12


def item_lines(details: ItemDetails) -> Iterator[str]:
    """All that is known of an item: what it was given, what happened, what came of it."""
    view, failure = details.view, details.view.failure
    yield _line("item", clean(view.key, limit=1100))
    yield _line("index", f"{view.index} (of {details.total:,})")
    yield _line("state", coloured(view.state, ITEM_COLOURS.get(view.state), sys.stdout) + _more(view))
    if view.agent:
        now = details.agent_now
        yield _line("agent", clean(view.agent) + (f" (now {clean(now)})" if now and now != view.agent else ""))
    if view.gen:
        yield _line("generation", f"{view.gen} (times started over)")
    yield from _input_lines(details.given, details.ran_elsewhere)
    yield from _attempt_lines(view.tries)
    if view.usage is not None:
        yield _line("cost", _cost(view.usage))
    if view.record is not None and view.record.warning:
        yield _line("warning", clean(view.record.warning, limit=1000))
    yield from _question_lines(view, details.steps)
    if failure is not None and failure.traceback:
        yield from _block("traceback", failure.traceback)
    elif failure is not None:
        yield from _block("cause", failure.message)
    if view.state == "done":
        yield from _block("output" + _edited(view), _pretty(view.output))
    if view.files:
        sizes = (f"{one.size:>12,}  {clean(one.path, limit=1100)}" for one in view.files)
        yield from _block("files", "\n".join(sizes))
    if details.log_lines and details.log_path is not None:
        yield from _block(f"end of the log ({shown_path(details.log_path)})", "\n".join(details.log_lines))


def _more(view: ItemView) -> str:
    record = view.record
    if view.changed:
        return ", changed since its last result, which no longer counts"
    if record is not None and view.state == "failed" and record.failed_launches > 1:
        return f", in {record.failed_launches} launches"
    if record is not None and view.state == "skipped" and record.by:
        return f", by {clean(record.by, limit=100)}"
    if view.state == "running" and view.tries:
        return " again; what follows is from the previous launch"
    return ""


def _cost(usage: Usage) -> str:
    from agentrun.money.usage import format_cost, format_tokens

    parts = [format_cost(usage.cost)] if usage.cost is not None else ["not known"]
    return ", ".join([*parts, format_tokens(usage), counted(usage.requests, "request")])


def _edited(view: ItemView) -> str:
    from agentrun.values.clock import age_seconds

    edited = view.edited
    return f", corrected by {clean(edited.by, limit=100)} {ago(age_seconds(edited.at))}" if edited is not None else ""


def _question_lines(view: ItemView, steps: Sequence[StepView]) -> Iterator[str]:
    """The question of a waiting item, with its details; the steps and answers."""
    from agentrun_cli.drawing.questions import question_lines

    if view.question is None and not steps:
        return
    yield ""
    label = "question" if view.question else "steps" if view.state in ("done", "skipped") else "so far"
    yield coloured(label, "dim", sys.stdout)
    for line in question_lines(view.question, steps, full=view.question is not None):
        yield f"  {line}"


def _input_lines(given: InputView | None, elsewhere: str) -> Iterator[str]:
    if elsewhere and (given is None or given.problem):
        yield _line("input", f"not here; the last launch was on {clean(elsewhere, limit=300)}")
    elif given is None:
        yield _line("input", "no longer there")
    elif given.path is None:
        yield _line("input", "")
        yield from _indented(_beginning(given.text if given.text is not None else _pretty(given.data)))
    elif given.problem:
        yield _line("input", f"{shown_path(given.path)}: {clean(given.problem)}")
    else:
        yield _line("input", f"{shown_path(given.path)} ({given.bytes:,} bytes)")
        yield from _indented(_beginning(given.begins, cut=given.bytes > _INPUT_CHARACTERS))


def _beginning(text: str, *, cut: bool = False) -> str:
    lines = text[:_INPUT_CHARACTERS].split("\n")
    cut = cut or len(text) > _INPUT_CHARACTERS or len(lines) > _INPUT_LINES
    return "\n".join(lines[:_INPUT_LINES]).rstrip("\n") + ("\n…" if cut else "")


def _attempt_lines(attempts: Sequence[Try]) -> Iterator[str]:
    from agentrun.money.usage import format_cost

    for one in attempts:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.at))
        cause = f"  {clean(one.cause)}" if one.cause else ""
        spent = f"  {format_cost(one.usage.cost)}" if one.usage is not None and one.usage.cost is not None else ""
        place = f"launch {one.launch}, {at}"
        yield _line(f"attempt {one.number}", f"{place}  {format_took(one.seconds):>6}{spent}{cause}")


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
