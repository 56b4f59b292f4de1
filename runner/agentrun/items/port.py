"""The source port: where a job's items come from."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from agentrun.errors import ItemsError
from agentrun.item import KEY_LIMIT_BYTES, Item

CONTENT_BYTES = 16
LINE_KEY_LIMIT_BYTES = 200
Raw = Any
"""One entry as a source lists it, before it is parsed. Only that source can read it."""


class Identity(NamedTuple):
    """What distinguishes an item from others, and from its earlier versions."""

    key: str
    """Before any `~2`."""
    content: bytes | None
    """Half of the SHA-256 of its content; None for files, whose `content()` is computed when needed."""
    stamp: int
    """For files, 64 bits of a hash of size and time; otherwise 0."""


class Source(Protocol):
    """Items in order, streamed, any number of times.

    Listing is cheap and parses nothing; `identify` and `item` parse. ItemsError says where and why an entry
    cannot be an item; SourceChangedError, that what was listed is no longer there.
    """

    @property
    def unique(self) -> bool:
        """Whether a repeated key is an error; if not, the caller names repeats `~2`, `~3`."""
        ...

    def __iter__(self) -> Iterator[Raw]: ...

    def identify(self, raw: Raw, *, with_content: bool = True) -> Identity:
        """Key, content and stamp. Without `with_content`, the content may be None."""
        ...

    def content(self, raw: Raw) -> bytes: ...

    def glance(self, raw: Raw) -> int:
        """64 bits of the whole entry, stable within this process; 0 if they cannot be had quickly."""
        ...

    def item(self, raw: Raw, index: int, key: str) -> Item: ...

    def where(self, index: int) -> str:
        """For messages: where the item at `index` is: `items.jsonl, line 412`. Reads the source again."""
        ...

    def describe(self) -> str:
        """For messages: why there are no items."""
        ...


def digest(data: bytes) -> bytes:
    return sha256(data).digest()[:CONTENT_BYTES]


def check_key(key: str, where: str) -> str:
    if not key:
        raise ItemsError(f"{where}: the key is empty; give every item its own key")
    if "\0" in key:
        raise ItemsError(f"{where}: the key has a NUL character in it; use another field, or none")
    if len(key) * 4 > KEY_LIMIT_BYTES and (size := len(key.encode("utf-8", "replace"))) > KEY_LIMIT_BYTES:
        raise ItemsError(f"{where}: the key is {size} bytes long, over 1 KiB; use another field, or none")
    return key


def text_key(text: str, encoded: bytes) -> str:
    """The key of a line: the line itself, or its hash if it is long, blank, or has a NUL."""
    if len(encoded) > LINE_KEY_LIMIT_BYTES or b"\0" in encoded or not text.strip():
        return digest(encoded).hex()
    return text
