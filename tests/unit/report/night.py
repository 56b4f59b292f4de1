"""A night made of records: 200 invoices, a crash, a pause, failures, questions. The same every time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrun.agents.failure import Failure, Place
from agentrun.checkpoint.checkpoint import Stopped
from agentrun.checkpoint.record import Question, Record, Try
from agentrun.money.budget import Totals
from agentrun.money.usage import Usage
from agentrun.store.port import HistoryEvent
from agentrun.values.clock import time_text
from agentrun.views.finding import KnownJob
from unit.made import Made

BEGAN = 1_794_866_640.0
"""16 November 2026, 22:04 UTC."""
HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=http://localhost/x onerror=alert(1)>.txt",
    "\"'><svg onload=alert(1)>&amp;&lt;",
    "](http://localhost/) `code` **bold** | cell | @everyone #1 <!-- x",
    "\x1b[31mred\x1b[0m\u202etxt.exe\u2066",
    "https://example.org/" + "long" * 60,
    "w" * 180,
    "${IFS}$(touch /tmp/owned)`id`;'\"\\",
]
COUNTS = {"done": 179, "failed": 18, "waiting": 3, "pending": 0, "skipped": 0}


class Invoices(Made):
    """The job `invoices`. Eight at a time; killed at 01:30, resumed at 02:20, and out of work at about 06:00."""

    def __init__(self, base: Path, keys: Sequence[str] = (), *, cost: float = 0.016, **values: Any) -> None:
        plain = [f"invoices/2026-{n:04}.txt" for n in range(200 - len(keys))]
        run = {"concurrency": 8, "budget": 4.0}
        super().__init__(base, [*keys, *plain], name="invoices", run=run, **values)
        self.known = KnownJob("invoices", self.store, self.job)
        self.checkpoint.job = "invoices"
        self.random = random.Random(7)
        self.cost = cost
        self.spent = Usage()
        self.lost = 0.31
        self.failing = [*range(7, 200, 25), *range(16, 180, 25), 9, 109, 187]
        self.waiting_rows = [30, 90, 150]

    def play(self) -> Invoices:
        """Write everything down, as launches would have."""
        records = [self.settled(n) for n in range(200)]
        records.sort(key=lambda one: one.at + one.seconds)
        totals = Totals(cost=round((self.spent.cost or 0) + self.lost, 10) if self.cost else None)
        totals.input_tokens, totals.output_tokens = self.spent.input_tokens, self.spent.output_tokens
        totals.requests, totals.lost = self.spent.requests, self.lost if self.cost else 0.0
        context = self.checkpoint.context
        context.launches, context.versions, context.budget = 2, {"2ed1773ad354": 72, "6b354c6f03cd": 107}, 4.0
        self.checkpoint.started_at, self.checkpoint.updated_at = time_text(BEGAN), time_text(BEGAN + 28_900)
        reason = "18 of 200 items failed"
        self.commit(
            *records,
            counts=COUNTS,
            usage=totals,
            stopped=Stopped(at=time_text(BEGAN + 28_900), reason=reason, exit_code=1),
        )
        for at, event, more in (
            (1, "launch", {"run_id": self.run_id, "launch": 1}),
            (12_000, "checkpoint", {"seq": 60}),
            (15_360, "checkpoint", {"seq": 61}),
            (15_361, "restore", {"run_id": self.run_id, "launch": 2}),
            (28_900, "stop", {"launch": 2, "reason": reason}),
        ):
            self.store.note(HistoryEvent(at=time_text(BEGAN + at), event=event, **more))
        return self

    def settled(self, n: int) -> Record:
        """The record of item n: the first 72 in the first launch; slower between midnight and the crash."""
        draw, key = self.random, self.keys[n]
        launch = 1 if n < 72 else 2
        at = BEGAN + 20 + n * 165 if launch == 1 else BEGAN + 15_380 + (n - 72) * 103
        seconds = min(draw.lognormvariate(5.9, 0.7), 11_900 - (at - BEGAN) if launch == 1 else 9_999)
        usage = Usage(cost=round(self.cost * draw.lognormvariate(-0.2, 0.6), 4) if self.cost else None, requests=1)
        usage.input_tokens, usage.output_tokens = draw.randrange(2_000, 9_000), draw.randrange(200, 900)
        self.spent.add(usage)
        about: dict[str, Any] = {"at": at, "seconds": round(seconds, 2), "usage": usage, "launch": launch, "run": 1}
        about["agent"] = "2ed1773ad354" if launch == 1 else "6b354c6f03cd"
        if n % 17 == 4:
            first = Try(
                launch=launch, number=1, at=at, seconds=seconds / 3, cause=f"Retry: 503 from the model, request {n}"
            )
            about["tries"] = [first, Try(launch=launch, number=2, at=at + seconds / 2, seconds=seconds / 2)]
        if n % 20 == 11:
            about["refused"] = 3
        if n in self.waiting_rows:
            question = Question(text="The total is above 9,000: is it right?", details={"total": 9_000 + 37 * n})
            return self.record(key, "waiting", question=question, **about)
        if n in self.failing:
            return self.record(key, "failed", error=self._failure(n), **about)
        return self.record(key, output={"total": n}, **about)

    def _failure(self, n: int) -> Failure:
        kind = self.failing.index(n)
        lines = {
            0: ("agentrun.errors.Fail", f"no IBAN found on page 1 of '{self.keys[n]}'", 18),
            1: ("agentrun.errors.Fail", f"total {n * 17} does not match the sum of lines {n * 17 + 9}", 24),
            2: ("builtins.KeyError", "'supplier'", 31),
        }
        name, message, line = lines[0 if kind < 8 else 1 if kind < 15 else 2]
        code = ("raise Fail(f\"no IBAN found on page 1 of '{item.key}'\")", "raise Fail(…)", 'name = found["supplier"]')
        place = Place("agent.py", line, "extract", code[0 if kind < 8 else 1 if kind < 15 else 2])
        return Failure("exception", message, types=(name,), raised=place)
