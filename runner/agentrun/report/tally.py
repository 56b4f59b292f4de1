"""What the records say of a run over time, added up in one pass over them.

Time is cut into slices, so that the curves of a million items are as small as those of ten. What is kept of each item
is some 30 bytes.
"""

from __future__ import annotations

import bisect
import math
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from agentrun.checkpoint.record import BESIDE, Record
from agentrun.report.report import Curve, Outlier
from agentrun.views.causes import cause_shape

SLICES = 380
"""As many as a plot has units for: more could not be seen."""
OUTLIERS_KEPT = 64
CAUSES_KEPT = 200
_DONE, _FAILED, _SKIPPED = 1, 2, 3
_STATES = {"done": _DONE, "failed": _FAILED, "skipped": _SKIPPED}


@dataclass(slots=True)
class LaunchTally:
    """What the records say of one launch."""

    began: float = math.inf
    ended: float = 0.0
    settled: int = 0


class Top:
    """The largest of many values, one for each row: a later record of a row replaces the one before."""

    def __init__(self) -> None:
        self._kept: dict[int, Outlier] = {}
        self._least = 0.0

    def note(self, row: int, outlier: Outlier) -> None:
        if outlier.value <= self._least and row not in self._kept:
            return
        self._kept[row] = outlier
        if len(self._kept) >= 2 * OUTLIERS_KEPT:
            best = sorted(self._kept.items(), key=lambda one: -one[1].value)[:OUTLIERS_KEPT]
            self._kept, self._least = dict(best), best[-1][1].value

    def first(self, count: int, is_listed: Callable[[int], bool]) -> list[Outlier]:
        rows = [(row, one) for row, one in self._kept.items() if one.value > 0 and is_listed(row)]
        return [one for _, one in sorted(rows, key=lambda pair: -pair[1].value)[:count]]


