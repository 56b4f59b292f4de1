"""The purse: what a run has used, and whether its budget has room for another item.

Until the first item has finished with a cost, the cost of an item is unknown, and only one item is in flight. From then
on, each item in flight reserves the cost of the most expensive item so far, and another starts only if all reservations
stay within the budget. At most half as many items are in flight as have finished in this launch: the first few say
little about the rest, and after a crash the interrupted items come first, which may be the expensive ones. Every
checkpoint writes the reservations with `running`. A launch that finds them charges them as lost, because the launch
that died may have spent them. If a more expensive item finishes later, the lost items are charged the difference.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, Protocol

from msgspec import Struct, structs

from agentrun.money.usage import Usage, format_cost

_DUST = 1e-9
"""Sums of floats: a budget of 1.00 has room for the tenth item of 0.10."""


class Left(Struct, frozen=True):
    """What launches that died have left in flight: how many items, what of their cost the totals have already
    (`used`), and what was charged for them since."""

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

    def as_json(self) -> dict[str, float]:
        more = {"lost": self.lost, "lost_tokens": self.lost_tokens}
        most = {"dearest": self.dearest, "dearest_tokens": self.dearest_tokens}
        return super().as_json() | {name: value for name, value in (more | most).items() if value}


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

    def total_in(self, totals: Totals) -> float:
        """Everything spent, with what was lost. The cost includes that already."""
        return totals.cost or 0.0 if self is DOLLARS else totals.tokens + totals.lost_tokens


DOLLARS = _Measure("lost", "dearest", "reserved", "left")
TOKENS = _Measure("lost_tokens", "dearest_tokens", "reserved_tokens", "left_tokens")


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
        for measure, _ in self.limits:
            self._lose(measure, self._rest(measure, row))

    def charge_left(self, running: Collection[Reserved]) -> None:
        """A launch died with these in flight: each may have cost as much as the most expensive, also a later one."""
        for one in running:
            self.set_aside(one.used)
        for measure, _ in self.limits if running else ():
            dearest = measure.dearest_in(self.totals) or 0
            left = measure.left_in(self.totals) or Left()
            used = left.used + sum(dearest - getattr(one, measure.reserved) for one in running)
            left = structs.replace(left, items=left.items + len(running), used=round(used, 10))
            setattr(self.totals, measure.left, left)
            self._price_left(measure)

    def _price_left(self, measure: _Measure) -> None:
        left = measure.left_in(self.totals)
        if left is not None:
            amount = left.items * (measure.dearest_in(self.totals) or 0) - left.used - left.charged
            if amount > 0:
                left = structs.replace(left, charged=round(left.charged + amount, 10))
                setattr(self.totals, measure.left, left)
                self._lose(measure, amount)

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
        for measure in (DOLLARS, TOKENS):
            amount = measure.of(spent)
            if amount is not None and amount >= (measure.dearest_in(self.totals) or 0):
                setattr(self.totals, measure.dearest, amount)
                self._price_left(measure)
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

    def reserved(self, row: int) -> tuple[float, float]:
        """What an item in flight may still cost, for `running`: dollars and tokens, where they are limited."""
        rest = {measure: self._rest(measure, row) for measure, _ in self.limits}
        return rest.get(DOLLARS, 0.0), rest.get(TOKENS, 0.0)

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
