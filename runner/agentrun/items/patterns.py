"""Files that several patterns match, and files that patterns leave out."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from agentrun.item import Item
from agentrun.items.files import FilesSource
from agentrun.items.port import Identity

_Raw = tuple[FilesSource, str]
_Match = Callable[[str], object]


class PatternsSource:
    """The files of each pattern in turn, each file once: at the first pattern that matches it."""

    unique = False

    def __init__(self, sources: Sequence[FilesSource]) -> None:
        self._sources = sources

    def __iter__(self) -> Iterator[_Raw]:
        for number, source in enumerate(self._sources):
            earlier = self._sources[:number]
            for raw in source:
                # Asked of the patterns: to remember the keys of a million files would take too much memory.
                if not any(one.lists(source.key(raw)) for one in earlier):
                    yield source, raw

    def identify(self, raw: _Raw, *, with_content: bool = True) -> Identity:
        return raw[0].identify(raw[1], with_content=with_content)

    def content(self, raw: _Raw) -> bytes:
        return raw[0].content(raw[1])

    def glance(self, raw: _Raw) -> int:
        return 0

    def item(self, raw: _Raw, index: int, key: str) -> Item:
        return raw[0].item(raw[1], index, key)

    def where(self, index: int) -> str:
        for position, (source, raw) in enumerate(self):
            if position == index:
                return source.shown(raw)
        return f"item {index}"

    def describe(self) -> str:
        return "; ".join(source.describe() for source in self._sources)


def open_files(
    base: Path, patterns: Sequence[str], *, left_out: Sequence[str] = (), exclude: Collection[Path] = ()
) -> FilesSource | PatternsSource:
    """The files that the patterns match. `left_out` has patterns, too; `exclude` paths, which are never items."""
    is_left_out = leaving_out(left_out, base) if left_out else None
    sources = [FilesSource(base, pattern, exclude=exclude, is_left_out=is_left_out) for pattern in patterns]
    return sources[0] if len(sources) == 1 else PatternsSource(sources)


def leaving_out(patterns: Sequence[str], base: Path) -> Callable[[str], bool]:
    """Tells which keys, of files and of folders, one of the patterns leaves out.

    A pattern with a / is a path from `base`, as in `files`; one without is the name of a file or folder anywhere.
    `*` matches hidden names, too.
    """
    paths: list[list[_Match | None]] = []
    names: list[_Match] = []
    for pattern in patterns:
        if "/" not in pattern.rstrip("/"):
            names.append(_matcher(pattern.rstrip("/")))
            continue
        inside = os.path.relpath(pattern, base) if os.path.isabs(pattern) else os.path.normpath(pattern)
        parts = inside.split("/")
        if parts[-1] == "**":
            parts.append("*")
        paths.append([None if part == "**" else _matcher(part) for part in parts])

    def is_left_out(key: str) -> bool:
        found = key.split("/")
        return any(matches(found[-1]) for matches in names) or any(_is_match(path, found) for path in paths)

    return is_left_out


def _matcher(part: str) -> _Match:
    return re.compile(fnmatch.translate(part)).match


def _is_match(path: Sequence[_Match | None], names: Sequence[str]) -> bool:
    """Whether the parts of a pattern match these names; None stands for any number of folders."""
    if not path or not names:
        return not path and not names
    first, *others = path
    if first is None:
        return any(_is_match(others, names[skipped:]) for skipped in range(len(names)))
    return bool(first(names[0])) and _is_match(others, names[1:])
