"""What an attempt used: checked, added up, formatted.

An agent reports its calls (`Reported`). Records and runs keep the totals (`Usage`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import force_setattr

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
    "give a response of the OpenAI, Anthropic or Google SDK or of LiteLLM, a message of LangChain, or a result of "
    "pydantic-ai, the OpenAI Agents SDK or the Claude Agent SDK, as an object or as JSON; "
    "or numbers: model=, input_tokens=, output_tokens=; or cost="
)


class Reported(Struct, frozen=True, kw_only=True):
    """The usage of one call of a model, or of several, as an agent reports it.

    A report that exists makes sense: making one from bad values raises ValueError, which says what is wrong. None means
    the same as leaving a value out.
    """

    model: str | None = None
    provider: str | None = None
    input_tokens: int = 0
    """All input, cached or not."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """The part of `cache_write_tokens` that is cached for an hour."""
    requests: int = 1
    cost: float | None = None
    """In US dollars; None where the price list must tell."""
    estimated: bool = False
    """The cost is a library's estimate by a price list: prices that the job gives come before it."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """The report in a JSON object. Unknown fields are ignored."""
        get: Callable[[str], Any] = given.get
        return cls(**{name: get(name) for name in cls.__struct_fields__})

    def __post_init__(self) -> None:
        if self.cost is None and self.input_tokens is None and self.output_tokens is None:
            raise ValueError(f"usage has neither tokens nor a cost; {WHAT_WOULD_DO}")
        for name in ("model", "provider"):
            force_setattr(self, name, _name(name, getattr(self, name)))
        for name in TOKEN_FIELDS:
            force_setattr(self, name, whole_number(name, getattr(self, name), 0))
        force_setattr(self, "requests", whole_number("requests", self.requests, 1))
        if self.cache_write_1h_tokens > self.cache_write_tokens:
            raise ValueError("usage: cache_write_1h_tokens is more than cache_write_tokens, which includes it")
        cached = self.cache_read_tokens + self.cache_write_tokens
        if cached > self.input_tokens:
            raise ValueError(
                f"usage: input_tokens is {self.input_tokens}, but {cached} were read from or written to the cache; "
                f"input_tokens is the total, including these"
            )
        force_setattr(self, "cost", _cost(self.cost))
        force_setattr(self, "estimated", bool(self.estimated))


class Usage(Struct, omit_defaults=True, kw_only=True):
    """What was used, in total; `cost` is in US dollars, None where none was reported."""

    cost: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0

    @classmethod
    def of(cls, reported: Reported) -> Usage:
        """The part of a report that totals keep."""
        return cls(
            cost=reported.cost,
            input_tokens=reported.input_tokens,
            output_tokens=reported.output_tokens,
            requests=reported.requests,
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

    def without(self, part: Usage | None) -> Usage:
        """What is left of it without `part`, which it includes."""
        part = part or Usage()
        cost = None if self.cost is None else round(self.cost - (part.cost or 0), COST_DIGITS)
        return Usage(
            cost=cost,
            input_tokens=self.input_tokens - part.input_tokens,
            output_tokens=self.output_tokens - part.output_tokens,
            requests=self.requests - part.requests,
        )

    @property
    def is_nothing(self) -> bool:
        return not self.cost and not self.tokens and not self.requests

    def has_room_for(self, more: Usage) -> bool:
        """Whether the sum is one that records can hold exactly."""
        costs = (self.cost or 0.0) + (more.cost or 0.0)
        return max(costs, self.tokens + more.tokens, self.requests + more.requests) <= MOST

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
        raise ValueError(f"usage: {name} is {quoted(value)}; it must be a whole number, 0 or more, and at most 2**53")
    return value


def _name(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"usage: {name} is {quoted(value)}; it must be text")
    return value or None


def _cost(value: Any) -> float | None:
    if value is None:
        return None
    try:
        is_right = isinstance(value, int | float | Decimal) and not isinstance(value, bool) and 0 <= value <= MOST
    except ArithmeticError:  # a Decimal that is not a number cannot be compared
        is_right = False
    if not is_right:
        raise ValueError(f"usage: cost is {quoted(value)}; it must be US dollars, 0 or more, and at most 2**53")
    return round(float(value), COST_DIGITS)
