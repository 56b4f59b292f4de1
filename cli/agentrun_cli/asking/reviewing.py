"""Review the waiting items, one by one. Each answer is posted at once.

1 of 3   letters/ada.txt   asked 5m ago
  Send this draft?
  draft:
    Dear Ada,
    …
  step outline: 3 points: …

[y]es  [n]o  in [w]ords  [e]dit  [v]iew all  [s]kip  [u]ndo  [q]uit: y
approved
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from agentrun.people.desk import Posting, QuestionView
    from agentrun.views.finding import KnownJob
    from agentrun.views.listing import Listing


PROMPT = "[y]es  [n]o  in [w]ords  [e]dit  [v]iew all  [s]kip  [u]ndo  [q]uit: "
_LETTERS = {"a": "y", "r": "n", "b": "u"}
_WORDS = {
    "yes": "y",
    "approve": "y",
    "no": "n",
    "refuse": "n",
    "words": "w",
    "edit": "e",
    "view": "v",
    "skip": "s",
    "undo": "u",
    "back": "u",
    "quit": "q",
}
_Next = Literal["next", "undo", "quit"]


class Review:
    """One review of a job's questions."""

    def __init__(self, known: KnownJob, listing: Listing, by: str) -> None:
        self._known = known
        self._listing = listing
        self._by = by
        self._edited: dict[str, Any] = {}
        """The details of the current question that the person has changed."""
        self._has_answered = False
        """Whether the current question was answered here."""
        self._given: list[tuple[int, QuestionView]] = []
        """The questions that were answered here, the last one last, with their numbers."""
        self.posting: Posting | None = None
        """How the last answer was posted."""
        self.posted = 0
        """Answers posted by this review."""
        self.answered = 0
        """The same, with those that others posted meanwhile."""

    def talk(self, total: int) -> None:
        """Show all waiting items, until the person quits."""
        from agentrun.people import desk
        from agentrun_cli.terminal import clean, put

        questions = enumerate(desk.questions(self._known, self._listing), 1)
        to_ask: list[tuple[int, QuestionView]] = []
        """Asked before what comes next, the last one first."""
        while (one := to_ask.pop() if to_ask else next(questions, None)) is not None:
            number, view = one
            if desk.is_answered(self._known, view):
                self.answered += 1
                put(f"\n{number} of {total}   {clean(view.key)}: already answered, not processed yet")
                continue
            self._show(view, f"{number} of {total}")
            match self._ask(view):
                case "quit":
                    return
                case "undo":
                    to_ask.append(one)
                    if self._undo():
                        to_ask.append(self._given.pop())
                case "next" if self._has_answered:
                    self._given.append(one)

    def _undo(self) -> bool:
        """Take back the last answer of this review; whether that was possible."""
        from agentrun.errors import UsageError
        from agentrun.people import desk
        from agentrun_cli.terminal import clean, put

        if not self._given:
            put("nothing to undo: this review has given no answer yet")
            return False
        _, view = self._given[-1]
        try:
            desk.take_back(self._known, desk.Selection(items=[view.key]))
        except UsageError as error:
            self._given.clear()
            put(clean(error.message))
            return False
        self.posted -= 1
        self.answered -= 1
        put(f"taken back: {clean(view.key)}")
        return True

    def _show(self, view: QuestionView, place: str = "", *, full: bool = False) -> None:
        from agentrun.values.clock import age_seconds
        from agentrun_cli.drawing.questions import question_lines
        from agentrun_cli.terminal import ago, clean, coloured, put

        if place:
            asked = view.question.at
            when = f"   asked {ago(age_seconds(asked))}" if asked else ""
            put(f"\n{place}   {coloured(clean(view.key, limit=1100), 'bold', sys.stdout)}{when}")
        for line in question_lines(view.question, view.steps, full=full):
            put(line)
        put("")

    def _ask(self, view: QuestionView) -> _Next:
        """Ask until it is answered or left for later."""
        from agentrun_cli.asking.confirming import asks
        from agentrun_cli.terminal import clean, put

        self._edited, self._has_answered = {}, False
        while True:
            typed = asks(PROMPT)
            if typed is None:
                return "quit"
            letter = _WORDS.get(typed.lower(), typed.lower())
            match _LETTERS.get(letter, letter):
                case "y":
                    self._post(view, True)
                    edited = f", with {clean(', '.join(self._edited))} as edited" if self._edited else ""
                    put(f"approved{edited}")
                    return "next"
                case "n":
                    self._post(view, False)
                    put("refused")
                    return "next"
                case "w":
                    if self._in_words(view):
                        return "next"
                case "e":
                    self._edit(view)
                case "v":
                    self._show(view, full=True)
                case "s":
                    put("left for later")
                    return "next"
                case "u":
                    return "undo"
                case "q":
                    return "quit"
                case _:
                    put("type one of the letters y, n, w, e, v, s, u or q, then Enter")

    def _post(self, view: QuestionView, yes: bool, text: str = "") -> None:
        from agentrun.people import desk

        selection = desk.Selection(items=[view.key])
        self.posting = desk.answer(self._known, selection, yes=yes, text=text, details=self._edited, by=self._by)
        self._has_answered = True
        self.posted += 1
        self.answered += 1

    def _in_words(self, view: QuestionView) -> bool:
        from agentrun_cli.asking.confirming import asks
        from agentrun_cli.terminal import put

        words = asks("your words (empty: back): ")
        if not words:
            return False
        verdict = asks("is that a yes? [Y/n] ")
        if verdict is None:
            return False
        yes = verdict.lower() in ("", "y", "yes")
        self._post(view, yes, words)
        put("approved, with your words" if yes else "refused, with your words")
        return True

    def _edit(self, view: QuestionView) -> None:
        """Change a detail in the editor; it is posted with the answer."""
        from agentrun.errors import UsageError
        from agentrun_cli.asking.editing import UNCHANGED, edit_value
        from agentrun_cli.terminal import clean, put

        known = view.question.details
        name = self._which(list(known))
        if name is None:
            return
        try:
            value = edit_value(self._edited.get(name, known[name]), name=name)
        except UsageError as error:
            put(clean(error.message))
            return
        if value is UNCHANGED:
            put(f"{clean(name)}: unchanged")
            return
        self._edited[name] = value
        put(f"{clean(name)}: edited; now type y or n")

    def _which(self, names: list[str]) -> str | None:
        from agentrun_cli.asking.confirming import asks
        from agentrun_cli.terminal import clean, put

        if not names:
            put("the question has no details to edit")
            return None
        if len(names) == 1:
            return names[0]
        for number, name in enumerate(names, 1):
            put(f"  {number}  {clean(name, limit=100)}")
        typed = asks("which one? ")
        if typed and typed.isdecimal() and 1 <= int(typed) <= len(names):
            return names[int(typed) - 1]
        if typed in names:
            return typed
        put("no such detail; nothing is edited")
        return None
