"""The items of jobs that are looked at again and again: listed once, and then extended by what was recorded since."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentrun.errors import ItemsError, LaterError
from agentrun.views.finding import KnownJob
from agentrun.views.listing import Listing, open_listing

if TYPE_CHECKING:
    from agentrun.job.job import Job

Warn = Callable[[str], None]
SOURCE_SECONDS = 10.0
SOURCE_SHARE = 20
"""The source is asked again after this many times what that took, so that it takes a twentieth of the time."""
JOBS_KEPT = 8


def unheard(text: str) -> None:
    """For callers who do not listen to warnings."""


def open_items(known: KnownJob, *, warn: Warn = unheard) -> Listing:
    """The job's items. If its source cannot be read, `warn` is told, and only the items on record are there."""
    try:
        listing = open_listing(known.store, known.job)
    except (ItemsError, LaterError) as error:
        with known.store.reader() as reader:
            if not reader.run_id:
                raise
        warn(f"{error.message}; using only what is on record")
        listing = open_listing(known.store)
    if listing.note:
        warn(f"{known.name}: {listing.note}")
    return listing


class KeptListing:
    """The items of one job, for one block at a time.

    Each block sees every record that was committed before it began. Items that are new, changed, moved or gone in the
    source are seen when a launch or a run begins, and otherwise after 10 s, or 20 times as long as listing them took.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.users = 0
        """How many have or want it."""
        self._clock = clock
        self._lock = threading.Lock()
        self._listing: Listing | None = None
        self._job: Job | None = None
        self._warnings: list[str] = []
        self._due_at = 0.0

    @contextmanager
    def items(self, known: KnownJob, *, warn: Warn = unheard) -> Iterator[Listing]:
        with self._lock:
            listing = self._up_to_date(known) or self._list(known)
            for text in self._warnings:
                warn(text)
            yield listing

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _up_to_date(self, known: KnownJob) -> Listing | None:
        """The listing as it is now; None, and none is kept, if it takes a new one."""
        is_kept = False
        try:
            is_kept = self._listing is not None and self._is_current(self._listing, known)
        finally:
            if not is_kept:
                self._forget()
        return self._listing

    def _is_current(self, listing: Listing, known: KnownJob) -> bool:
        if self._clock() >= self._due_at or known.job != self._job:
            return False
        reader = known.store.reader()
        is_extended = False
        try:
            is_extended = listing.extend(reader)
        finally:
            if not is_extended:
                reader.close()
        return is_extended

    def _list(self, known: KnownJob) -> Listing:
        self._warnings.clear()
        began = self._clock()
        listing = self._listing = open_items(known, warn=self._warnings.append)
        now = self._clock()
        self._job = known.job
        # What only the records say stays so, unless the source could not be asked.
        is_asked = listing.standing.has_asked_source or self._warnings
        self._due_at = now + max(SOURCE_SECONDS, SOURCE_SHARE * (now - began)) if is_asked else math.inf
        return listing

    def _forget(self) -> None:
        if self._listing is not None:
            self._listing.close()
            self._listing = None


class KeptListings:
    """The listings of the jobs that were looked at last, by name."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._kept: dict[str, KeptListing] = {}
        """The one that was used last comes last."""

    @contextmanager
    def items(self, known: KnownJob, *, warn: Warn = unheard) -> Iterator[Listing]:
        one = self._take(known.name)
        try:
            with one.items(known, warn=warn) as listing:
                yield listing
        finally:
            with self._guard:
                one.users -= 1

    def close(self) -> None:
        """Close them all; waits for the blocks that use one."""
        with self._guard:
            kept, self._kept = self._kept, {}
        for one in kept.values():
            one.close()

    def _take(self, name: str) -> KeptListing:
        with self._guard:
            one = self._kept.pop(name, None) or KeptListing(self._clock)
            one.users += 1
            self._kept[name] = one
            # Each has a file open, and memory for all items.
            unused = [other for other, kept in self._kept.items() if not kept.users]
            for other in unused[: max(0, len(self._kept) - JOBS_KEPT)]:
                self._kept.pop(other).close()
        return one
