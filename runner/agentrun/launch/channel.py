"""The runner's end of one attempt's channel: what the attempt says, and what it is answered.

The messages are those of executors/port.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import structs

from agentrun.checkpoint.record import Question, Record
from agentrun.checkpoint.remembered import Recall, Remembered
from agentrun.money.usage import Usage, check_usage
from agentrun.runs.units import Work
from agentrun.values.clock import now_text
from agentrun.values.json import NotJson, decode, encode

if TYPE_CHECKING:
    from agentrun.runs.run import Run


STEP_LIMIT_BYTES = 16 * 1024 * 1024
QUESTION_LIMIT_BYTES = 1024 * 1024
NAME_LIMIT_BYTES = 1024


class Host(Protocol):
    """What the conversations of a launch have in common."""

    run: Run

    async def keep(self, work: Work, record: Record) -> None:
        """Return when the record is on disk."""

    def log(self, slot: int, text: str) -> None:
        """Into the item's log."""

    def miss_price(self, why: str) -> None:
        """Something was used of which nobody knows the price."""


class Conversation:
    """One attempt's. After `close` nothing that is said counts any more. Most attempts say nothing."""

    __slots__ = (
        "_host", "_is_open", "_recall", "_remembered", "_slot", "carry", "carry_set", "question", "usage", "work",
    )  # fmt: skip

    def __init__(self, host: Host, slot: int, work: Work, remembered: Remembered | None) -> None:
        self._host = host
        self._slot = slot
        self._remembered = remembered
        self._recall: Recall | None = None
        self._is_open = True
        self.work = work
        self.carry: Any = None
        self.carry_set = False
        self.question: Question | None = None
        """What a person is to answer before the item can go on."""
        self.usage: Usage | None = None
        """Of this attempt alone, where it said so."""

    def close(self) -> None:
        self._is_open = False

    @property
    def recall(self) -> Recall:
        if self._recall is None:
            self._recall = Recall(self._remembered or Remembered())
        return self._recall

    @property
    def warning(self) -> str:
        return self._recall.warning if self._recall is not None else ""

    async def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if not self._is_open:
            return {"error": "this attempt is over"}
        try:
            kind = message.get("type")
            if kind == "log":
                self._host.log(self._slot, str(message.get("text", "")))
            elif kind == "carry":
                self.carry, self.carry_set = message.get("value"), True
            elif kind == "usage":
                self._charge(message)
            elif kind == "step_get":
                return self._find_step(message)
            elif kind == "step_put":
                await self._keep_step(message)
            elif kind == "ask":
                return self._ask(message)
            elif kind != "progress":
                return {"error": f"this runner does not know messages of type {kind!r}"}
        except (ValueError, NotJson) as error:
            return {"error": str(error)}
        return {}

    # ---- steps

    def _find_step(self, message: dict[str, Any]) -> dict[str, Any]:
        name, warned = _name(message), self.recall.warning
        n, output = self.recall.step(name)
        if self.recall.warning and not warned:
            self._host.log(self._slot, f"[agentrun] {self.recall.warning}; steps are matched by name and occurrence")
        return {"n": n, "found": False} if output is None else {"n": n, "found": True, "output": output}

    async def _keep_step(self, message: dict[str, Any]) -> None:
        name, n, output = _name(message), message.get("n"), message.get("output")
        if not isinstance(n, int) or not isinstance(output, str):
            raise ValueError(f"step_put of {name!r} needs n, which step_get gave, and output, which is JSON as text")
        if len(output) > STEP_LIMIT_BYTES:
            most = STEP_LIMIT_BYTES // 1024 // 1024
            raise ValueError(f"step {name!r} returned over {most} MiB; keep it in a file in ctx.dir, return its name")
        text = encode(decode(output.encode()), name=f"step {name!r}")
        no = self.recall.keep(name, n, text.decode())
        if no is None:
            raise ValueError(f"step_put of {name!r} {n} does not follow a step_get of it")
        seconds = message.get("seconds")
        # What a record cannot hold would be read as damage: JSON has no NaN and no infinity.
        seconds = round(float(seconds), 4) if isinstance(seconds, int | float) and 0 <= seconds < 1e12 else 0.0
        record = self._host.run.record_of_step(self.work, name=name, n=n, no=no, seconds=seconds, output=text)
        await self._host.keep(self.work, record)

    # ---- people

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        text, details = message.get("question"), message.get("details") or {}
        if not isinstance(text, str) or not text.strip() or not isinstance(details, dict):
            raise ValueError("a question is text, and its details have names")
        if len(encode({"text": text, "details": details}, name="the question")) > QUESTION_LIMIT_BYTES:
            most = QUESTION_LIMIT_BYTES // 1024 // 1024
            raise ValueError(f"the question {text[:60]!r} is over {most} MiB with its details; name a file instead")
        answer = self.recall.answer(text)
        if answer is not None:
            return {"answer": structs.asdict(answer)}
        if self.question is None:
            number = self.recall.remembered.next_question
            self.question = Question(n=number, text=text, details=details, at=now_text())
        return {"park": True}

    # ---- money

    def _charge(self, message: dict[str, Any]) -> None:
        from agentrun.money.prices import price, why_no_price

        used = check_usage(message)
        used["cost"] = price(used)
        if used["cost"] is None:
            self._host.miss_price(why_no_price(used))
        usage = Usage.of(used)
        self.usage = self.usage or Usage()
        self.usage.add(usage)
        self._host.run.purse.charge(self.work.row, usage)


def _name(message: dict[str, Any]) -> str:
    name = message.get("name")
    encoded = name.encode("utf-8", "replace") if isinstance(name, str) else b""
    if not isinstance(name, str) or not 0 < len(encoded) <= NAME_LIMIT_BYTES or encoded.decode() != name:
        raise ValueError(f"a step's name is {str(name)[:60]!r}; it is Unicode text, of 1 to {NAME_LIMIT_BYTES} bytes")
    return name
