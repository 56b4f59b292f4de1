"""File names for items, made from their keys, which can hold anything.

A name never has a slash, a control character or a leading dot of the key's, and is not too long for any file system.
Two items never get names that some file system takes for the same one, whether or not case counts there.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from hashlib import blake2b

from agentrun.errors import JobError
from agentrun.item import key_digest
from agentrun.values.templates import fill, names_in

NAME_MOST_BYTES = 200
"""Of the whole name; its temporary name is 18 bytes longer, and most file systems end at 255."""
EXAMPLES = 3
_DIGITS = (8, 16, 32)
_ASCII_UNSAFE = re.compile(r"[^A-Za-z0-9._~+@-]+")

Keys = Callable[[], Iterable[tuple[int, str]]]
"""A pass over index and key of each item."""


class Digests:
    """Many texts of which only membership is asked, in 8 bytes each."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._sorted = array("Q", sorted(map(_short, texts)))

    def __contains__(self, text: str) -> bool:
        wanted = _short(text)
        at = bisect_left(self._sorted, wanted)
        return at < len(self._sorted) and self._sorted[at] == wanted

    def repeated(self) -> set[int]:
        """The digests that are there more than once."""
        found = self._sorted
        return {found[n] for n in range(1, len(found)) if found[n] == found[n - 1]}


class ItemNames:
    """The file names of these items, by a template with `{key}` or `{index}`."""

    def __init__(self, template: str, keys: Keys) -> None:
        self._template = template
        self._shared: set[int] = set()
        self._digits = _DIGITS[0]
        self.examples: list[str] = []
        """A few keys of items that would have the same name."""
        self.shared = 0
        """How many such items there are; a digest tells them apart."""
        if "index" not in names_in(template):
            self._tell_apart(keys)

    def name(self, index: int, key: str) -> str:
        plain = self._plain(index, key)
        if self._shared and _short(folded(plain)) in self._shared:
            return self._fill(index, key, digits=self._digits)
        return plain

    def _tell_apart(self, keys: Keys) -> None:
        plain = Digests(folded(self._plain(index, key)) for index, key in keys())
        self._shared = plain.repeated()
        if not self._shared:
            return
        those = [(n, key) for n, key in keys() if _short(folded(self._plain(n, key))) in self._shared]
        self.shared, self.examples = len(those), [key for _, key in those[:EXAMPLES]]
        for self._digits in _DIGITS:
            longer = [folded(self._fill(index, key, digits=self._digits)) for index, key in those]
            if len(set(longer)) == len(longer) and not any(name in plain for name in longer):
                return
        raise JobError(
            f"the files of {', '.join(map(repr, self.examples))} would have the same name as another item's; "
            f'write {{index}} into the output, such as "out/{{index}}-{{key}}.md"'
        )

    def _plain(self, index: int, key: str) -> str:
        readable = safe(key)
        name = fill(self._template, {"key": readable, "index": str(index)})
        if readable and len(name.encode()) <= NAME_MOST_BYTES:
            return name
        return self._fill(index, key, digits=_DIGITS[0])

    def _fill(self, index: int, key: str, *, digits: int) -> str:
        """With the beginning of the key's digest; what is too long is cut off before it."""
        ending = f"-{key_digest(key).hex()[:digits]}"
        rest = fill(self._template, {"key": ending, "index": str(index)})
        room = NAME_MOST_BYTES - len(rest.encode())
        readable = (safe(key) or "item").encode()[: max(room, 0)].decode("utf-8", "ignore")
        return fill(self._template, {"key": readable + ending, "index": str(index)})


def safe(key: str) -> str:
    """The key with everything but letters, digits and `._~+@-` replaced; may be empty."""
    if key.isascii():
        name = _ASCII_UNSAFE.sub("_", key)
    else:
        kept = (c if c in "._~+@-" or unicodedata.category(c)[0] in "LNM" else "\0" for c in _composed(key))
        name = re.sub("\0+", "_", "".join(kept))
    return name.lstrip(".-~")


def folded(name: str) -> str:
    """The same for names that a file system may take for the same file."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFD", _composed(name).casefold())


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _short(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
