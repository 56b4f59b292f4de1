"""The runner's end of one attempt's channel: it answers the attempt's messages.

The vocabulary and the messages are in `agents/attempt.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from agentrun.agents.attempt import Attempt
from agentrun.agents.failure import Failure
from agentrun.agents.messages import (
    STEP_LIMIT_BYTES,
    Answered,
    Ask,
    Carry,
    EntriesGet,
    EntryAdd,
    KnownEntries,
    KnownStep,
    Log,
    Message,
    Park,
    Progress,
    Received,
    Refused,
    Reply,
    StepGet,
    StepPut,
    Stray,
    Used,
    Warn,
)
from agentrun.checkpoint.record import Question, Record
from agentrun.checkpoint.remembered import Recall, Remembered
from agentrun.launch.capped import over_budget
from agentrun.launch.progress import TEXT_LIMIT
from agentrun.money.usage import Reported, Usage
from agentrun.runs.units import Work
from agentrun.values.clock import now_text
from agentrun.values.json import decode, encode

if TYPE_CHECKING:
    from agentrun.runs.run import Run


VIEW_LIMIT = 2000


class LaunchSide(Protocol):
    """What the runner ends of a launch share."""

    run: Run

    async def commit_step(self, work: Work, record: Record) -> None:
        """Return when the record is on disk."""

    def log(self, slot: int, text: str) -> None:
        """Write to the item's log."""

    def report_progress(self, key: str, text: str) -> None:
        """Show people what the item is doing."""

    def warn(self, text: str) -> None:
        """Tell the launch's watchers, unless they were told the same before."""

    def commit_usage(self) -> Awaitable[None]:
        """Return when what items in flight have used is on disk."""

    def miss_price(self, reported: Reported) -> None:
        """Note that the price of something that was used is not known."""


