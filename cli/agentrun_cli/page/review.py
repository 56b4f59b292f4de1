"""Review: the open questions, one at a time, for people who are not programmers.

The address says where a review is: `from` is the first item to look at, `answered` and `later` count what was done. The
form carries the number and the generation of its question, so an answer that comes late answers nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import RedirectResponse, Response

from agentrun.errors import AgentrunError, UsageError
from agentrun.people import desk
from agentrun.people.desk import QuestionView, Selection
from agentrun.values.clock import seconds_of
from agentrun.views.details import read_details
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing
from agentrun_cli.page.asking import NAME_CHARACTERS, changed_details, detail_fields
from agentrun_cli.page.frame import button, clock, counted, document, hidden, note
from agentrun_cli.page.item import INPUT_CHARACTERS, QUESTION_CHARACTERS, input_part, step_part
from agentrun_cli.page.job import continue_part
from agentrun_cli.page.markup import NOTHING, Html, cut, h, join, url
from agentrun_cli.page.visit import Visit, item_mark

_KEYS = (
    ("y", "yes"), ("n", "no"), ("w", "answer in words"), ("e", "edit a detail"), ("s", "skip it for now"),
    ("u", "undo the last answer"), ("Esc", "leave a field"), ("?", "show these keys"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a review is."""

    answered: int
    later: int
    open: int
    """Questions without an answer, also those that were left for later."""

    @property
    def words(self) -> str:
        return f"{self.answered + self.later + 1:,} of {self.answered + self.open:,}"


def review_page(visit: Visit, *, problem: str = "") -> Response:
    """The first open question from `from` on; with `problem`, the one that the form was about, as it was filled in."""
    known, odd = visit.job(), list[str]()
    first = visit.number("item") if problem else visit.number("from")
    with visit.place.items(known, warn=odd.append) as listing:
        todo = [one for one in desk.questions(known, listing) if not one.is_answered]
        question = next((one for one in todo if one.index >= first), None)
        place = _Place(visit.number("answered"), visit.number("later"), len(todo))
        last = listing.find(index=visit.number("last")) if visit.query.get("last") else None
        asking = _question(visit, known, listing, question, place, problem) if question is not None else NOTHING
    body = h(
        "{said}{odd}{asking}",
        said=_said(visit, known, place, last),
        odd=note(" ".join(odd)),
        asking=asking or _nothing(visit, known, place),
    )
    view = visit.place.view(known)
    return document(f"{known.name}: review", body, view=view, tab="review", status=422 if problem else 200)


def _said(visit: Visit, known: KnownJob, place: _Place, last: ItemView | None) -> Html:
    """What came of the last answer, and the way to take it back."""
    if visit.query.get("said") == "closed":
        return note("That question is no longer open: it has an answer, or its item has changed. Nothing was posted.")
    if visit.query.get("said") == "processed":
        return note("That answer is processed already, so it cannot be taken back. Run the item again to change it.")
    verb = {"yes": "Approved", "no": "Refused", "back": "Taken back"}.get(visit.query.get("said", ""))
    if verb is None or last is None:
        return NOTHING
    # It takes back the answer that was just given, and none to a later question of the item.
    fields = {
        "item": last.index,
        "mark": item_mark(last),
        "generation": visit.number("generation"),
        "question": visit.number("question"),
        "answered": place.answered,
        "later": place.later,
    }
    undo = button(url("jobs", known.name, "take-back"), h("Undo <kbd>u</kbd>"), fields, name="undo")
    return h(
        '<div class="card said good" role="status"><span>{verb}: {key}</span>{undo}</div>',
        verb=verb,
        key=cut(last.key, 200),
        undo=undo if verb != "Taken back" else NOTHING,
    )


def _question(
    visit: Visit, known: KnownJob, listing: Listing, question: QuestionView, place: _Place, problem: str
) -> Html:
    view = listing.find(index=question.index)
    assert view is not None
    given = read_details(known, listing, view, input_characters=INPUT_CHARACTERS).given
    asked = question.question
    later = url(
        "jobs",
        known.name,
        "review",
        **{"from": question.index + 1},
        answered=place.answered or "",
        later=place.later + 1,
    )
    fields = {
        "item": question.index,
        "mark": item_mark(view),
        "generation": question.gen,
        "question": asked.n,
        "answered": place.answered,
        "later": place.later,
    }
    return h(
        '<p class="when"><b>{place}</b> · {key} · asked at {at}</p>'
        '<h1 class="ask">{text}</h1>{problem}<div class="two review">'
        '<form id="review" method="post" action="{action}" autocomplete="off">{fields}'
        # Enter in a field sends a form by its first button: this one, which does nothing, and not a Yes.
        '<button class="none" disabled></button>{details}'
        '<label class="words">In words <small>optional</small>'
        '<textarea name="text" id="words" rows="2">\n{words}</textarea></label>'
        '<p class="answers"><button name="yes" value="1" class="yes" aria-keyshortcuts="y">Yes <kbd>y</kbd></button>'
        '<button name="yes" value="0" class="no" aria-keyshortcuts="n">No <kbd>n</kbd></button>'
        '<a class="button" id="later" href="{later}" aria-keyshortcuts="s">Skip for now <kbd>s</kbd></a></p></form>'
        '<section class="given"><h2>Input</h2>{input}{steps}</section></div>{foot}',
        place=place.words,
        key=cut(question.key, 300),
        at=clock(seconds_of(asked.at)),
        text=cut(asked.text, QUESTION_CHARACTERS),
        problem=h('<p class="card said bad" role="alert">{problem}</p>', problem=problem) if problem else NOTHING,
        action=url("jobs", known.name, "answer"),
        fields=hidden(fields),
        details=detail_fields(asked.details, visit.form if problem else {}),
        words=visit.form.get("text", "") if problem else "",
        later=later,
        input=input_part(given),
        steps=join(step_part(step) for step in question.steps),
        foot=_foot(visit, known, question.index, place),
    )


