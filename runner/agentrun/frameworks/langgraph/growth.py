"""Lists that only grow, such as a conversation: a journal has each part of them once, not once for each version.

In msgpack a list is a header, which has its length, and its elements, one after the other. So the bytes of a list that
grew are another header, all elements of the old one, and more.
"""

from __future__ import annotations

_HEADERS = {0xDC: 3, 0xDD: 5}


def growth(old: bytes, new: bytes) -> tuple[bytes, bytes] | None:
    """The header and the added elements of a list; None if it is not the old one with more at its end."""
    before, after = _header(old), _header(new)
    if not before or not after or not new.startswith(memoryview(old)[before:].tobytes(), after):
        return None
    return new[:after], new[after + len(old) - before :]


def grown(old: bytes, header: bytes, added: bytes) -> bytes:
    """The list that `growth` was told of."""
    return header + old[_header(old) :] + added


def _header(content: bytes) -> int:
    """How many bytes the header of a list has; 0 for what is not a list."""
    first = content[0] if content else 0
    return 1 if 0x90 <= first <= 0x9F else _HEADERS.get(first, 0)
