"""One item as anyone may see it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from sys import intern
from typing import Any, Literal

from msgspec import structs, to_builtins

from agentrun.agents.failure import Failure
from agentrun.agents.messages import Answer
from agentrun.checkpoint.record import NOTHING, Edited, PublishedFile, Record
from agentrun.checkpoint.record import Question as Question
from agentrun.checkpoint.record import Try as Try
from agentrun.money.usage import Usage
from agentrun.values.clock import time_text

State = Literal["done", "failed", "skipped", "waiting", "running", "pending"]


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item: its state, and the newest record that counts, if it has one."""

    index: int
    key: str
    state: State
    record: Record | None = None
    changed: bool = False
    """Pending because its content differs from that of its last record."""
    slot: int | None = None
    """While it runs: its slot, and so the log that it writes to."""
    gen: int = 0
    """How often it was started over on purpose."""

    @property
    def question(self) -> Question | None:
        """What a waiting item asks."""
        asked = self.record.question if self.record is not None and self.state == "waiting" else None
        return asked if isinstance(asked, Question) else None

    @property
    def output(self) -> Any:
        """The result of an item that is done; otherwise None."""
        return self.record.value if self.record is not None else None

    @property
    def is_empty(self) -> bool:
        """Whether it is done with an empty output."""
        return self.state == "done" and self.record is not None and self.record.is_empty

    @property
    def usage(self) -> Usage | None:
        """What this generation has used, as far as that was reported."""
        return self.record.usage if self.record is not None else None

    @property
    def cost(self) -> float | None:
        """In US dollars; None if none was reported."""
        return self.usage.cost if self.usage is not None else None

    @property
    def edited(self) -> Edited | None:
        """Who corrected the output by hand, and when."""
        return self.record.edited if self.record is not None else None

    @property
    def files(self) -> list[PublishedFile]:
        """The files that it left."""
        return list(self.record.files) if self.record is not None else []

    @property
    def seconds(self) -> float:
        """How long its last attempt took."""
        return self.record.seconds if self.record is not None else 0.0

    @property
    def attempts(self) -> int:
        """How many attempts it took in the launch that settled it."""
        # Of many only the last are kept; they are numbered.
        return self.tries[-1].number if self.record is not None else 0

    @property
    def tries(self) -> list[Try]:
        """The attempts that are kept, oldest first."""
        if self.record is None:
            return []
        one = Try(launch=self.record.launch, number=1, at=self.at, seconds=self.seconds)
        return list(self.record.tries) or [one]

    @property
    def at(self) -> float:
        """When its first attempt began, in seconds since the epoch."""
        return self.record.at if self.record is not None else 0.0

    @property
    def ended_at(self) -> float:
        """When its last attempt ended, in seconds since the epoch; 0 without one."""
        return self.tries[-1].at + self.tries[-1].seconds if self.record is not None else 0.0

    @property
    def agent(self) -> str:
        """The fingerprint of the agent that made its record."""
        return self.record.agent if self.record is not None else ""

    @property
    def failure(self) -> Failure | None:
        """The facts, of an item that failed or was skipped."""
        return self.record.error if self.record is not None else None

    @property
    def cause(self) -> str:
        """One line: why it failed or was skipped."""
        return self.failure.cause if self.failure is not None else ""

    def brief(self) -> ItemView:
        """The item with what `as_json` shows and without all that may be large, for those who hold many."""
        record = self.record
        if record is None:
            return self
        asked, error = record.question, record.error
        slim = structs.replace(
            record,
            hash="",
            agent=intern(record.agent),
            question=structs.replace(asked, details={}) if isinstance(asked, Question) else asked,
            error=structs.replace(error, traceback="") if error is not None else None,
            warning="",
            carry=None,
            files=[],
            output=NOTHING,
        )
        return replace(self, record=slim)

    def as_json(self) -> dict[str, Any]:
        """What a list of items shows."""
        return {
            "index": self.index,
            "key": self.key,
            "state": self.state,
            "attempts": self.attempts,
            "seconds": self.seconds,
            "ended_at": time_text(self.ended_at) or None,
            "agent": self.agent,
            "cause": self.cause,
            "changed": self.changed,
            "cost": self.cost,
            "question": self.question.text if self.question is not None else "",
        }


@dataclass(frozen=True, slots=True)
class StepView:
    """A finished step of an item, or an answer that it was given."""

    kind: Literal["step", "answer"]
    at: float
    seconds: float
    name: str = ""
    n: int = 0
    output: Any = None
    view: str = ""
    """The output in a few words, where it is not for people."""
    question: int = 0
    """The number of the question that was answered."""
    answer: Answer | None = None

    @classmethod
    def of(cls, record: Record) -> StepView:
        if record.kind == "step":
            return cls("step", record.at, record.seconds, record.name, record.n, record.value, record.view)
        number = record.question if isinstance(record.question, int) else 0
        return cls("answer", record.at, record.seconds, question=number, answer=record.answer)

    def as_json(self) -> dict[str, Any]:
        common = {"kind": self.kind, "at": time_text(self.at), "seconds": self.seconds}
        if self.kind == "step":
            return common | self.as_output() | {"n": self.n}
        assert self.answer is not None
        return common | {"question": self.question, "answer": to_builtins(self.answer)}

    def as_output(self) -> dict[str, Any]:
        """The name and the output of a step, with its view if it has one."""
        return {"name": self.name, "output": self.output} | ({"view": self.view} if self.view else {})
