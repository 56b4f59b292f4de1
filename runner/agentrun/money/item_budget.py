"""The budget of one item: what it may use, over all its attempts and launches."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct, field

from agentrun.money.usage import Usage, format_cost

_DUST = 1e-9
"""Sums of floats: a budget of 0.30 has room for three calls of 0.10."""


class CutOff(Struct, omit_defaults=True, kw_only=True):
    """What an item used in attempts that were cut off, of which no record has anything."""

    gen: int = 0
    used: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class ItemBudget:
    """US dollars, tokens, or both; None is no limit."""

    cost: float | None = None
    tokens: int | None = None

    @classmethod
    def of(cls, cost: float | None, tokens: int | None) -> ItemBudget | None:
        """None if neither is limited."""
        return None if cost is None and tokens is None else cls(cost, tokens)

    def passed_by(self, used: Usage) -> str:
        """Why an item that has used this may use no more; empty if it may.

        The same words for every item, so that they are one cause.
        """
        if self.cost is not None and (used.cost or 0.0) > self.cost + _DUST:
            return f"it used more than the {format_cost(self.cost)} of item_budget"
        if self.tokens is not None and used.tokens > self.tokens:
            return f"it used more than the {self.tokens:,} tokens of item_token_budget"
        return ""