class Tally:
    """Sums over the records of the run `number`; `note` is given each of them, in the order of their commits."""

    def __init__(self, began: float, ended: float, number: int) -> None:
        self.began, self.ended = began, max(ended, began + 1e-3)
        self.number = number
        self.width = (self.ended - self.began) / SLICES
        self.kept = 0
        """How many results are of earlier runs."""
        self.attempts = 0
        self.retried = 0
        """How many items needed more than one attempt in a launch."""
        self.refused = 0
        self.paid = 0.0
        """What the records have cost."""
        self.causes: Counter[str] = Counter()
        """Why attempts were repeated."""
        self.seconds = array("f")
        self.slowest, self.most_expensive = Top(), Top()
        self.launches: dict[int, LaunchTally] = {}
        self._settled, self._failed, self._cost, self._flight = ([0.0] * SLICES for _ in range(4))
        self._whole = [0.0] * (SLICES + 1)
        self._states, self._gens = bytearray(), array("I")
        self._costs, self._began_at = array("d"), array("d")
        self._parked: dict[int, tuple[int, int]] = {}
        self._now = began

    def note(self, row: int, record: Record) -> None:
        self._make_room(row)
        is_own = record.run == self.number
        if record.gen != self._gens[row]:
            self._gens[row], self._costs[row] = record.gen, 0.0
            self._set(row, 0)
        if is_own and record.usage is not None and record.usage.cost is not None:
            more, self._costs[row] = record.usage.cost - self._costs[row], record.usage.cost
            self.paid += more
            self._cost[self.slice_at(self._end(record))] += more
        if record.kind in BESIDE:
            return
        if not is_own:
            self.kept += record.kind == "done"
            self._set(row, _STATES.get(record.kind, 0), at=self.began)
            return
        # What a person corrected or skipped has the times of the attempts before.
        if record.at and record.at != self._began_at[row]:
            self._began_at[row] = record.at
            self._count_attempts(row, record)
        self._now = max(self._now, self._end(record))
        self._set(row, _STATES.get(record.kind, 0), at=self._end(record))

    # ---- what comes of it

    def curve_settled(self) -> Curve:
        return Curve(_sums(self._settled))

    def curve_failed(self) -> Curve:
        return Curve(_sums(self._failed))

    def curve_cost(self, total: float, lost_at: Sequence[float]) -> Curve:
        """The cost, which ends at `total`: what the records do not have was lost at these times, in equal parts."""
        more, jumps = list(self._cost), dict[int, float]()
        lost = total - self.paid
        if lost > 1e-9:
            for at in lost_at or [self.ended]:
                n = self.slice_at(at)
                jumps[n] = jumps.get(n, 0.0) + lost / max(len(lost_at), 1)
                more[n] += lost / max(len(lost_at), 1)
        return Curve(_sums(more), jumps)

    def curve_in_flight(self) -> Curve:
        """How many attempts were in flight, on average, in each slice."""
        whole = _sums(self._whole)
        return Curve([part / self.width + full for part, full in zip(self._flight, whole, strict=True)])

    def idle(self, flight: Curve) -> list[tuple[float, float]]:
        """The stretches of time in which nothing was in flight; of those, what can be seen."""
        found, start = [], None
        for n, value in enumerate([*flight.values, 1.0]):
            if value <= 0 and start is None:
                start = n
            elif value > 0 and start is not None:
                if n - start >= SLICES // 60:
                    found.append((self.began + start * self.width, self.began + n * self.width))
                start = None
        return found

    def fly(self, began: float, ended: float) -> None:
        """An attempt was in flight in this time."""
        a, b = max(began, self.began), min(max(ended, began + 1e-3), self.ended)
        if b <= a:
            return
        first, last = self.slice_at(a), self.slice_at(b)
        if first == last:
            self._flight[first] += b - a
            return
        self._flight[first] += self.began + (first + 1) * self.width - a
        self._flight[last] += b - (self.began + last * self.width)
        self._whole[first + 1] += 1
        self._whole[last] -= 1

    def slice_at(self, at: float) -> int:
        return min(max(int((at - self.began) / self.width), 0), SLICES - 1)

    # ---- each record

    def _count_attempts(self, row: int, record: Record) -> None:
        number = 1
        launch = self.launches.setdefault(record.launch, LaunchTally())
        if record.tries:
            for one in record.tries:
                self._fly_in(launch, one.at, one.seconds)
                if one.cause and one is not record.tries[-1]:
                    shape = cause_shape(one.cause)
                    if shape in self.causes or len(self.causes) < CAUSES_KEPT:
                        self.causes[shape] += 1
            number = record.tries[-1].number
        else:
            self._fly_in(launch, record.at, record.seconds)
        before = self._parked.pop(row, (0, 0))
        new = number - (before[1] if before[0] == record.launch else 0)
        if record.kind == "waiting":
            self._parked[row] = (record.launch, number)
        elif record.kind in _STATES:
            launch.settled += 1
            tokens = record.usage.tokens if record.usage is not None else 0
            self.slowest.note(row, Outlier(record.key, record.seconds, number, tokens, record.kind))
            if record.usage is not None and record.usage.cost:
                self.most_expensive.note(row, Outlier(record.key, record.usage.cost, number, tokens, record.kind))
        if record.kind == "done":
            self.seconds.append(record.seconds)
        self.attempts += max(new, 1)
        self.retried += new > 1
        self.refused += record.refused

    def _fly_in(self, launch: LaunchTally, at: float, seconds: float) -> None:
        launch.began, launch.ended = min(launch.began, at), max(launch.ended, at + seconds)
        self.fly(at, at + seconds)

    def _end(self, record: Record) -> float:
        """When it happened; what has no time of its own, with the last one that has."""
        if record.tries:
            return record.tries[-1].at + record.tries[-1].seconds
        return record.at + record.seconds if record.at else self._now

    def _set(self, row: int, state: int, *, at: float = 0.0) -> None:
        old, n = self._states[row], self.slice_at(at or self._now)
        if state != old:
            self._settled[n] += bool(state) - bool(old)
            self._failed[n] += (state == _FAILED) - (old == _FAILED)
            self._states[row] = state

    def _make_room(self, row: int) -> None:
        while row >= len(self._states):
            more = max(1024, len(self._states))
            self._states.extend(bytes(more))
            self._gens.extend(array("I", bytes(4 * more)))
            for column in (self._costs, self._began_at):
                column.extend(array("d", bytes(8 * more)))


def quantile(values: Sequence[float], share: float) -> float:
    """Of sorted values: the one below which this share of them is."""
    return values[min(int(len(values) * share), len(values) - 1)]


def histogram(values: Sequence[float], *, bars: int = 24) -> list[tuple[float, float, int]]:
    """Sorted values on a log₂ axis: the bars with their bounds, as exponents, and how many values are in each."""
    if not values:
        return []
    low, high = (math.log2(max(value, 1e-3)) for value in (values[0], values[-1]))
    first, last = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
    each = next((n for n in (4, 2, 1) if (last - first) * n <= bars), 1)
    edges = [first + n / each for n in range((last - first) * each + 1)]
    at = [bisect.bisect_left(values, 2**edge) for edge in edges[1:-1]]
    cuts = [0, *at, len(values)]
    return [(edges[n], edges[n + 1], cuts[n + 1] - cuts[n]) for n in range(len(edges) - 1)]


def _sums(values: Sequence[float]) -> list[float]:
    return list(accumulate(values))[:SLICES]
