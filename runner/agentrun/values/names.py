"""File and folder names for keys, which can hold anything: as readable as is safe."""

from __future__ import annotations

import re

from agentrun.item import key_digest

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DIGESTED = re.compile(r".*-[0-9a-f]{8}")


def file_stem(key: str, *, digits: int) -> str:
    """The readable end of a key and the start of its digest."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", key)[-60:].lstrip(".-")
    return f"{readable}-{key_digest(key).hex()[:digits]}"


def folder_name(key: str) -> str:
    """The key itself if it is safe and does not look like a `file_stem`; otherwise its `file_stem`."""
    if _PLAIN.fullmatch(key) and not _DIGESTED.fullmatch(key):
        return key
    stem = file_stem(key, digits=8)
    return stem if stem[0] != "-" else f"item{stem}"


def work_name(key: str, generation: int) -> str:
    """The name of an item's working folder: the digest of its key, by which it can be found again."""
    name = key_digest(key).hex()
    return f"{name}-g{generation}" if generation else name
