"""The purse: what a run has used, and whether its budget has room for another item.

Until the first item has finished with a cost, the cost of an item is unknown, and only one item is in flight. From then
on, each item in flight reserves the cost of the most expensive item so far, and another starts only if all reservations
stay within the budget. At most half as many items are in flight as have finished in this launch: the first few say
little about the rest, and after a crash the interrupted items come first, which may be the expensive ones. Every
checkpoint writes the reservations with `running`. A launch that finds them charges them as lost, because the launch
that died may have spent them. If a more expensive item finishes later, the lost items are charged the difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrun.money.usage import add_usage, format_cost

_DUST = 1e-9
"""Sums of floats: a budget of 1.00 has room for the tenth item of 0.10."""


@dataclass(frozen=True, slots=True)
class _Measure:
    """Dollars or tokens: how to read them from a usage, and their names in the run's totals."""

    limit: str
    total: str
    lost: str
    dearest: str
    reserved: str
    left: str
    """What launches that died left in flight: the number of `items`, how much of their possible cost they had `used`
    (already in the totals), and how much was `charged`."""

    def of(self, usage: Mapping[str, Any]) -> float | None:
        """The amount; None if it was not reported."""
        if self.total == "cost":
            return usage.get("cost")
        return usage.get("input_tokens", 0) + usage.get("output_tokens", 0) if usage else None


DOLLARS = _Measure("budget", "cost", "lost", "dearest", "reserved", "left")
TOKENS = _Measure("token_budget", "tokens", "lost_tokens", "dearest_tokens", "reserved_tokens", "left_tokens")


@dataclass(slots=True)
class Purse:
    usage: dict[str, Any]
    """The run's totals, as the checkpoint has them; kept up to date."""
    budget: float | None = None
    token_budget: int | None = None
    _spent: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Usage in this generation, by row, of items in flight (without a budget, only of items that used anything)."""

    _ended: int = 0
    """Items that finished in this launch and reported usage."""
    limits: tuple[tuple[_Measure, float], ...] = field(init=False)

    def __post_init__(self) -> None:
        found = ((DOLLARS, self.budget), (TOKENS, self.token_budget))
        self.limits = tuple((measure, limit) for measure, limit in found if limit is not None)

    # ---- spending

    def begin(self, row: int, before: Mapping[str, Any] | None = None) -> None:
        """The item is now in flight. `before`: what it used earlier, which is already in the totals."""
        self._spent[row] = dict(before or {})

    def charge(self, row: int, usage: Mapping[str, Any]) -> None:
        self._spent[row] = add_usage(self._spent.get(row, {}), usage)
        self.usage |= add_usage(self.usage, usage)

    def charge_unknown(self, row: int) -> None:
        """An attempt ended without being able to report its usage: charge its reservation as lost."""
        for measure, _ in self.limits:
            self._lose(measure, self._rest(measure, row))

    def charge_left(self, running: Collection[Mapping[str, Any]]) -> None:
        """A launch died with these in flight: each may have cost as much as the most expensive item, now or later."""
        for measure, _ in self.limits if running else ():
            dearest = self.usage.get(measure.dearest, 0)
            left = self.usage.get(measure.left, {"items": 0, "used": 0, "charged": 0})
            used = left["used"] + sum(dearest - one.get(measure.reserved, 0) for one in running)
            self.usage[measure.left] = {**left, "items": left["items"] + len(running), "used": round(used, 10)}
            self._price_left(measure)

    def _price_left(self, measure: _Measure) -> None:
        left = self.usage.get(measure.left)
        if left is not None:
            amount = left["items"] * self.usage.get(measure.dearest, 0) - left["used"] - left["charged"]
            if amount > 0:
                self.usage[measure.left] = {**left, "charged": round(left["charged"] + amount, 10)}
                self._lose(measure, amount)

    def _lose(self, measure: _Measure, amount: float) -> None:
        if amount:
            self.usage[measure.lost] = round(self.usage.get(measure.lost, 0) + amount, 10)
            if measure is DOLLARS:
                self.usage["cost"] = round(self.usage.get("cost", 0) + amount, 10)

    def spent(self, row: int) -> dict[str, Any]:
        return self._spent.get(row, {})

    def end(self, row: int) -> dict[str, Any]:
        """The item is no longer in flight. Returns what it used."""
        spent = self._spent.pop(row, None)
        if spent is None:
            return {}
        for measure in (DOLLARS, TOKENS):
            amount = measure.of(spent)
            if amount is not None and amount >= self.usage.get(measure.dearest, 0):
                self.usage[measure.dearest] = amount
                self._price_left(measure)
        self._ended += bool(spent)
        return spent

    # ---- asking before

    def refusal(self, *, again: int | None = None) -> str | None:
        """Why no further item, or no other attempt of the row `again`, can start now; None if it can."""
        others = [row for row in self._spent if row != again]
        for measure, limit in self.limits:
            dearest, total = self.usage.get(measure.dearest), self._total(measure)
            if dearest is None:
                if others:
                    return "the cost of an item is unknown until the first one has finished"
                if total >= limit:
                    return _reached(measure, limit, total, None)
            elif len(others) >= max(1, self._ended / 2):
                return "too few items have finished to know what one costs"
            elif total + sum(self._rest(measure, row) for row in others) + dearest > limit + _DUST:
                return _reached(measure, limit, total, dearest)
        return None

    def reserved(self, row: int) -> dict[str, float]:
        """What an item in flight may still cost, for `running`."""
        return {measure.reserved: rest for measure, _ in self.limits if (rest := self._rest(measure, row))}

    def _total(self, measure: _Measure) -> float:
        if measure is DOLLARS:
            return float(self.usage.get("cost", 0))
        return float(self.usage.get(measure.lost, 0) + (measure.of(self.usage) or 0))

    def _rest(self, measure: _Measure, row: int) -> float:
        spent = measure.of(self._spent.get(row, {})) or 0
        return float(round(max(self.usage.get(measure.dearest, 0) - spent, 0), 10))


def _reached(measure: _Measure, limit: float, total: float, dearest: float | None) -> str:
    if measure is DOLLARS:
        more = f", and the most expensive item so far took {format_cost(dearest)}" if dearest is not None else ""
        return f"the budget of {format_cost(limit)} is reached: {format_cost(total)} is spent{more}"
    more = f", and the largest item so far took {dearest:,.0f}" if dearest is not None else ""
    return f"the budget of {limit:,.0f} tokens is reached: {total:,.0f} are used{more}"
