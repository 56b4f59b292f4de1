"""Finding the lines of a text that have certain bytes in them, at about the speed of grep."""

from __future__ import annotations

from collections.abc import Iterator

RARE = 500
"""A byte is rare if it is one of at least so many: looking at each place where it stands is then the fastest."""


class Needle:
    """The bytes to look for, without a newline; with `any_case`, ASCII letters match in either case.

    A text in lower case takes longer to make than to search, so it is made only where the needle has no rare byte.
    """

    def __init__(self, needle: bytes, *, any_case: bool = False) -> None:
        self._needle = needle.lower() if any_case else needle
        self._has_cases = any_case and needle.lower() != needle.upper()
        self._rarest: tuple[int, list[bytes]] | None = None
        """Where in the needle its rarest byte stands, and the forms of it; None before the first text."""
        self._has_rare = self._has_cases
        """Whether that byte was rare in all texts so far."""

    def lines(self, text: bytes, end: int) -> Iterator[tuple[int, int]]:
        """Where each line with the needle begins, and where its newline is. All lines end before `end`."""
        if not self._has_cases:
            return self._search(text, end)
        if self._has_rare:
            self._rarest = self._rarest or self._find_rarest(text)
            found = self._compare(text, end, *self._rarest)
            if found is not None:
                return iter(found)
            self._has_rare = False
        return self._search(text.lower(), end)

    def _search(self, text: bytes, end: int) -> Iterator[tuple[int, int]]:
        found = text.find(self._needle, 0, end)
        while 0 <= found < end:
            stop = text.index(b"\n", found)
            yield text.rfind(b"\n", 0, found) + 1, stop
            found = text.find(self._needle, stop + 1, end)

    def _compare(self, text: bytes, end: int, at: int, forms: list[bytes]) -> list[tuple[int, int]] | None:
        """Look at each place of the byte; None if it is not rare here."""
        needle, lines, left = self._needle, set(), end // RARE
        for form in forms:
            found = text.find(form, 0, end)
            while found >= 0:
                if (left := left - 1) < 0:
                    return None
                start = found - at
                if start >= 0 and text[start : start + len(needle)].lower() == needle:
                    lines.add((text.rfind(b"\n", 0, found) + 1, text.index(b"\n", found)))
                found = text.find(form, found + 1, end)
        return sorted(lines)

    def _find_rarest(self, text: bytes) -> tuple[int, list[bytes]]:
        forms = [sorted({byte, byte.upper()}) for byte in map(bytes, zip(self._needle, strict=True))]
        at = min(range(len(forms)), key=lambda at: sum(map(text.count, forms[at])))
        return at, forms[at]
