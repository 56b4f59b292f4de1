"""Values as people write them: durations, allowances, rates, prices.

Each parser raises ValueError with the rest of a sentence, such as `is "2 parsecs"; write a duration such as …`, which
callers put after the name of the value.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentrun.values.text import quoted

if TYPE_CHECKING:
    from fractions import Fraction


_DURATION = re.compile(
    r"(?:(?P<d>\d+(?:\.\d+)?)\s*d)?\s*(?:(?P<h>\d+(?:\.\d+)?)\s*h)?\s*(?:(?P<m>\d+(?:\.\d+)?)\s*m(?:in)?)?\s*"
    r"(?:(?P<s>\d+(?:\.\d+)?)\s*s)?\s*(?:(?P<ms>\d+(?:\.\d+)?)\s*ms)?",
    re.ASCII,
)
_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_RATE = re.compile(r"(\d+)\s*([kKmM]?)\s*/\s*(?:(s|sec|second)|(m|min|minute)|(h|hour))", re.ASCII)
_LONGEST_SECONDS = 10 * 365 * 86400.0


def parse_duration(value: Any) -> float:
    """Seconds, from text such as "30d", "1h30m" or "500ms", or from a number of seconds."""
    seconds = _duration_seconds(value)
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f'is {quoted(value)}; write a duration such as "90s", "2m" or "1h30m"')
    if seconds > _LONGEST_SECONDS:
        raise ValueError(f"is {quoted(value)}; write a duration of at most ten years")
    return seconds


def parse_length(value: Any) -> float:
    """Seconds, more than none."""
    seconds = parse_duration(value)
    if not seconds:
        raise ValueError(f'is {quoted(value)}; write a duration such as "90s", "2m" or "1h30m"')
    return seconds


def _duration_seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if not isinstance(value, str) or not (text := value.strip()):
        return None
    if _NUMBER.fullmatch(text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    return sum(float(part) * _UNIT_SECONDS[unit] for unit, part in match.groupdict().items() if part is not None)


def format_duration(seconds: float) -> str:
    """For people: 0.5s, 12s, 3m05s, 1h02m, 2d03h."""
    if seconds < 9.95:
        tenths = f"{max(seconds, 0.0):.1f}"
        return f"{tenths.removesuffix('.0')}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24:02}h"


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many items may fail: a count, or a percentage of all."""

    count: int = 0
    percent: Fraction | None = None

    def of(self, total: int) -> int:
        return self.count if self.percent is None else math.floor(total * self.percent / 100)

    def __str__(self) -> str:
        return str(self.count) if self.percent is None else f"{float(self.percent):g}%"


NONE_ALLOWED = Allowance()


def parse_allowance(value: Any) -> Allowance:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Allowance(value)
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.isdigit():
            return Allowance(int(text))
        number = text.removesuffix("%").rstrip()
        if text.endswith("%") and _NUMBER.fullmatch(number):
            from fractions import Fraction

            if (percent := Fraction(number)) <= 100:
                return Allowance(percent=percent)
    raise ValueError(f'is {quoted(value)}; write a number of items such as 2, or a share of all such as "5%"')


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` in any `per_seconds`."""

    count: int
    per_seconds: float


def parse_rate(value: Any) -> Rate:
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or int(match[1]) < 1:
        raise ValueError(f'is {quoted(value)}; write a rate such as "60/min", "5/s" or "1000/h"')
    times = {"": 1, "k": 1000, "m": 1_000_000}[match[2].lower()]
    return Rate(int(match[1]) * times, 1.0 if match[3] else 60.0 if match[4] else 3600.0)


def rate_words(per_second: float) -> str:
    """11.3/min: in a unit in which it is at least 1."""
    for seconds, unit in ((1, "s"), (60, "min")):
        if per_second * seconds >= 1:
            return f"{per_second * seconds:.1f}/{unit}"
    return f"{per_second * 3600:.1f}/h"


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """What a model's tokens cost, in US dollars per million."""

    input: float
    output: float
    cached_input: float | None = None
    """For input that was read from a cache; None: as other input."""
    cache_write: float | None = None
    """For input that was written to a cache; None: as other input."""

    def of(self, *, input_tokens: int, output_tokens: int, read: int = 0, written: int = 0) -> float:
        """What so many tokens cost; of the input, `read` came from a cache and `written` went to one."""
        cached = self.input if self.cached_input is None else self.cached_input
        write = self.input if self.cache_write is None else self.cache_write
        plain = (input_tokens - read - written) * self.input
        return (plain + read * cached + written * write + output_tokens * self.output) / 1_000_000


def number_or_text(text: str) -> int | float | str:
    """A number that was typed as text; other text as it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
