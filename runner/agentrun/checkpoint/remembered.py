"""What an item remembers of its earlier attempts: the results of its steps, and the answers it was given.

A step is identified by its name and how often the attempt asked for that name before; an answer by the words of the
question and how often they were asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentrun.agents.messages import Answer
from agentrun.checkpoint.record import Record

SHOWN = 5


@dataclass(slots=True)
class Remembered:
    """The memory of one item in one generation."""

    steps: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    """By name and occurrence: which call of its attempt it was, and its result as JSON text."""
    answers: dict[tuple[str, int], Answer] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Remembered:
        found = cls()
        asked: Counter[str] = Counter()
        for record in records:
            if record.kind == "step":
                found.add(record.name, record.n, record.no, bytes(record.output).decode())
            elif record.answer is not None:
                found.answers[record.asked, asked[record.asked]] = record.answer
                asked[record.asked] += 1
        return found

    def add(self, name: str, n: int, no: int, output: str) -> None:
        self.steps[name, n] = (no, output)

    @property
    def next_question(self) -> int:
        return len(self.answers) + 1


class Recall:
    """One attempt going through what its item remembers."""

    def __init__(self, remembered: Remembered) -> None:
        self.remembered = remembered
        self.warning = ""
        self._asked: Counter[str] = Counter()
        self._questions: Counter[str] = Counter()
        self._begun: dict[tuple[str, int], int] = {}
        self._calls = 0
        self._names_at = {no: name for (name, _), (no, _) in remembered.steps.items()}

    def step(self, name: str) -> tuple[int, str | None]:
        """The occurrence that this is, and the result if it is remembered."""
        n, no = self._asked[name], self._calls
        self._asked[name] += 1
        self._calls += 1
        self._begun[name, n] = no
        known = self.remembered.steps.get((name, n))
        if not self.warning:
            self._compare(name, no, None if known is None else known[0])
        return n, None if known is None else known[1]

    def _compare(self, name: str, no: int, was: int | None) -> None:
        # Steps side by side may end in any order: what counts is the order in which they were begun.
        other = self._names_at.get(no)
        if was == no or (was is None and other is None):
            return
        before = [self._names_at[at] for at in sorted(self._names_at)]
        shown = ", ".join(before[:SHOWN]) + (", …" if len(before) > SHOWN else "")
        self.warning = f"its steps differ from last time: step {no + 1} is {name!r} now, and these are known: {shown}"

    def keep(self, name: str, n: int, output: str) -> int | None:
        """Remember a result; which call it was, or None if nobody asked for it before."""
        no = self._begun.get((name, n))
        if no is not None:
            self.remembered.add(name, n, no, output)
        return no

    def answer(self, question: str) -> Answer | None:
        occurrence = self._questions[question]
        self._questions[question] += 1
        return self.remembered.answers.get((question, occurrence))
