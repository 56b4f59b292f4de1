"""The items that one launch is limited to: those of --only, or a pilot."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import Literal

from agentrun.checkpoint.ledger import NO_REF, PENDING, Ledger
from agentrun.values.sampling import spread


class Selection(ABC):
    """Some rows of the ledger. The launch leaves the others as they are, and stops when none of these is pending."""

    by: Literal["only", "pilot"]

    @abstractmethod
    def __contains__(self, row: int) -> bool: ...

    def note(self, row: int, key: str) -> None:  # noqa: B027 - a selection by other means than keys
        """An item of the source, at each pass over it."""

    def left_out(self, ledger: Ledger) -> int:
        """How many pending items are not among them."""
        return sum(row not in self for row in ledger.rows_in(PENDING))

    def is_over(self, ledger: Ledger) -> bool:
        """Whether none of its items is pending."""
        return not any(row in self for row in ledger.rows_in(PENDING))


class Only(Selection):
    """Items whose keys match a pattern: `*`, `?` and `[…]` as in a shell, but `*` also matches `/`. A whole key
    matches itself. One byte an item."""

    by = "only"

    def __init__(self, patterns: Sequence[str]) -> None:
        self._matches = re.compile("|".join(f"{translate(one)}|{re.escape(one)}\\Z" for one in patterns)).match
        self._rows = bytearray()
        self.unmatched = list(patterns)
        """The patterns that no item has matched so far."""

    def note(self, row: int, key: str) -> None:
        if row >= len(self._rows):
            self._rows.extend(bytes(row + 1 - len(self._rows)))
        self._rows[row] = self._matches(key) is not None
        if self.unmatched and self._rows[row]:
            self.unmatched = [one for one in self.unmatched if not re.match(translate(one), key) and one != key]

    def __contains__(self, row: int) -> bool:
        return row < len(self._rows) and bool(self._rows[row])


class Pilot(Selection):
    """A few items from all over the list of those to run."""

    by = "pilot"

    def __init__(self, to_run: Iterable[int], wanted: int, *, seed: str) -> None:
        rows = list(to_run)
        self._rows = {rows[at] for at in spread(len(rows), wanted, seed)}

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def refs(self, ledger: Ledger) -> list[int]:
        """Where its items' records are."""
        return [ledger.refs[row] for row in sorted(self._rows) if ledger.refs[row] != NO_REF]
