"""From a pilot to the rest: what the items that are left will take, with a range for each figure.

A sum over many items depends on the rare long ones, of which a pilot has few. Two intervals are known for that: Cox's,
which takes the logarithms for normal, and the bootstrap, which takes the sample for the whole. Each is too narrow where
the other is right, so the wider of the two counts. Both are for what is left, so they include its own scatter: a few
items scatter more than many. It is a pure module: the same samples and the same seed give the same estimate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from agentrun.money.usage import Usage

CONFIDENCE = 0.9
RESAMPLES = 400
DONE_LEAST = 5
FAILED_MOST = 0.2
CAUSES = 3
_Z = 1.6448536269514722
"""Of the normal distribution: as many standard deviations hold nine tenths."""


class Range(Struct, frozen=True):
    """A figure: what is likely, and between what it is in nine of ten cases."""

    likely: float
    low: float
    high: float

    def times(self, factor: float) -> Range:
        return Range(self.likely * factor, self.low * factor, self.high * factor)


class CauseCount(Struct, frozen=True):
    cause: str
    count: int


class Estimate(Struct, frozen=True, kw_only=True):
    """What a pilot says about the rest."""

    items: int
    """How many items the pilot had."""
    done: int
    failed: int
    rest: int
    """How many items are left."""
    concurrency: int
    """How many of them at a time the time is for."""
    seconds: Range | None = None
    tokens: Range | None = None
    """None where no item reported any; likewise the cost, in US dollars."""
    cost: Range | None = None
    failures: Range | None = None
    """How many of the rest fail."""
    why_not: str = ""
    """Why there are no figures; empty if there are."""
    causes: list[CauseCount] = []
    """Why items of the pilot failed, the most frequent first, where that is why there are no figures."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An item of the pilot: how it ended, how long it took its slot, and what it used."""

    kind: str
    seconds: float
    used: Usage | None = None
    cause: str = ""


def estimate(
    samples: Sequence[Sample], *, rest: int, concurrency: int, seconds_between: float = 0.0, seed: str = ""
) -> Estimate:
    """What `rest` more items like these take, `concurrency` at a time, started no closer than `seconds_between`."""
    failures = [sample.cause for sample in samples if sample.kind == "failed"]
    done = sum(sample.kind == "done" for sample in samples)
    why_not = ""
    if done < DONE_LEAST:
        why_not = f"only {done} of {len(samples)} items are done, too few for an estimate"
    if len(failures) > FAILED_MOST * len(samples):
        why_not = f"{len(failures)} of {len(samples)} items failed, too many for an estimate"
    found = Estimate(
        items=len(samples), done=done, failed=len(failures), rest=rest, concurrency=concurrency, why_not=why_not,
        causes=[CauseCount(*one) for one in Counter(failures).most_common(CAUSES)] if why_not else [],
    )  # fmt: skip
    if why_not:
        return found
    # All that ended: a failure takes time and money, too.
    ended = [sample for sample in samples if sample.kind in ("done", "failed", "skipped")]
    used = [sample.used or Usage() for sample in ended]
    busy = total_range([sample.seconds for sample in ended], rest, seed=f"{seed} seconds")
    is_priced = any(one.cost is not None for one in used)
    takes_tokens = any(one.tokens for one in used)
    return Estimate(
        items=found.items, done=done, failed=found.failed, rest=rest, concurrency=concurrency,
        seconds=_at_least(busy.times(1 / max(min(concurrency, rest), 1)), rest * seconds_between),
        tokens=total_range([float(one.tokens) for one in used], rest, seed=f"{seed} tokens") if takes_tokens else None,
        cost=total_range([one.cost or 0.0 for one in used], rest, seed=f"{seed} cost") if is_priced else None,
        failures=count_range(len(failures), len(ended), rest),
    )  # fmt: skip


def _at_least(found: Range, least: float) -> Range:
    return Range(max(found.likely, least), max(found.low, least), max(found.high, least))


def total_range(values: Sequence[float], rest: int, *, seed: str = "") -> Range:
    """The sum of `rest` more values like these, which are not negative."""
    likely = rest * _mean(values)
    if len(values) < 2 or min(values) == max(values) or not rest:
        return Range(likely, likely, likely)
    found = [_bootstrap(values, rest, seed)]
    if min(values) > 0:
        found.append(_cox(values, rest))
    low, high = max(found, key=lambda one: one[1] - one[0])
    return Range(likely, min(low, likely), max(high, likely))


def _cox(values: Sequence[float], rest: int) -> tuple[float, float]:
    """Cox's interval for the mean of a log-normal, made wider for the scatter of the rest itself."""
    logs = [math.log(value) for value in values]
    count, spread = len(logs), _variance(logs)
    middle = _mean(logs) + spread / 2
    error = spread / count + spread * spread / (2 * (count - 1))
    # The variance of a mean of `rest` values, relative to that mean.
    own = math.expm1(min(spread, 50.0)) / rest
    half = student_quantile(count - 1) * math.sqrt(error + math.log1p(own))
    return rest * math.exp(middle - half), rest * math.exp(min(middle + half, 700.0))


def _bootstrap(values: Sequence[float], rest: int, seed: str) -> tuple[float, float]:
    """Samples drawn from the sample: where nine tenths of their sums are."""
    import random

    # Not for secrets: the same seed must give the same estimate.
    draw = random.Random(seed)  # noqa: S311
    sums = []
    for _ in range(RESAMPLES):
        again = draw.choices(values, k=len(values))
        sums.append(rest * _mean(again) + draw.gauss(0, 1) * math.sqrt(_variance(again)) * math.sqrt(rest))
    sums.sort()
    cut = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return max(sums[cut], 0.0), sums[-1 - cut]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    middle = _mean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


def student_quantile(freedom: int) -> float:
    """Of Student's t, for both sides of `CONFIDENCE`: the expansion of Cornish and Fisher, right to 1 % from 3 on."""
    z, n = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def count_range(hits: int, of: int, rest: int) -> Range:
    """How many of the rest, where so many of a sample were: Wilson's interval, which is right for none, too."""
    share = hits / of
    middle = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    half = _Z / (1 + _Z**2 / of) * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of**2))
    low, high = max(middle - half, 0.0), min(middle + half, 1.0)
    return Range(round(share * rest), math.floor(low * rest + 1e-9), math.ceil(high * rest - 1e-9))
