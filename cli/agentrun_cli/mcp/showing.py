"""Views as the tools show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrun.errors import UsageError
from agentrun.people.desk import QuestionView
from agentrun.values.clock import time_text
from agentrun.views.details import InputView
from agentrun.views.details import ItemDetails as Details
from agentrun.views.item import ItemView, StepView
from agentrun.views.jobs import JobView
from agentrun_cli.mcp import shapes
from agentrun_cli.mcp.texts import CUT_CHARACTERS, PAGE_CHARACTERS, Texts, brief, encodable

IN_FLIGHT_SHOWN = 20
INPUT_LIMIT_BYTES = 16 << 20
"""Of a file that an item is given, so much is read."""


def job_line(view: JobView) -> shapes.JobLine:
    return shapes.JobLine(**_line(view))


def job_status(view: JobView) -> shapes.JobStatus:
    stopped, pace, paused, holder = view.stopped, view.pace, view.paused, view.holder
    notes = []
    if len(view.running) > IN_FLIGHT_SHOWN:
        notes.append(f"{len(view.running)} items are in flight; these are the first {IN_FLIGHT_SHOWN}")
    return shapes.JobStatus(
        **_line(view),
        why=encodable(view.why),
        hint=encodable(stopped.hint) if stopped is not None else "",
        resume_at=stopped.resume_at if stopped is not None else "",
        started_at=view.started_at,
        launches=view.launches,
        runner=encodable(f"pid {holder.pid} on {holder.host}, since {holder.since}") if holder is not None else "",
        running=[
            shapes.InFlight(index=one.index, key=encodable(one.key), since=one.since)
            for one in view.running[:IN_FLIGHT_SHOWN]
        ],
        paused=encodable(f"{paused.reason}, until {paused.until}") if paused is not None else "",
        per_minute=pace.per_second * 60 if pace is not None else None,
        left_seconds=pace.left_seconds if pace is not None else None,
        tokens=view.tokens,
        budget_usd=view.budget,
        token_budget=view.token_budget,
        posted=dict(view.posted),
        output=encodable(view.output) if view.output is not None else None,
        notes=notes,
    )


def _line(view: JobView) -> dict[str, Any]:
    return {
        "job": view.job,
        "status": view.status,
        "total": view.total,
        "counts": {state: count for state, count in view.counts.items() if count},
        "cost_usd": view.cost,
        "updated_at": view.updated_at,
        "problem": encodable(view.problem),
    }


def item_line(view: ItemView) -> shapes.ItemLine:
    return shapes.ItemLine(
        index=view.index,
        key=encodable(view.key),
        state=view.state,
        attempts=view.attempts,
        seconds=view.seconds,
        ended_at=time_text(view.ended_at) or None,
        cost_usd=view.cost,
        cause=brief(view.cause),
        question=brief(view.question.text) if view.question is not None else "",
    )


def asked(question: QuestionView, texts: Texts) -> shapes.Asked:
    details = {
        encodable(name): texts.value(f"details.{name}", value) for name, value in question.question.details.items()
    }
    return shapes.Asked(
        index=question.index,
        key=encodable(question.key),
        question=question.question.n,
        generation=question.gen,
        text=texts.text("question", question.question.text),
        details=details,
        asked_at=question.question.at or None,
        answered=question.is_answered,
    )


def item_details(details: Details, question: QuestionView | None, texts: Texts) -> shapes.ItemDetails:
    """Everything about an item; `question` is the one that it waits with."""
    view, failure = details.view, details.view.failure
    return shapes.ItemDetails(
        job=details.job,
        index=view.index,
        key=encodable(view.key),
        state=view.state,
        generation=view.gen,
        input=_input(details.given, texts) if details.given is not None else None,
        output=texts.value("output", view.output) if view.state == "done" else None,
        files=[encodable(one.path) for one in view.files],
        cause=texts.text("cause", view.cause) if view.cause else "",
        traceback=texts.text("traceback", failure.traceback) if failure is not None and failure.traceback else "",
        asks=asked(question, texts) if question is not None else None,
        steps=_steps(details.steps, texts),
        attempts=[
            shapes.Attempt(
                launch=one.launch, number=one.number, at=time_text(one.at), seconds=one.seconds, cause=brief(one.cause)
            )
            for one in view.tries
        ],
        cost_usd=view.cost,
        edited_by=encodable(view.edited.by) if view.edited is not None else "",
        log=texts.text("log", "\n".join(details.log_lines)) if details.log_lines else "",
        notes=texts.notes,
    )


def _input(given: InputView, texts: Texts) -> shapes.Input:
    if given.path is None:
        if given.text is not None:
            return shapes.Input(text=texts.text("input", given.text))
        return shapes.Input(data=texts.value("input", given.data))
    path = encodable(str(given.path))
    if given.problem:
        return shapes.Input(path=path, problem=given.problem)
    if "\0" in given.begins:
        return shapes.Input(path=path, bytes=given.bytes, problem="not a text file; it is not shown")
    if given.bytes > INPUT_LIMIT_BYTES:
        texts.notes.append(f"the file has {given.bytes:,} bytes; only the first {INPUT_LIMIT_BYTES:,} can be read here")
    return shapes.Input(path=path, bytes=given.bytes, text=texts.text("input", given.begins))


def _steps(steps: Sequence[StepView], texts: Texts) -> list[shapes.Step]:
    """As many of the steps as a page holds; the others can be read one by one."""
    shown: list[shapes.Step] = []
    for number, step in enumerate(steps):
        is_full, noted = texts.length >= PAGE_CHARACTERS, len(texts.notes)
        one = _step(step, f"steps.{number}", texts)
        if is_full:
            del texts.notes[noted:]
        else:
            shown.append(one)
    if len(shown) < len(steps):
        texts.notes.append(
            f"{len(steps) - len(shown)} of {len(steps)} steps are left out; read one with part, "
            f'from part="steps.{len(shown)}" to part="steps.{len(steps) - 1}"'
        )
    return shown


def _step(step: StepView, name: str, texts: Texts) -> shapes.Step:
    if step.answer is not None:
        said = step.answer
        text = texts.text(name, said.text) if said.text else ""
        return shapes.Step(kind="answer", question=step.question, yes=said.yes, text=text, by=encodable(said.by))
    return shapes.Step(kind="step", name=encodable(step.name), output=texts.value(name, step.view or step.output))


def part_of(details: shapes.ItemDetails, texts: Texts, name: str, start: int) -> shapes.ItemDetails:
    """The item with one of its texts alone, from a character on."""
    if name not in texts.whole:
        raise UsageError(f"{details.key}: has no text {name[:100]}; it has {', '.join(texts.whole) or 'none'}")
    whole = texts.whole[name]
    text = whole[start : start + CUT_CHARACTERS]
    end = start + len(text)
    part = shapes.Part(
        name=name, start=start, length=len(whole), text=text, next_start=end if text and end < len(whole) else None
    )
    return shapes.ItemDetails(
        job=details.job,
        index=details.index,
        key=details.key,
        state=details.state,
        generation=details.generation,
        part=part,
    )
