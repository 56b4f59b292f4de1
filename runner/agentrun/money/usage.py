"""What an attempt used: checked, added up, formatted.

A usage message says `model`, `provider`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`
(including `cache_write_1h_tokens`, cached for an hour, if reported), `requests` and `cost`. `input_tokens` counts all
input, cached or not. Records and runs keep the totals: `cost`, `input_tokens`, `output_tokens`, `requests`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct

from agentrun.values.text import quoted

TOKEN_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
)
MOST = 2**53
"""A larger number is not a token count, and other readers of the JSON would lose digits."""
COST_DIGITS = 10

WHAT_WOULD_DO = (
    "give a response of the OpenAI, Anthropic or Google SDK, or a result of pydantic-ai, as an object or as JSON; "
    "or numbers: model=, input_tokens=, output_tokens=; or cost="
)


class Usage(Struct, omit_defaults=True, kw_only=True):
    """What was used, in total; `cost` is in US dollars, None where none was reported."""

    cost: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Usage:
        """The part of a checked usage message that totals keep."""
        return cls(
            cost=message.get("cost"),
            input_tokens=message.get("input_tokens") or 0,
            output_tokens=message.get("output_tokens") or 0,
            requests=message.get("requests") or 0,
        )

    @property
    def tokens(self) -> int:
        """In and out, together."""
        return self.input_tokens + self.output_tokens

    def add(self, more: Usage) -> None:
        """Count `more` in. There is a cost if either has one."""
        costs = [one for one in (self.cost, more.cost) if one is not None]
        self.cost = round(math.fsum(costs), COST_DIGITS) if costs else None
        self.input_tokens += more.input_tokens
        self.output_tokens += more.output_tokens
        self.requests += more.requests

    def as_json(self) -> dict[str, float]:
        """For people's programs: without a cost if none is known, and empty if nothing was reported."""
        if self.cost is None and not self.tokens and not self.requests:
            return {}
        cost = {"cost": self.cost} if self.cost is not None else {}
        return cost | {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "requests": self.requests,
        }


def check_usage(message: Mapping[str, Any]) -> dict[str, Any]:
    """A usage message with every field; ValueError says what is wrong with it."""
    if all(message.get(name) is None for name in ("cost", "input_tokens", "output_tokens")):
        raise ValueError(f"usage has neither tokens nor a cost; {WHAT_WOULD_DO}")
    checked: dict[str, Any] = {}
    for name in ("model", "provider"):
        value = message.get(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"usage: {name} is {quoted(value)}; it must be text")
        checked[name] = value or None
    for name in TOKEN_FIELDS:
        checked[name] = whole_number(name, message.get(name), 0)
    checked["requests"] = whole_number("requests", message.get("requests"), 1)
    if not checked["cache_write_1h_tokens"]:
        del checked["cache_write_1h_tokens"]
    elif checked["cache_write_1h_tokens"] > checked["cache_write_tokens"]:
        raise ValueError("usage: cache_write_1h_tokens is more than cache_write_tokens, which includes it")
    cached = checked["cache_read_tokens"] + checked["cache_write_tokens"]
    if cached > checked["input_tokens"]:
        raise ValueError(
            f"usage: input_tokens is {checked['input_tokens']}, but {cached} were read from or written to the cache; "
            f"input_tokens is the total, including these"
        )
    checked["cost"] = _cost(message.get("cost"))
    return checked


def format_cost(cost: float) -> str:
    """Money as people write it: $12.34, and below a dollar with the significant digits: $0.0312."""
    if cost >= 1 or not cost:
        return f"${cost:,.2f}"
    if cost < 0.000001:
        return "<$0.000001"
    digits = max(2, 2 - math.floor(math.log10(cost)))
    shown = f"{cost:.{min(digits, 6)}f}"
    while shown.endswith("0") and len(shown) > len("0.00"):
        shown = shown[:-1]
    return f"${shown}"


def format_tokens(usage: Usage) -> str:
    return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"


def whole_number(name: str, value: Any, otherwise: int) -> int:
    if value is None:
        return otherwise
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
        raise ValueError(f"usage: {name} is {quoted(value)}; it must be a whole number, 0 or more")
    return value


def _cost(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 <= value < math.inf:
        raise ValueError(f"usage: cost is {quoted(value)}; it must be US dollars, 0 or more")
    return round(float(value), COST_DIGITS)
