"""A file's content, and a cheap check whether it may have changed."""

from __future__ import annotations

import os
from hashlib import blake2b, sha256

from agentrun.errors import ItemsError, SourceChangedError
from agentrun.items.port import CONTENT_BYTES


def file_stamp(path: str, name: str) -> int:
    """64 bits that differ if the size or modification time differs."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise gone(name) from None
    except OSError as error:
        raise _unreadable(name, error) from None
    data = b"%d:%d" % (status.st_size, status.st_mtime_ns)
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def file_digest(path: str, name: str) -> bytes:
    hasher = sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(1 << 20):
                hasher.update(chunk)
    except FileNotFoundError:
        raise gone(name) from None
    except OSError as error:
        raise _unreadable(name, error) from None
    return hasher.digest()[:CONTENT_BYTES]


def shown_path(path: str) -> str:
    """A path for messages, with bytes that are not UTF-8 escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def gone(name: str) -> SourceChangedError:
    return SourceChangedError(f"{shown_path(name)}: disappeared while the items were being read; try again")


def _unreadable(name: str, error: OSError) -> ItemsError:
    return ItemsError(f"{shown_path(name)}: cannot be read: {error.strerror}")
