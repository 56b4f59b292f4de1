"""The purse: what a run has used, and whether its budget has room for another item.

Until the first item has finished with a cost, the cost of an item is unknown, and only one item is in flight. From then
on, each item in flight reserves the cost of the most expensive item so far, and another starts only if all reservations
stay within the budget. At most half as many items are in flight as have finished in this launch: the first few say
little about the rest, and after a crash the interrupted items come first, which may be the expensive ones. Every
checkpoint writes the reservations with `running`. A launch that finds them charges them as lost, because the launch
that died may have spent them. If a more expensive item finishes later, the lost items are charged the difference.

Without a budget nothing is held back and nothing is charged: the cost stays the sum of what was reported. What attempts
that were cut off may have spent is counted beside it (`may_be_lost`), by the same reservations.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from msgspec import Struct, structs

from agentrun.money.usage import Usage, format_cost

_DUST = 1e-9
"""Sums of floats: a budget of 1.00 has room for the tenth item of 0.10."""


class Left(Struct, frozen=True):
    """What was cut off before it could report, by launches that died above all: how many items, what of their cost the
    totals have already (`used`), and what was charged for them since."""

    items: int = 0
    used: float = 0.0
    charged: float = 0.0


class Totals(Usage, omit_defaults=True, kw_only=True):
    """What a whole run has used, with what crashes may have cost, as the checkpoint and the summary keep it."""

    lost: float = 0.0
    """The part of `cost` that was charged for attempts which could not report it."""
    lost_tokens: float = 0.0
    unrecorded: Usage | None = None
    """What attempts used that no record of an item has: of those that were cancelled, or in flight at a crash; and of
    records that were superseded, once compaction has dropped them."""
    dearest: float | None = None
    """The cost of the most expensive item so far."""
    dearest_tokens: float | None = None
    left: Left | None = None
    left_tokens: Left | None = None

    @property
    def may_be_lost(self) -> float:
        """What attempts that were cut off may have cost, in US dollars, besides `cost`; more, if one of them was the
        most expensive so far. 0 under a budget: there it is charged, and part of `cost`."""
        return DOLLARS.uncharged_in(self)

    @property
    def may_be_lost_tokens(self) -> float:
        return TOKENS.uncharged_in(self)

    def as_json(self) -> dict[str, float]:
        more = {"lost": self.lost, "lost_tokens": self.lost_tokens}
        most = {"dearest": self.dearest, "dearest_tokens": self.dearest_tokens}
        perhaps = {"may_be_lost": self.may_be_lost, "may_be_lost_tokens": self.may_be_lost_tokens}
        return super().as_json() | {name: value for name, value in (more | most | perhaps).items() if value}


class Reserved(Protocol):
    """An item that was in flight, with what was reserved for it."""

    @property
    def reserved(self) -> float: ...

    @property
    def reserved_tokens(self) -> float: ...

    @property
    def used(self) -> Usage | None: ...


@dataclass(frozen=True, slots=True)
class _Measure:
    """Dollars or tokens: which fields of the totals hold them."""

    lost: Literal["lost", "lost_tokens"]
    dearest: Literal["dearest", "dearest_tokens"]
    reserved: Literal["reserved", "reserved_tokens"]
    left: Literal["left", "left_tokens"]

    def of(self, usage: Usage) -> float | None:
        """How much of it a usage is; None where it was not reported."""
        return usage.cost if self is DOLLARS else usage.tokens

    def dearest_in(self, totals: Totals) -> float | None:
        found: float | None = getattr(totals, self.dearest)
        return found

    def left_in(self, totals: Totals) -> Left | None:
        found: Left | None = getattr(totals, self.left)
        return found

    def uncharged_in(self, totals: Totals) -> float:
        """What attempts that were cut off may have spent, and was not charged."""
        left = self.left_in(totals)
        if left is None:
            return 0.0
        return max(round(left.items * (self.dearest_in(totals) or 0) - left.used - left.charged, 10), 0.0)

    def total_in(self, totals: Totals) -> float:
        """Everything spent, with what was lost. The cost includes that already."""
        return totals.cost or 0.0 if self is DOLLARS else totals.tokens + totals.lost_tokens


DOLLARS = _Measure("lost", "dearest", "reserved", "left")
TOKENS = _Measure("lost_tokens", "dearest_tokens", "reserved_tokens", "left_tokens")
MEASURES = (DOLLARS, TOKENS)


@dataclass(slots=True)
class Purse:
    """The run's money. `totals` are those of the checkpoint, kept up to date."""

    totals: Totals
    budget: float | None = None
    token_budget: int | None = None
    in_flight: dict[int, Usage | None] = field(default_factory=dict)
    """By row, of items in flight (without a budget, of those that used anything): what, in this generation."""
    recorded: dict[int, Usage] = field(default_factory=dict)
    """By row, of items in flight: the part of that which records have."""
    _ended: int = 0
    """How many items finished in this launch and reported what they used."""
    limits: tuple[tuple[_Measure, float], ...] = field(init=False)

    def __post_init__(self) -> None:
        found = ((DOLLARS, self.budget), (TOKENS, self.token_budget))
        self.limits = tuple((measure, limit) for measure, limit in found if limit is not None)

    # ---- spending

    def begin(self, row: int, before: Usage | None = None) -> None:
        """The item is in flight from now on. `before`: what it used earlier, which the totals have already."""
        self.in_flight[row] = structs.replace(before) if before is not None else None
        if before is not None:
            self.recorded[row] = before

    def charge(self, row: int, usage: Usage) -> None:
        spent = self.in_flight.get(row)
        if spent is None:
            spent = self.in_flight[row] = Usage()
        spent.add(usage)
        self.totals.add(usage)

    def charge_unknown(self, row: int) -> None:
        """An attempt ended that may have spent something and could not report it: what was reserved for it is lost."""
        for measure in MEASURES:
            rest = self._rest(measure, row)
            if self._is_limited(measure):
                self._lose(measure, rest)
            else:
                self._leave(measure, 1, used=(measure.dearest_in(self.totals) or 0) - rest)

    def charge_left(self, running: Collection[Reserved]) -> None:
        """A launch died with these in flight: each may have cost as much as the most expensive, also a later one."""
        for one in running:
            self.set_aside(one.used)
        for measure in MEASURES if running else ():
            dearest = measure.dearest_in(self.totals)
            if dearest is None:
                # Nothing was reserved yet: what they reported is all that is known.
                used = sum(measure.of(one.used) or 0 for one in running if one.used is not None)
            else:
                used = sum(dearest - getattr(one, measure.reserved) for one in running)
            self._leave(measure, len(running), used=used)
        # Also what was left while there was no budget.
        for measure in MEASURES:
            self._charge_left(measure)

    def _leave(self, measure: _Measure, items: int, *, used: float) -> None:
        left = measure.left_in(self.totals) or Left()
        left = structs.replace(left, items=left.items + items, used=round(left.used + used, 10))
        setattr(self.totals, measure.left, left)

    def _charge_left(self, measure: _Measure) -> None:
        """Under a budget, what was left counts as spent."""
        left, amount = measure.left_in(self.totals), measure.uncharged_in(self.totals)
        if left is not None and amount and self._is_limited(measure):
            setattr(self.totals, measure.left, structs.replace(left, charged=round(left.charged + amount, 10)))
            self._lose(measure, amount)

    def _is_limited(self, measure: _Measure) -> bool:
        return any(measure is one for one, _ in self.limits)

    def _lose(self, measure: _Measure, amount: float) -> None:
        if amount:
            setattr(self.totals, measure.lost, round(getattr(self.totals, measure.lost) + amount, 10))
            if measure is DOLLARS:
                self.totals.cost = round((self.totals.cost or 0) + amount, 10)

    def spent(self, row: int) -> Usage | None:
        """What an item in flight has used so far; None if it reported nothing."""
        return self.in_flight.get(row)

    def unrecorded(self, row: int) -> Usage | None:
        """What an item in flight has used that no record has; None if there is nothing."""
        spent = self.in_flight.get(row)
        if spent is None:
            return None
        rest = spent.without(self.recorded.get(row))
        return None if rest.is_nothing else rest

    def set_aside(self, used: Usage | None) -> None:
        """Nothing else will have a record of this, which the totals have already."""
        if used is not None:
            self.totals.unrecorded = found = structs.replace(self.totals.unrecorded or Usage())
            found.add(used)

    def put_back(self, row: int) -> None:
        """The item is no longer in flight, and has no record of how it ended."""
        self.set_aside(self.unrecorded(row))
        self.end(row)

    def end(self, row: int) -> Usage | None:
        """The item is no longer in flight. Returns what it used."""
        spent = self.in_flight.pop(row, None)
        if self.recorded:
            self.recorded.pop(row, None)
        if spent is None:
            return None
        for measure in MEASURES:
            amount = measure.of(spent)
            if amount is not None and amount >= (measure.dearest_in(self.totals) or 0):
                setattr(self.totals, measure.dearest, amount)
                self._charge_left(measure)
        self._ended += 1
        return spent

    # ---- asking before

    def refusal(self, *, again: int | None = None) -> str | None:
        """Why nothing further can begin now: no item, or no other attempt of the row `again`."""
        others = [row for row in self.in_flight if row != again]
        for measure, limit in self.limits:
            dearest, total = measure.dearest_in(self.totals), measure.total_in(self.totals)
            if dearest is None:
                if others:
                    return "until one item has finished, nobody knows what an item costs"
                if total >= limit:
                    return _reached(measure, limit, total, None)
            elif len(others) >= max(1, self._ended / 2):
                return "until more items have finished, it is not known well enough what an item costs"
            elif total + sum(self._rest(measure, row) for row in others) + dearest > limit + _DUST:
                return _reached(measure, limit, total, dearest)
        return None

    def raised(self) -> str:
        """The flags that give the run room again: each limit that is reached, doubled or more."""
        flags = []
        for measure, limit in self.limits:
            needed = measure.total_in(self.totals) + (measure.dearest_in(self.totals) or 0)
            needed += sum(self._rest(measure, row) for row in self.in_flight)
            if needed > limit + _DUST or measure.total_in(self.totals) >= limit:
                enough = 2 * limit if 2 * limit >= needed else 2 * needed
                flags.append(f"--budget {enough:.6g}" if measure is DOLLARS else f"--token-budget {math.ceil(enough)}")
        return " ".join(flags)

    def reserved(self, row: int) -> tuple[float, float]:
        """What an item in flight may still cost, for `running`: dollars and tokens."""
        return self._rest(DOLLARS, row), self._rest(TOKENS, row)

    def _rest(self, measure: _Measure, row: int) -> float:
        usage = self.in_flight.get(row)
        spent = (measure.of(usage) or 0) if usage is not None else 0
        return float(round(max((measure.dearest_in(self.totals) or 0) - spent, 0), 10))


def _reached(measure: _Measure, limit: float, total: float, dearest: float | None) -> str:
    if measure is DOLLARS:
        more = f", and the most expensive item so far cost {format_cost(dearest)}" if dearest is not None else ""
        return f"the budget of {format_cost(limit)} is reached: {format_cost(total)} is spent{more}"
    more = f", and the largest item so far took {dearest:,.0f}" if dearest is not None else ""
    return f"the budget of {limit:,.0f} tokens is reached: {total:,.0f} are used{more}"


def lost_words(usage: Mapping[str, float]) -> str:
    """What crashes may have cost, in words; empty if nothing. `usage` is the JSON form of totals."""
    words = [f"{format_cost(lost)} of it lost in crashes"] if (lost := usage.get("lost")) else []
    if more := usage.get("may_be_lost"):
        words.append(f"at least {format_cost(more)} more may be lost in crashes")
    elif "cost" not in usage and (tokens := usage.get("lost_tokens", 0) + usage.get("may_be_lost_tokens", 0)):
        words.append(f"at least {tokens:,.0f} tokens more may be lost in crashes")
    return ", ".join(words)
