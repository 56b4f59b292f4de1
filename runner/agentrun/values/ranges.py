"""Positions as [first, last] ranges, the newest few of them, for people to read."""

from __future__ import annotations

from collections.abc import Iterator

NEWEST = 64


class Ranges:
    """The `NEWEST` ranges that changed last; each call costs no more than looking at those."""

    def __init__(self) -> None:
        self._last_of: dict[int, int] = {}  # first -> last, the newest at the end
        self._first_of: dict[int, int] = {}
        self._listed: list[list[int]] | None = []

    def add(self, first: int, last: int | None = None) -> None:
        """Add one position, or all from `first` to `last`."""
        last = first if last is None else last
        before = self._first_of.pop(first - 1, None)
        if before is not None:
            del self._last_of[before]
            first = before
        after = self._last_of.pop(last + 1, None)
        if after is not None:
            del self._first_of[after]
            last = after
        self._listed = None
        self._last_of[first] = last
        self._first_of[last] = first
        if len(self._last_of) > NEWEST:
            self._remove(next(iter(self._last_of)))

    def discard(self, index: int) -> None:
        for first, last in self._last_of.items():
            if first <= index <= last:
                self._remove(first)
                if first < index:
                    self.add(first, index - 1)
                if index < last:
                    self.add(index + 1, last)
                return

    def _remove(self, first: int) -> None:
        self._listed = None
        del self._first_of[self._last_of.pop(first)]

    def listed(self) -> list[list[int]]:
        """The ranges in order. Do not modify the list: it is reused until a range changes."""
        if self._listed is None:
            self._listed = sorted(map(list, self._last_of.items()))
        return self._listed

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.listed())
