"""Names on disk for keys, which can hold anything: readable as far as that is safe."""

from __future__ import annotations

import re

from agentrun.item import key_digest

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DIGESTED = re.compile(r".*-[0-9a-f]{8}")


def file_stem(key: str, *, digits: int) -> str:
    """The readable end of a key and the beginning of its digest."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", key)[-60:].lstrip(".-")
    return f"{readable}-{key_digest(key).hex()[:digits]}"


def folder_name(key: str) -> str:
    """The key itself where it can be one; otherwise, and where it reads like another's stem, `file_stem`."""
    if _PLAIN.fullmatch(key) and not _DIGESTED.fullmatch(key):
        return key
    stem = file_stem(key, digits=8)
    return stem if stem[0] != "-" else f"item{stem}"


def work_name(key: str, generation: int) -> str:
    """Of the folder that an item works in: the key can be found again by its digest."""
    name = key_digest(key).hex()
    return f"{name}-g{generation}" if generation else name
