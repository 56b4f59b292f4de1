"""A server that is down, or still loading: the launch holds, and tries with one item at a time whether it is back.

A *sign* is an attempt that ended because no connection to a server came about, or with a 503 that does not say for how
long. One sign may be the item's own: it is retried as usual. **The server is down once the last max(4, -j) attempts, of
at least two items, were signs of the same server.** From then on no sign counts as an attempt of its item: the launch
stops as it does for a quota, with nothing in flight, and after 5 s, 10 s, … up to 5 min it begins one item, another one
each time. The first that the server answers, however it ends, opens it again for all.

An item that uses up its retries before that is *in doubt*: it goes back, and another is tried, or one in flight is
waited for. If a server answers that one, or there is none, the item has failed.

Some items bring a server down. One that was in flight at three outages fails alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from agentrun.launch.stopping import StopReason
from agentrun.runs.units import Ended
from agentrun.values.clock import now_seconds, time_text
from agentrun.values.units import format_duration

SIGNS = 4
FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS = 5.0, 300.0
NEVER_REACHED_SECONDS = 300.0
MOST_OUTAGES = 3
LOOK_SECONDS = 0.5
"""How often an item in doubt looks whether those in flight have shown whose doing it is."""


class Outages:
    """What a launch knows about the server that its items need. `in_order` if they cannot change places."""

    def __init__(self, concurrency: int, *, in_order: bool, clock: Callable[[], float]) -> None:
        self._signs_needed = max(SIGNS, concurrency)
        self._items_needed = 1 if in_order else 2
        self._clock = clock
        self.server = ""
        """The server that gave the last sign; empty if none did since one answered."""
        self.is_down = False
        self._since = 0.0
        self._signs = 0
        self._rows: set[int] = set()
        self._probes = 0
        self._counts: dict[int, int] = {}
        """By row: at how many outages it was in flight."""
        self.in_doubt: dict[int, Ended] = {}
        """By row, of items that have used up their retries: how they have ended unless it was the server's doing."""

    # ---- what happens

    def note_sign(self, server: str, row: int, in_flight: Iterable[int]) -> None:
        """An attempt of that row gave a sign, while those rows are in flight."""
        if server != self.server and not self.is_down:
            self.note_answer()
            self.server, self._since = server, self._clock()
        self._signs += 1
        self._rows.add(row)
        if not self.is_down and self._signs >= self._signs_needed and len(self._rows) >= self._items_needed:
            self.is_down = True
            for one in {*in_flight, *self.in_doubt}:
                self._counts[one] = self._counts.get(one, 0) + 1
            self.in_doubt = {one: ended for one, ended in self.in_doubt.items() if self.is_suspect(one)}

    def note_answer(self) -> None:
        """A server answered."""
        self.server, self.is_down, self._signs, self._probes = "", False, 0, 0
        self._rows.clear()

    # ---- items

    def is_suspect(self, row: int) -> bool:
        """Whether the item was in flight at so many outages that it may be the cause."""
        return self._items_needed > 1 and self._counts.get(row, 0) >= MOST_OUTAGES

    def waits_for_another(self, row: int, in_flight: Iterable[int]) -> bool:
        """Whether the item is in doubt, and one of those in flight may still show whose doing it is."""
        is_unclear = row in self.in_doubt and bool(self.server) and len(self._rows) < self._items_needed
        # Those in doubt that were taken again wait, too: they show nothing.
        return is_unclear and any(one not in self.in_doubt for one in in_flight)

    def resolve(self, row: int) -> Ended | None:
        """How an item in doubt has ended, now that it is taken again; None if it is not, or still in doubt: no other
        item is left that could show whose doing it is."""
        ended = self.in_doubt.pop(row, None)
        is_open = bool(self.server) and len(self._rows) >= self._items_needed and not self.is_suspect(row)
        return None if is_open else ended

    # ---- holding

    def hold(self, cause: str, *, has_worked: bool) -> StopReason:
        """Why the launch holds, and until when; `has_worked` if the agent has ever done an item in this run."""
        seconds = min(FIRST_PROBE_SECONDS * 2**self._probes, LONGEST_PROBE_SECONDS)
        self._probes += 1
        text = f"{self.server} cannot be reached: {cause}"
        reason = StopReason(75, text, "see to the server, then resume")
        if not has_worked:
            left = NEVER_REACHED_SECONDS - (self._clock() - self._since)
            if left <= 0:
                waited = format_duration(NEVER_REACHED_SECONDS)
                text = f"{self.server} was not reached once in {waited}: {cause}"
                return StopReason(4, text, "check the address, and that the server is running; then resume")
            seconds = min(seconds, left)
        return replace(reason, probe_at=time_text(now_seconds() + seconds))
