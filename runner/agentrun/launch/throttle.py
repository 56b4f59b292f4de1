"""How fast the other side lets us go, learned from what it refuses.

A refusal (429, 529, or 503 with Retry-After) says nothing about the item. What it says about the speed depends on how
many of the last attempts were refused:

- under a fifth, or fewer than 4 of the last 50 that ended: only that item waits, as long as it was asked to. Others may
  use the same key;
- from a fifth: one *cut* for each wave of refusals. After 429 that is a *pace*, nine tenths of what was accepted over
  the last 3 s; after 503 and 529 a *number in flight*, nine tenths of what is still in flight when the wave is over;
- from half: besides, everybody waits, as long as was asked, otherwise longer at each cut in a row.

A wave is what had begun before the cut: only a refusal of an attempt that began after it can cause the next one. What
is accepted after a cut makes it faster: the pace by 5 % a second, the number by a tenth a round if it was used. A pace
that was found in less than 3 s is a guess, and grows by 50 % a second until the next cut.

The law is a pure function of what it is told and when; `Gate` makes attempts wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from agentrun.checkpoint.checkpoint import RunContext, Speed
from agentrun.values.units import rate_words

if TYPE_CHECKING:
    from agentrun.launch.slots import Slots

RECENT = 50
SLOWED_FROM, SLOWED_FROM_COUNT = 0.2, 4
SHUT_FROM = 0.5
SPAN_SECONDS = 3.0
KEPT_SHARE = 0.9
LEAST_PACE = 0.1
PACE_GROWTH = 0.05
GUESS_GROWTH = 0.5
"""Of a pace that was found in less than the span: it says how much is accepted at once, and little of how much in a
time."""
NUMBER_GROWTH, IN_USE = 0.1, 0.8
TOLD_SECONDS = 1.0
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 30.0


class Throttle:
    """The law. Times are seconds of one clock; `begun` says when the attempts of the last seconds began, as far as is
    known, before anything was refused."""

    def __init__(self, most: int, now: float, begun: Iterable[float] = ()) -> None:
        self._most = most
        self._since = now
        self._begun = deque(sorted(begun))
        if self._begun:
            self._since = self._begun[0]
        self._refused: deque[float] = deque()
        """When the refused attempts of the last seconds began."""
        self._recent: deque[bool] = deque(maxlen=RECENT)
        """Of the last attempts that ended: whether they were refused."""
        self._cut_at = -1.0
        self._cuts_in_a_row = 0
        self._next_at = 0.0
        self._opens_at = 0.0
        self._number = float(most)
        self.pace: float | None = None
        """How many attempts may begin a second; None if there is no limit."""
        self._pace_growth = PACE_GROWTH
        self.in_flight = 0

    @property
    def number(self) -> int:
        """How many may be in flight."""
        return max(1, int(self._number))

    @property
    def is_narrowed(self) -> bool:
        return self.number < self._most

    @property
    def words(self) -> str:
        """How fast it goes, for people; empty if nothing is limited."""
        words = [rate_words(self.pace)] if self.pace is not None else []
        if self.is_narrowed:
            words.append(f"{self.number:,} of {self._most:,} at a time")
        return ", ".join(words)

    def limit(self, *, pace: float | None, number: int | None) -> None:
        """Begin with these, which were found before."""
        self.pace = pace
        self._number = float(min(number or self._most, self._most))

    def wait(self, now: float) -> float:
        """How long until the next attempt may begin, as far as time decides."""
        return max(self._opens_at, self._next_at if self.pace is not None else 0.0) - now

    # ---- what happens

    def begin(self, now: float) -> None:
        self.in_flight += 1
        self._begun.append(now)
        self._forget(now)
        if self.pace is not None:
            # A timer that was late is made up for, but not a pause.
            self._next_at = max(now - FIRST_WAIT_SECONDS / 10, self._next_at) + 1 / self.pace

    def end(self) -> None:
        """An attempt ended in a way that says nothing."""
        self.in_flight -= 1

    def accept(self, began: float, now: float) -> None:
        self._recent.append(False)
        if began > self._cut_at:
            self._cuts_in_a_row = 0
            if self.in_flight >= IN_USE * self._number:
                grown = max(1.0, NUMBER_GROWTH * self._number) / self._number
                self._number = min(self._most, self._number + grown)
            if self.pace is not None:
                self.pace += self._pace_growth
        self.end()

    def refuse(self, began: float, now: float, *, asked: float | None, is_overload: bool) -> float:
        """Returns how long the refused item itself waits before it asks to begin again."""
        self.end()
        self._recent.append(True)
        self._refused.append(began)
        self._forget(now)
        count = sum(self._recent)
        share = count / len(self._recent)
        if count < SLOWED_FROM_COUNT or share < SLOWED_FROM:
            return asked if asked is not None else FIRST_WAIT_SECONDS
        is_shut = share >= SHUT_FROM
        if is_first := began > self._cut_at:
            self._cut_at = now
            self._cuts_in_a_row += 1
        if is_overload:
            self._lower_number(is_first=is_first)
        else:
            self._lower_pace(now)
        if is_shut:
            self._shut(now, asked)
        if is_first:
            self._recent.clear()
        return 0.0 if is_shut else asked if asked is not None else FIRST_WAIT_SECONDS

    # ---- cuts

    def _lower_number(self, *, is_first: bool) -> None:
        """What is still in flight was accepted: with each refusal of a wave, that is fewer."""
        borne = self.in_flight + 1 if is_first else self.in_flight
        self._number = max(1.0, min(self._number, KEPT_SHARE * borne))

    def _lower_pace(self, now: float) -> None:
        if self.pace is not None and self._cuts_in_a_row > 1:
            return  # it is still shut: that says nothing about the pace
        span = min(SPAN_SECONDS, max(1.0, now - self._since))
        borne = max(1, len(self._begun) - len(self._refused))
        pace = max(LEAST_PACE, KEPT_SHARE * borne / span)
        self.pace = pace if self.pace is None else min(self.pace, pace)
        self._pace_growth = PACE_GROWTH if now - self._since >= SPAN_SECONDS else GUESS_GROWTH

    def _shut(self, now: float, asked: float | None) -> None:
        if asked is None and self._cuts_in_a_row > 1:
            asked = min(FIRST_WAIT_SECONDS * 2 ** (self._cuts_in_a_row - 1), LONGEST_WAIT_SECONDS)
        if asked:
            self._opens_at = max(self._opens_at, now + asked)
            self._next_at = max(self._next_at, self._opens_at)

    def _forget(self, now: float) -> None:
        for times in (self._begun, self._refused):
            while times and times[0] < now - SPAN_SECONDS:
                times.popleft()


class Gate:
    """Attempts enter here before they begin, in order, and leave when they have ended.

    It sets how many slots there are: where fewer may be in flight than there are, items that wait give up theirs.
    """

    def __init__(
        self,
        throttle: Throttle,
        slots: Slots,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self.throttle = throttle
        self.accepted = 0
        self._clock = clock
        self._refused_since: float | None = None
        """Since when all that ended was refused; None if the last was not."""
        self._wall_clock = wall_clock
        self._tell = tell
        self._told, self._told_at = "", 0.0
        self._slots = slots
        self._leaving = 0
        """How many were told to give up their slot, and have not done so yet."""
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._in_turn: deque[asyncio.Future[bool]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        slots.set_width(throttle.number)

    async def enter(self, *, in_turn: bool = False) -> bool:
        """Wait until an attempt may begin, which has begun then; False if its item should give up its slot.

        `in_turn` is for one that was refused because too many were in flight: it begins when another one ends. At any
        other moment it would probably be refused again, while those that follow the ended one are accepted.
        """
        entered = asyncio.get_running_loop().create_future()
        (self._in_turn if in_turn else self._waiting).append(entered)
        self._admit()
        try:
            has_entered: bool = await entered
        except asyncio.CancelledError:
            if entered.done() and not entered.cancelled():
                if entered.result():
                    self.throttle.end()
                else:
                    self._leaving -= 1
            self._admit()
            raise
        self._leaving -= not has_entered
        return has_entered

    def turn_away(self) -> None:
        """The launch stops: nobody who waits begins any more."""
        for queue in (self._waiting, self._in_turn):
            while queue:
                self._turn_away_last(queue)

    @property
    def seconds_refused(self) -> float:
        """For how long everything was refused; 0 while something is in flight that may not be."""
        if self._refused_since is None or self.throttle.in_flight:
            return 0.0
        return self._clock() - self._refused_since

    def leave(self, began: float, *, accepted: bool) -> None:
        """An attempt that was not refused has ended; `accepted` if that says that the other side took it."""
        self._refused_since = None
        if accepted:
            self.accepted += 1
            self.throttle.accept(began, self._clock())
        else:
            self.throttle.end()
        self._admit(has_ended=True)

    def refuse(self, began: float, *, asked: float | None, is_overload: bool) -> float:
        """An attempt was refused; how long its item waits before it enters again."""
        if self._refused_since is None:
            self._refused_since = self._clock()
        seconds = self.throttle.refuse(began, self._clock(), asked=asked, is_overload=is_overload)
        self._admit()
        return seconds

    def _admit(self, *, has_ended: bool = False) -> None:
        """Let in who may begin now, and look again when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        throttle, slots = self.throttle, self._slots
        slots.set_width(throttle.number)
        self._tell_words()
        for queue in (self._waiting, self._in_turn):
            while queue and slots.surplus > self._leaving:
                self._turn_away_last(queue)
        while (has_ended or not throttle.in_flight) and self._in_turn and self._lets_in(self._in_turn):
            has_ended = False
        while self._waiting and self._lets_in(self._waiting):
            pass
        if (self._waiting or self._in_turn) and (seconds := throttle.wait(self._clock())) > 0:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._admit)

    def keep(self, context: RunContext) -> None:
        throttle = self.throttle
        number = throttle.number if throttle.is_narrowed else 0
        context.speed = Speed(at=round(self._wall_clock(), 3), pace=throttle.pace, number=number)

    def _tell_words(self) -> None:
        words, now = self.throttle.words, self._clock()
        if words != self._told and now - self._told_at >= TOLD_SECONDS:
            self._told, self._told_at = words, now
            self._tell(words)

    def _turn_away_last(self, queue: deque[asyncio.Future[bool]]) -> None:
        if not (last := queue.pop()).done():
            last.set_result(False)
            self._leaving += 1

    def _lets_in(self, queue: deque[asyncio.Future[bool]]) -> bool:
        """Whether the first in the queue no longer waits."""
        entered, throttle = queue[0], self.throttle
        if not entered.done():
            if throttle.in_flight >= throttle.number or throttle.wait(now := self._clock()) > 0:
                return False
            throttle.begin(now)
            entered.set_result(True)
        queue.popleft()
        return True
