"""One item in full: what it was given, what came of it, its attempts, steps and prints, and what changed since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff

import orjson
from starlette.responses import Response

from agentrun.money.usage import format_cost, format_tokens
from agentrun.people.selecting import find_index
from agentrun.values.clock import seconds_of
from agentrun.values.units import format_duration
from agentrun.views.details import InputView, ItemDetails, read_details
from agentrun.views.differences import Difference, difference_before
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView, StepView
from agentrun_cli.page import said
from agentrun_cli.page.frame import button, clock, document, facts, hidden, note, state
from agentrun_cli.page.markup import NOTHING, Html, cut, h, join, url
from agentrun_cli.page.visit import Visit, item_mark

INPUT_CHARACTERS, OUTPUT_CHARACTERS, STEP_CHARACTERS = 20_000, 100_000, 4_000
_FIELDS_MOST, QUESTION_CHARACTERS = 200, 20_000
_COMPARED_BYTES, _CONTEXT_LINES = 256 * 1024, 2


def item_page(visit: Visit) -> Response:
    known, odd = visit.job(), list[str]()
    with visit.place.items(known, warn=odd.append) as listing:
        view = find_index(known, listing, visit.number("index", -1))
        details = read_details(known, listing, view, input_characters=INPUT_CHARACTERS)
        changed = difference_before(known.store, listing, view)
    body = h(
        '{said}{odd}<p class="when">#{index} of {total} items</p><h1>{key} {state}</h1>{facts}<div class="two">'
        "<section><h2>Input</h2>{input}</section><section><h2>{heading}</h2>{outcome}</section></div>"
        "{actions}{changed}{steps}{attempts}{log}",
        said=said.words_of(visit),
        odd=note(" ".join(odd)),
        index=f"{view.index:,}",
        total=f"{details.total:,}",
        key=cut(view.key, 1100),
        state=state(view),
        facts=facts(_facts(details)),
        input=input_part(details.given, details.ran_elsewhere),
        heading=_heading(view),
        outcome=_outcome(known, view),
        actions=_actions(known, view),
        changed=_changed(changed) if changed is not None else NOTHING,
        steps=_steps(details.steps),
        attempts=_attempts(view),
        log=_log(details),
    )
    return document(view.key, body, view=visit.place.view(known), tab="items")


def input_part(given: InputView | None, elsewhere: str = "") -> Html:
    """What the agent was given, for people to read; `elsewhere` is where the last launch was, if not here."""
    if elsewhere and (given is None or given.problem):
        return h('<p class="card blank">Not here; the last launch was on {place}.</p>', place=elsewhere)
    if given is None:
        return h('<p class="card blank">The source no longer has this item.</p>')
    if given.problem:
        return h('<p class="card blank">{path}: {problem}</p>', path=given.path, problem=given.problem)
    if given.path is None:
        return text_part(given.text if given.text is not None else given.data)
    if "\0" in given.begins:
        return h(
            '<p class="card blank">{path}: {bytes} bytes that are not text</p>',
            path=given.path,
            bytes=f"{given.bytes:,}",
        )
    more = given.bytes > len(given.begins.encode())
    return h(
        "{text}{more}",
        text=text_part(given.begins),
        more=h('<p class="more">the beginning of {bytes} bytes</p>', bytes=f"{given.bytes:,}") if more else NOTHING,
    )


def text_part(value: object, characters: int = OUTPUT_CHARACTERS) -> Html:
    """Text as it is, fields by name, anything else as JSON."""
    if (
        isinstance(value, dict)
        and 0 < len(value) <= _FIELDS_MOST
        and all(isinstance(one, str | int | float | bool | None) for one in value.values())
    ):
        rows = ((name, _inline(one)) for name, one in value.items())
        return facts(rows)
    text = shown(value)
    more = (
        h('<p class="more">the first of {count} characters</p>', count=f"{len(text):,}")
        if len(text) > characters
        else NOTHING
    )
    return h('<pre tabindex="0">{text}</pre>{more}', text=text[:characters], more=more)


def shown(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def _inline(value: object) -> Html:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return h('<span class="lines">{text}</span>', text=cut(text, 20_000))


def _facts(details: ItemDetails) -> Iterator[tuple[str, object]]:
    view = details.view
    if view.record is None:
        yield "Attempts", "none yet"
    else:
        yield "Attempts", f"{view.attempts:,}, the last took {format_duration(view.seconds)}"
        yield "Ended", clock(view.ended_at)
    if view.usage is not None:
        cost = f"{format_cost(view.cost)}, " if view.cost else ""
        yield "Used", cost + format_tokens(view.usage)
    if view.agent:
        older = " (an older version)" if details.agent_now and view.agent != details.agent_now else ""
        yield "Agent", f"version {view.agent[:12]}{older}"
    if view.gen:
        yield "Started over", f"{view.gen:,} times" if view.gen > 1 else "once"
    if view.edited is not None:
        yield "Edited", h("by {by} at {at}", by=cut(view.edited.by, 100), at=clock(seconds_of(view.edited.at)))
    if view.record is not None and view.record.warning:
        yield "Warning", cut(view.record.warning, 1000)
    for one in view.files:
        yield "File", f"{one.path} ({one.size:,} bytes)"


def _heading(view: ItemView) -> str:
    return {"failed": "Why it failed", "skipped": "Why it was skipped", "waiting": "Question"}.get(view.state, "Output")


def _outcome(known: KnownJob, view: ItemView) -> Html:
    if view.question is not None:
        href = url("jobs", known.name, "review", **{"from": view.index})
        return h(
            '<p class="card blank">{question}</p><p><a class="button main" href="{href}">Answer it</a></p>',
            question=cut(view.question.text, QUESTION_CHARACTERS),
            href=href,
        )
    if view.failure is not None:
        trace = (
            h('<pre tabindex="0">{trace}</pre>', trace=cut(view.failure.traceback, OUTPUT_CHARACTERS))
            if view.failure.traceback
            else NOTHING
        )
        cause = cut(view.cause, QUESTION_CHARACTERS)
        return h('<p class="card blank bad">{cause}</p>{trace}', cause=cause, trace=trace)
    if view.state == "done":
        return text_part(view.output)
    words = "It is running now." if view.state == "running" else "It has not run yet."
    return h(
        '<p class="card blank">{words}</p>',
        words="It changed; the next launch runs it again." if view.changed else words,
    )


def _actions(known: KnownJob, view: ItemView) -> Html:
    fields = {"item": view.index, "mark": item_mark(view), "generation": view.gen, "state": view.state}
    parts = []
    if view.state == "done":
        # A finished result is paid for: one more click before it is given up.
        again = button(url("jobs", known.name, "redo"), "Discard the result and run again", fields, tone="no")
        parts.append(h("<details><summary>Run it again…</summary>{again}</details>", again=again))
    elif view.state in ("failed", "skipped", "waiting"):
        parts.append(button(url("jobs", known.name, "redo"), "Run it again", fields))
    if view.state in ("failed", "waiting"):
        parts.append(skip_form(known.name, "Skip it", fields))
    return h('<div class="actions">{parts}</div>', parts=join(parts))


def skip_form(job: str, words: str, fields: Mapping[str, object]) -> Html:
    """Skipping settles items without a result, so it takes one more click; a reason is optional."""
    return h(
        '<details><summary>Skip…</summary><form method="post" action="{action}">{fields}'
        '<label>Why? (optional) <input name="reason" maxlength="1000"></label><button>{words}</button></form>'
        "</details>",
        action=url("jobs", job, "skip"),
        fields=hidden(fields),
        words=words,
    )


def _changed(one: Difference) -> Html:
    before, after = one.sizes
    if one.change == "added":
        return h("<section><h2>Since the run before</h2><p>It had no result then.</p></section>")
    if before + after > _COMPARED_BYTES:
        words = f"Too long to compare: {before:,} bytes before, {after:,} after."
        return h("<section><h2>Since the run before</h2><p>{words}</p></section>", words=words)
    signs = {"+": "ins", "-": "del"}
    lines = [line for number, line in enumerate(unified_diff(*one.lines, n=_CONTEXT_LINES, lineterm="")) if number > 1]
    rows = join(h('<span class="{kind}">{line}\n</span>', kind=signs.get(line[:1], ""), line=line) for line in lines)
    return h(
        "<section><h2>Since the run before</h2>"
        '<pre class="diff" tabindex="0" aria-label="What changed">{rows}</pre></section>',
        rows=rows,
    )


def _steps(steps: tuple[StepView, ...]) -> Html:
    if not steps:
        return NOTHING
    return h("<section><h2>Steps</h2>{rows}</section>", rows=join(map(step_part, steps)))


def step_part(step: StepView) -> Html:
    """A finished step, folded; or an answer."""
    if step.answer is not None:
        words = f": {step.answer.text}" if step.answer.text else ""
        verb = "approved" if step.answer.yes else "refused"
        return h(
            '<p class="card step">Question {n}: {verb} by {by}{words}</p>',
            n=step.question,
            verb=verb,
            by=cut(step.answer.by, 100),
            words=cut(words, 2000),
        )
    what = step.view or shown(step.output)
    return h(
        '<details class="card step"><summary><b>{name}</b> <span>{brief}</span></summary>'
        '<pre tabindex="0">{what}</pre></details>',
        name=cut(step.name, 100),
        brief=cut(" ".join(what.split()), 120),
        what=cut(what, STEP_CHARACTERS),
    )


def _attempts(view: ItemView) -> Html:
    if view.record is None:
        return NOTHING
    rows = join(
        h(
            '<tr><td class="num">{launch}</td><td class="num">{number}</td><td>{at}</td>'
            '<td class="num">{took}</td><td class="long">{how}</td></tr>',
            launch=one.launch,
            number=one.number,
            at=clock(one.at),
            took=format_duration(one.seconds),
            how=cut(one.cause, 300) or view.state,
        )
        for one in view.tries
    )
    return h(
        "<section><h2>Attempts</h2>"
        '<div class="card table scroll" tabindex="0" role="region" aria-label="Attempts"><table><thead><tr>'
        '<th class="num">launch</th><th class="num">attempt</th><th>began</th><th class="num">took</th>'
        '<th class="long">how it ended</th>'
        "</tr></thead><tbody>{rows}</tbody></table></div></section>",
        rows=rows,
    )


def _log(details: ItemDetails) -> Html:
    if not details.log_lines:
        return NOTHING
    return h(
        '<section><h2>Log</h2><pre tabindex="0">{lines}</pre></section>',
        lines=cut("\n".join(details.log_lines), 60_000),
    )