def _foot(visit: Visit, known: KnownJob, first: int, place: _Place) -> Html:
    keys = join(h("<dt><kbd>{key}</kbd></dt><dd>{words}</dd>", key=key, words=words) for key, words in _KEYS)
    return h(
        '<div class="foot"><details id="keys"><summary>Keys <kbd>?</kbd></summary><dl class="keylist">{keys}</dl>'
        '<label hidden><input type="checkbox" id="keys-on" checked> Use these keys</label></details>'
        '<form method="post" action="/name">{back}<label>Your name <input name="name" value="{name}" '
        'maxlength="{most}" placeholder="{person}" autocomplete="name"></label><button>Save</button></form></div>',
        keys=keys,
        back=hidden({"job": known.name, "from": first, "answered": place.answered, "later": place.later}),
        name=visit.by,
        most=NAME_CHARACTERS,
        person=desk.person(),
    )


def _nothing(visit: Visit, known: KnownJob, place: _Place) -> Html:
    """At the end of a review, or where nothing waits."""
    view = visit.place.view(known)
    if place.open:
        again = url("jobs", known.name, "review", answered=place.answered or "")
        return h(
            '<h1>You have seen them all</h1><p class="stands">{open} left.</p><p>'
            '<a class="button main" href="{again}">Review {them}</a></p>',
            open=f"{counted(place.open, 'question')} {'is' if place.open == 1 else 'are'}",
            again=again,
            them="it" if place.open == 1 else "them",
        )
    title = f"{counted(place.answered, 'answer')} posted" if place.answered else "Nothing waits for an answer"
    words = "The runner at work takes answers up within two seconds, and may ask more."
    if view.status != "running":
        words = "The items that were answered continue with the next launch." if view.posted.get("answer") else ""
    return h(
        '<h1>{title}</h1><p class="stands">{words}</p>'
        '<div class="actions">{go}<a class="button" href="{href}">To the job</a></div>',
        title=title,
        words=words,
        go=continue_part(known, view),
        href=url("jobs", known.name),
    )


# ---- what the buttons do


def answer(visit: Visit) -> Response:
    """Answer the question that the form was made for, and go on to the next one."""
    known, number = visit.job(), visit.number("item")
    yes = visit.form.get("yes")
    if yes not in ("0", "1"):
        raise UsageError("the form says neither yes nor no; nothing was posted")
    counts = {"answered": visit.number("answered"), "later": visit.number("later")}
    with visit.place.items(known) as listing:
        view = listing.find(index=number)
        asked = view.question if view is not None and item_mark(view) == visit.form.get("mark") else None
        is_open = asked is not None and view is not None and _is_open(visit, known, view)
        if not is_open:
            return _next(known, number + 1, said="closed", **counts)
        assert view is not None and asked is not None
        try:
            desk.answer(
                known,
                Selection(indexes=[number]),
                yes=yes == "1",
                text=visit.form.get("text", "").replace("\r\n", "\n").strip(),
                details=changed_details(asked.details, visit.form),
                is_typed=True,
                asked=(view.key, view.gen, asked.n),
                by=visit.by,
                listing=listing,
            )
        except AgentrunError as error:
            # Also a full disk: what was typed must not be lost with it.
            problem = error.message
        else:
            counts["answered"] += 1
            said, which = "yes" if yes == "1" else "no", {"last": number, "generation": view.gen, "question": asked.n}
            return _next(known, number + 1, said=said, **which, **counts)
    return review_page(visit, problem=problem)


def _is_open(visit: Visit, known: KnownJob, view: ItemView) -> bool:
    """Whether the item still asks what the form was about, and nobody has answered."""
    asked = view.question
    if asked is None or (visit.number("generation", -1), visit.number("question", -1)) != (view.gen, asked.n):
        return False
    return not desk.is_answered(known, QuestionView(view.index, view.key, view.gen, asked))


def take_back(visit: Visit) -> Response:
    """Take back the answer that was just given, and show its question again."""
    known, counts = visit.job(), {"answered": visit.number("answered"), "later": visit.number("later")}
    with visit.place.items(known) as listing:
        view = visit.item(listing)
        try:
            asked = (view.key, visit.number("generation", -1), visit.number("question", -1))
            desk.take_back(known, Selection(indexes=[view.index]), asked=asked, listing=listing)
        except UsageError:
            return _next(known, view.index + 1, said="processed", **counts)
    counts["answered"] = max(counts["answered"] - 1, 0)
    return _next(known, view.index, said="back", last=view.index, **counts)


def _next(known: KnownJob, first: int, **query: object) -> Response:
    shown = {name: value or "" if name in ("answered", "later") else value for name, value in query.items()}
    return RedirectResponse(url("jobs", known.name, "review", **{"from": first}, **shown), 303)
