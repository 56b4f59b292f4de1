"""What an item remembers of its earlier attempts: the results of its steps, and the answers it was given.

A step is identified by its name and how often the attempt asked for that name before; an answer by the key of the
question, or else by its words and how often they were asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from agentrun.agents.messages import Answer
from agentrun.checkpoint.record import Record

SHOWN = 5


class KnownResult(NamedTuple):
    """The result of a step."""

    no: int
    """Which call of its attempt it was; -1 for a step that its name alone identifies."""
    output: str
    """As JSON text."""
    request: str = ""


@dataclass(slots=True)
class Remembered:
    """The memory of one item in one generation."""

    steps: dict[tuple[str, int], KnownResult] = field(default_factory=dict)
    """By name and occurrence."""
    answers: dict[tuple[str, int], Answer] = field(default_factory=dict)
    """By words and occurrence."""
    answers_by_key: dict[str, Answer] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Remembered:
        found = cls()
        asked: Counter[str] = Counter()
        for record in records:
            if record.kind == "step":
                found.steps[record.name, record.n] = KnownResult(
                    record.no, bytes(record.output).decode(), record.request
                )
            elif record.answer is not None and record.asked_key:
                found.answers_by_key[record.asked_key] = record.answer
            elif record.answer is not None:
                found.answers[record.asked, asked[record.asked]] = record.answer
                asked[record.asked] += 1
        return found

    def entries(self, name: str) -> list[str]:
        """The results of all steps of a name, in order, as JSON text."""
        found = sorted((n, known.output) for (one, n), known in self.steps.items() if one == name)
        return [output for _, output in found]

    @property
    def next_question(self) -> int:
        return len(self.answers) + len(self.answers_by_key) + 1


class Recall:
    """One attempt going through what its item remembers."""

    def __init__(self, remembered: Remembered) -> None:
        self.remembered = remembered
        self.warning = ""
        """How the order of the steps differs from the remembered attempt's order."""
        self._asked: Counter[str] = Counter()
        self._questions: Counter[str] = Counter()
        self._begun: dict[tuple[str, int], tuple[int, str]] = {}
        self._added: dict[str, int] = {}
        self._calls = 0
        self._names_at = {known.no: name for (name, _), known in remembered.steps.items() if known.no >= 0}

    def step(self, name: str, request: str | None = None) -> tuple[int, KnownResult | None]:
        """The occurrence that this is, and the result if it is remembered."""
        n = self._asked[name]
        self._asked[name] += 1
        known = self.remembered.steps.get((name, n))
        if request is not None:
            self._begun[name, n] = (-1, request)
            return n, known
        no = self._calls
        self._begun[name, n] = (no, "")
        self._calls += 1
        if not self.warning:
            self._compare(name, no, None if known is None else known.no)
        return n, known

    def _compare(self, name: str, no: int, was: int | None) -> None:
        # Steps side by side may end in any order: what counts is the order in which they were begun.
        other = self._names_at.get(no)
        if was == no or (was is None and other is None):
            return
        before = [self._names_at[at] for at in sorted(self._names_at)]
        shown = ", ".join(before[:SHOWN]) + (", …" if len(before) > SHOWN else "")
        self.warning = f"its steps differ from last time: step {no + 1} is {name!r} now, and these are known: {shown}"

    def keep(self, name: str, n: int, output: str) -> KnownResult | None:
        """Remember a result; None if nobody asked for it before."""
        begun = self._begun.get((name, n))
        if begun is None:
            return None
        no, request = begun
        known = self.remembered.steps[name, n] = KnownResult(no, output, request)
        return known

    def add(self, name: str, output: str) -> int:
        """Remember an entry; which one of its name it is."""
        if name not in self._added:
            self._added[name] = len(self.remembered.entries(name))
        n = self._added[name]
        self._added[name] += 1
        self.remembered.steps[name, n] = KnownResult(-1, output)
        return n

    def answer(self, question: str, key: str = "") -> Answer | None:
        if key:
            return self.remembered.answers_by_key.get(key)
        occurrence = self._questions[question]
        self._questions[question] += 1
        return self.remembered.answers.get((question, occurrence))