@dataclass(slots=True, eq=False)
class RunnerEnd:
    """The runner's end of one attempt's channel. Most attempts send nothing."""

    _launch: LaunchSide
    _slot: int
    work: Work
    _attempt: Attempt
    _remembered: Remembered | None
    _recall: Recall | None = None
    is_open: bool = True
    """Set to False when the attempt is over: every message is refused from then on."""
    carry: Any = None
    carry_set: bool = False
    warning: str = ""
    """How the steps differ from those that the item remembers."""
    question: Question | None = None
    """The question that a person must answer before the item can continue."""
    usage: Usage | None = None
    """The usage that this attempt reported."""
    failure: Failure | None = None
    """Why the attempt has failed, whatever it returns."""
    is_over: asyncio.Event | None = None
    """Set when the item has used more than it may; None if it has no budget."""
    committing: int = 0
    """How many of its records may be on their way to disk: also those whose sender was cancelled."""
    _heard: int = 0
    """How many messages have arrived."""

    @property
    def recall(self) -> Recall:
        if self._recall is None:
            self._recall = Recall(self._remembered or Remembered())
        return self._recall

    async def answer(self, message: Message) -> Reply:
        """The reply to a message; `Refused` for one that makes no sense now, `Stray` for one that is not this
        attempt's next."""
        if not self.is_open:
            return Refused("this attempt is over")
        if message.no != self._heard + 1 or message.id != self._attempt.id:
            return self._refuse_stray(message)
        self._heard += 1
        try:
            match message:
                case Log(text):
                    self._launch.log(self._slot, text)
                case Progress(text):
                    self.work.doing = text[:TEXT_LIMIT]
                    self._launch.report_progress(self.work.item.key, text)
                case Warn(text):
                    self._launch.log(self._slot, f"[agentrun] {text}")
                    self._launch.warn(text)
                case Carry(value):
                    self.carry, self.carry_set = value, True
                case Used(reported):
                    self._charge(reported)
                    if self.is_over is not None:
                        await self._keep_to_budget(self.is_over)
                case StepGet():
                    return self._get_step(message)
                case StepPut():
                    await self._put_step(message)
                case EntriesGet(name):
                    return KnownEntries(self.recall.remembered.entries(name))
                case EntryAdd():
                    await self._add_entry(message)
                case Ask():
                    return self._ask(message)
        except ValueError as error:
            return Refused(str(error))
        return Received()

    def _refuse_stray(self, message: Message) -> Stray:
        """Nothing that follows can be trusted: this attempt is lost."""
        if message.id != self._attempt.id:
            why = "a message of another attempt arrived in place of the agent's, so the attempt was ended"
        else:
            why = f"message {message.no} of the agent arrived in place of {self._heard + 1}, so the attempt was ended"
        self.failure = self.failure or Failure("lost", why)
        return Stray(why)

    # ---- steps

    def _get_step(self, step: StepGet) -> KnownStep:
        warned = self.recall.warning
        n, known = self.recall.step(step.name, step.request)
        if known is None:
            self.work.doing = step.name
        elif step.request is not None and known.request not in ("", step.request):
            self._say(f"step {step.name!r} is given something else than before; its remembered result is used")
        if self.recall.warning and not warned:
            self.warning = self.recall.warning
            self._say(f"{self.recall.warning}; steps are matched by name and occurrence")
        return KnownStep(n, known is not None, known.output if known is not None else None)

    async def _put_step(self, step: StepPut) -> None:
        text = _step_output(step.name, step.output)
        known = self.recall.keep(step.name, step.n, text.decode())
        if known is None:
            raise ValueError(f"step_put of {step.name!r} {step.n} does not follow a step_get of it")
        # What a record cannot hold would be read as damage: JSON has no NaN and no infinity.
        seconds = round(step.seconds, 4) if 0 <= step.seconds < 1e12 else 0.0
        record = self._launch.run.record_of_step(self.work, name=step.name, n=step.n, seconds=seconds, output=text)
        record.no, record.request, record.view = known.no, known.request, _short(step.view)
        await self._commit(record)
        self.work.doing = ""

    async def _add_entry(self, entry: EntryAdd) -> None:
        text = _step_output(entry.name, entry.output)
        # Numbered and handed over without waiting in between: entries reach the disk in the order of their numbers.
        n = self.recall.add(entry.name, text.decode())
        record = self._launch.run.record_of_step(self.work, name=entry.name, n=n, seconds=0.0, output=text)
        record.view = _short(entry.view)
        await self._commit(record)

    async def _commit(self, record: Record) -> None:
        self.committing += 1
        await self._launch.commit_step(self.work, record)
        # Not if this is cancelled: the record is written all the same.
        self.committing -= 1

    def _say(self, text: str) -> None:
        self._launch.log(self._slot, f"[agentrun] {text}")

    # ---- people

    def _ask(self, ask: Ask) -> Answered | Park:
        answer = self.recall.answer(ask.question, ask.key)
        if answer is not None:
            return Answered(answer)
        if self.question is None:
            self.question = Question(
                n=self.recall.remembered.next_question,
                text=ask.question,
                details=dict(ask.details),
                at=now_text(),
                key=ask.key,
            )
        return Park()

    # ---- money

    def _charge(self, reported: Reported) -> None:
        from agentrun.money.prices import price

        cost = price(reported, self._launch.run.job.prices)
        if cost is None:
            self._launch.miss_price(reported)
        usage = Usage.of(replace(reported, cost=cost))
        if not self._launch.run.purse.totals.has_room_for(usage):
            why = "usage: the run's total would be over 2**53; report tokens as whole numbers and costs in US dollars"
            self.failure = Failure("exception", why, types=("agentrun.errors.Fail",))
            raise ValueError(why)
        self.usage = self.usage or Usage()
        self.usage.add(usage)
        self._launch.run.purse.charge(self.work.row, usage)

    async def _keep_to_budget(self, is_over: asyncio.Event) -> None:
        """End an attempt whose item has used more than it may; else what it used is on disk before it continues."""
        if why := self._launch.run.over_budget(self.work):
            self.failure = self.failure or over_budget(why)
            is_over.set()
            raise ValueError(why)
        await self._launch.commit_usage()


def _step_output(name: str, output: str) -> bytes:
    """The result of a step, as a record holds it."""
    if len(output) > STEP_LIMIT_BYTES:
        fix = "write it to a file in ctx.dir, and return its name"
        raise ValueError(f"step {name!r} returned more than {STEP_LIMIT_BYTES // 1024 // 1024} MiB; {fix}")
    return encode(decode(output.encode()), name=f"step {name!r}")


def _short(view: str) -> str:
    text = view.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= VIEW_LIMIT else text[: VIEW_LIMIT - 1] + "…"
