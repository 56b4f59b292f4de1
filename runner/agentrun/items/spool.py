"""Items from Python, as JSON lines in the job's folder: `{"text": …}`, `{"path": …}` or `{"data": …}`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agentrun.errors import ItemsError
from agentrun.item import Item
from agentrun.items.content import file_digest, file_stamp
from agentrun.items.port import Identity, check_key, digest, text_key
from agentrun.items.records import field_key, record_digest
from agentrun.items.textfile import TextFile
from agentrun.values import json as jsontext

NAME = "items"
_CHUNK_BYTES = 64 * 1024
Line = tuple[int, bytes]


def encode_python_items(items: Iterable[Any]) -> Iterator[bytes]:
    """The spool's bytes, in chunks of whole lines. Text is never treated as a path; paths become absolute."""
    chunk: list[bytes] = []
    size = 0
    for position, item in enumerate(items):
        line = _encode(position, item)
        chunk.append(line)
        size += len(line)
        if size >= _CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)


def _encode(position: int, item: Any) -> bytes:
    kind, value = "data", item
    if isinstance(item, str):
        kind = "text"
    elif isinstance(item, os.PathLike):
        path = os.fspath(item)
        kind, value = "path", os.path.abspath(path) if isinstance(path, str) else path
    try:
        return b'{"%s":%s}\n' % (kind.encode(), jsontext.encode(value, name=_place(position)))
    except jsontext.NotJson as error:
        raise ItemsError(str(error), position=position) from None


class SpoolSource:
    """Reads what `encode_python_items` wrote. With `key`, that field identifies the items that are dicts."""

    def __init__(self, path: Path, base: Path, *, key: str | None = None) -> None:
        self._file = TextFile(path, NAME)
        self._base = base
        self._key = key
        self.unique = key is not None

    def __iter__(self) -> Iterator[Line]:
        return self._file.lines()

    def identify(self, raw: Line, *, with_content: bool = True) -> Identity:
        kind, value = self._entry(raw)
        if kind == "path":
            key = check_key(self._relative(value), _place(raw[0] - 1))
            return Identity(key, None, self._stamp(raw, value))
        if kind == "text":
            encoded = value.encode()
            return Identity(text_key(value, encoded), digest(encoded), 0)
        content = record_digest(value)
        if self._key is None or not isinstance(value, dict):
            return Identity(content.hex(), content, 0)
        return Identity(field_key(value, self._key, _place(raw[0] - 1)), content, 0)

    def content(self, raw: Line) -> bytes:
        kind, value = self._entry(raw)
        if kind == "path":
            return file_digest(value, _place(raw[0] - 1))
        return digest(value.encode()) if kind == "text" else record_digest(value)

    def glance(self, raw: Line) -> int:
        return 0

    def item(self, raw: Line, index: int, key: str) -> Item:
        kind, value = self._entry(raw)
        if kind == "path":
            return Item(index, key, path=Path(value))
        return Item(index, key, line=value) if kind == "text" else Item(index, key, data=value)

    def where(self, index: int) -> str:
        return _place(index)

    def describe(self) -> str:
        return "items is empty"

    def _stamp(self, raw: Line, path: str) -> int:
        place = _place(raw[0] - 1)
        if not os.path.isfile(path):
            what = "is a folder" if os.path.isdir(path) else "there is no such file"
            raise ItemsError(f"{place}: {what}: {path}", position=raw[0] - 1)
        return file_stamp(path, place)

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._base)

    def _entry(self, raw: Line) -> tuple[str, Any]:
        try:
            ((kind, value),) = jsontext.decode(raw[1]).items()
        except (ValueError, AttributeError):
            raise ItemsError(f"{self._file.path}, line {raw[0]}: is damaged; give the items again") from None
        return kind, value


def _place(position: int) -> str:
    return f"{NAME}[{position}]"
