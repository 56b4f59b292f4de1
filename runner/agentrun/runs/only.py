"""The items that one launch is limited to (--only)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate

from agentrun.checkpoint.ledger import PENDING, Ledger


class Only:
    """Items whose keys match a pattern: `*`, `?` and `[…]` as in a shell, but `*` also matches `/`. A whole key
    matches itself. One byte an item."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._matches = re.compile("|".join(f"{translate(one)}|{re.escape(one)}\\Z" for one in patterns)).match
        self._rows = bytearray()
        self.unmatched = list(patterns)
        """The patterns that no item has matched so far."""

    def note(self, row: int, key: str) -> None:
        """An item of the source."""
        if row >= len(self._rows):
            self._rows.extend(bytes(row + 1 - len(self._rows)))
        self._rows[row] = self._matches(key) is not None
        if self.unmatched and self._rows[row]:
            self.unmatched = [one for one in self.unmatched if not re.match(translate(one), key) and one != key]

    def __contains__(self, row: int) -> bool:
        return row < len(self._rows) and bool(self._rows[row])

    def left_out(self, ledger: Ledger) -> int:
        """How many pending items are not among them."""
        return sum(row not in self for row in ledger.rows_in(PENDING))

    def is_over(self, ledger: Ledger) -> bool:
        """Whether none of its items is pending."""
        return not any(row in self for row in ledger.rows_in(PENDING))
