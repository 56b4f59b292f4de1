"""The questions of waiting items, as people see them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrun.views.finding import KnownJob
    from agentrun.views.item import Question, StepView


DETAIL_LINES, DETAIL_CHARACTERS, STEP_CHARACTERS = 12, 1500, 100


def question_lines(question: Question | None, steps: Iterable[StepView], *, full: bool = False) -> Iterator[str]:
    """The question, its details and the steps so far. Long details are cut, unless `full`."""
    from agentrun_cli.terminal import clean, clean_text, coloured

    if question is not None:
        for line in clean_text(question.text).split("\n"):
            yield "  " + coloured(line, "bold", sys.stdout)
        for name, value in question.details.items():
            yield from _detail_lines(clean(name, limit=100), value, full=full)
    for step in steps:
        yield from _step_lines(step, full=full)


def _detail_lines(name: str, value: Any, *, full: bool) -> Iterator[str]:
    from agentrun_cli.terminal import clean_text, coloured, counted

    text = clean_text(shown_value(value))
    label = coloured(f"{name}:", "dim", sys.stdout)
    if "\n" not in text and len(text) <= 80:
        yield f"  {label} {text}"
        return
    yield f"  {label}"
    lines = text.rstrip("\n").split("\n")
    shown = lines if full else _cut(lines)
    for line in shown:
        yield f"    {line}"
    if len(shown) < len(lines) or shown[-1] != lines[len(shown) - 1]:
        left = len(lines) - len(shown)
        more = counted(left, "more line") if left else "cut"
        yield "    " + coloured(f"… ({more})", "dim", sys.stdout)


def _cut(lines: list[str]) -> list[str]:
    kept: list[str] = []
    room = DETAIL_CHARACTERS
    for line in lines[:DETAIL_LINES]:
        kept.append(line[:room])
        room -= len(line)
        if room <= 0:
            break
    return kept


def _step_lines(step: StepView, *, full: bool) -> Iterator[str]:
    from agentrun_cli.terminal import clean, clean_text, coloured

    if step.answer is not None:
        words = f": {clean(step.answer.text)}" if step.answer.text else ""
        label = f"question {step.question}:"
        what = f"{'approved' if step.answer.yes else 'refused'} by {clean(step.answer.by)}{words}"
    else:
        label = f"step {clean(step.name, limit=100)}:"
        shown = step.view or shown_value(step.output)
        what = clean(shown.strip(), limit=STEP_CHARACTERS)
        if full:
            yield "  " + coloured(label, "dim", sys.stdout)
            for line in clean_text(shown).split("\n"):
                yield f"    {line}"
            return
    yield f"  {coloured(label, 'dim', sys.stdout)} {what}"


def shown_value(value: Any) -> str:
    """Text unchanged, anything else as JSON."""
    import json

    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def how_to_answer(known: KnownJob, key: str, index: int) -> str:
    """The command that answers the item's question, without the answer."""
    from agentrun.people.selecting import words_for

    return f"agentrun answer {known.shown} {words_for(key, index)}"
