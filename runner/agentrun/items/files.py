"""Files that a pattern matches, in the order of their paths."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from agentrun.errors import ItemsError
from agentrun.item import Item
from agentrun.items.content import file_digest, file_stamp, gone, shown_path
from agentrun.items.port import Identity, check_key
from agentrun.job.home import STATE_FOLDER
from agentrun.values.text import is_unicode

_WILD = re.compile(r"[*?\[]")
_Match = Callable[[str], object]


class FilesSource:
    """`*`, `?`, `[…]` within a name, `**` for any folders; hidden names only where the pattern has the dot.

    A raw entry is a path below the pattern's fixed part. Links to folders are followed where the pattern has
    a part for them, not by `**`. `exclude` holds paths, `is_left_out` is asked about keys: of files, and of the
    folders on the way to them.
    """

    unique = False

    def __init__(
        self, base: Path, pattern: str, *, exclude: Collection[Path] = (), is_left_out: _Match | None = None
    ) -> None:
        self._base = base
        self._pattern = pattern
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if STATE_FOLDER in parts:
            raise ItemsError(f"{pattern}: {STATE_FOLDER} holds the state of jobs, not items; use another folder")
        wild = next((n for n, part in enumerate(parts) if _WILD.search(part)), len(parts))
        if ".." in parts[wild:]:
            raise ItemsError(f"{pattern}: has .. after a wildcard; put it before")
        self._root = str(Path("/" if pattern.startswith("/") else base, *parts[:wild]))
        inside = os.path.relpath(self._root, base)
        self._key_prefix = "" if inside == "." else f"{inside}/"
        self._parts = parts[wild:]
        if self._parts and self._parts[-1] == "**":
            self._parts.append("*")
        self._matchers: list[_Match | None] = [None if part == "**" else _matcher(part) for part in self._parts]
        self._exclude = {os.path.realpath(path) for path in exclude}
        self._exclude_names = {os.path.basename(path) for path in self._exclude}
        self._is_left_out = is_left_out

    def __iter__(self) -> Iterator[str]:
        if self._is_left_out is not None and any(map(self._is_left_out, _with_folders_above(self.key("")))):
            return
        if self._parts:
            yield from self._walk("", self._closure({0}), top=True)
            return
        if os.path.isdir(self._root):
            raise ItemsError(f"{self._pattern}: is a folder; write {self._pattern.rstrip('/')}/* for the files in it")
        if not os.path.isfile(self._root):
            raise ItemsError(f"{self._pattern}: there is no such file ({self._root})")
        yield ""

    def lists(self, key: str) -> bool:
        """Whether the file of this key, which another pattern has found, is one of these, too."""
        if not self._parts:
            return key == self.key("")
        below = key.removeprefix(self._key_prefix)
        if (self._key_prefix and below == key) or below.startswith("../"):
            return False
        *folders, name = below.split("/")
        states, path = self._closure({0}), ""
        for folder in folders:
            states = self._into(path, folder, states)
            path += f"{folder}/"
        last = len(self._parts) - 1
        return any(state == last and (matches := self._matchers[state]) and matches(name) for state in states)

    def identify(self, raw: str, *, with_content: bool = True) -> Identity:
        key = self.key(raw)
        return Identity(check_key(key, shown_path(key)), None, file_stamp(self._path(raw), self.key(raw)))

    def content(self, raw: str) -> bytes:
        return file_digest(self._path(raw), self.key(raw))

    def glance(self, raw: str) -> int:
        return 0

    def item(self, raw: str, index: int, key: str) -> Item:
        return Item(index, key, path=Path(self._path(raw)))

    def where(self, index: int) -> str:
        for position, raw in enumerate(self):
            if position == index:
                return self.shown(raw)
        return f"{self._pattern}, item {index}"

    def describe(self) -> str:
        what = "no file matches" if self._is_left_out is None else "no file but those that exclude names matches"
        return f"{what} {self._pattern} in {self._base}"

    def shown(self, raw: str) -> str:
        return shown_path(self.key(raw))

    def key(self, raw: str) -> str:
        return self._key_prefix + raw if raw else self._key_prefix[:-1]

    def _path(self, raw: str) -> str:
        return f"{self._root}/{raw}" if raw else self._root

    def _closure(self, states: set[int]) -> frozenset[int]:
        """The parts of the pattern that a name may match next: `**` also stands for no folder at all."""
        reached = set(states)
        for state in sorted(states):
            while self._matchers[state] is None:
                state += 1
                reached.add(state)
        return frozenset(reached)

    def _into(self, below: str, folder: str, states: frozenset[int]) -> frozenset[int]:
        """The parts of the pattern that a name in `folder` may match; none if the pattern leads nowhere there."""
        last = len(self._parts) - 1
        following = {
            state + 1
            for state in states
            if state < last and (matches := self._matchers[state]) is not None and matches(folder)
        }
        if not folder.startswith("."):
            deep = {state for state in states if self._matchers[state] is None}
            if deep and not os.path.islink(self._path(below + folder)):
                following |= deep
        return self._closure(following)

    def _walk(self, below: str, states: frozenset[int], *, top: bool = False) -> Iterator[str]:
        for name in self._names(below, states, top=top):
            if not name.endswith("/"):
                yield below + name
            elif following := self._into(below, name[:-1], states):
                yield from self._walk(below + name, following)

    def _names(self, below: str, states: frozenset[int], *, top: bool) -> Iterator[str]:
        """The relevant names in one folder, in the order of whole paths; folders end in `/`."""
        last = len(self._parts) - 1
        files = [matches for state in states if state == last and (matches := self._matchers[state])]
        folders = [matches for state in states if state < last and (matches := self._matchers[state])]
        deep = any(self._matchers[state] is None for state in states)
        names = []
        try:
            with os.scandir(self._path(below)) as entries:
                for entry in entries:
                    name = entry.name
                    is_file = any(matches(name) for matches in files)
                    is_folder = (deep and not name.startswith(".")) or any(matches(name) for matches in folders)
                    if not (is_file or is_folder) or name == STATE_FOLDER:
                        continue
                    is_link = entry.is_symlink()
                    if (name in self._exclude_names or is_link) and os.path.realpath(entry.path) in self._exclude:
                        continue
                    if self._is_left_out is not None and self._is_left_out(self.key(below + name)):
                        continue
                    if entry.is_dir():
                        if is_folder:
                            names.append(name + "/")
                    elif is_file:
                        if entry.is_file():
                            names.append(name)
                        elif is_link and not os.path.exists(entry.path):
                            raise ItemsError(
                                f"{shown_path(self.key(below + name))}: is a broken link; remove or fix it"
                            )
        except (FileNotFoundError, NotADirectoryError):
            if top:
                return
            raise gone(self.key(below)) from None
        except OSError as error:
            raise ItemsError(f"{shown_path(self._path(below))}: cannot be listed: {error.strerror}") from None
        names.sort()
        # One string instead of a list: a folder of a million files may be held for a whole run.
        text = "\0".join(names)
        del names
        start = 0
        while start < len(text):
            end = text.find("\0", start)
            if end < 0:
                end = len(text)
            name = text[start:end]
            if not name.isascii():
                self._check_unicode(below + name)
            yield name
            start = end + 1

    def _check_unicode(self, raw: str) -> None:
        if not is_unicode(raw):
            raise ItemsError(f"{shown_path(self.key(raw))}: the name is not UTF-8; rename it")


def _with_folders_above(key: str) -> Iterator[str]:
    while key:
        yield key
        key = os.path.dirname(key)


def _matcher(part: str) -> _Match:
    if not _WILD.search(part):
        return part.__eq__
    if set(part) == {"*"}:
        return _is_visible
    match = re.compile(fnmatch.translate(part)).match
    if part.startswith("."):
        return match
    return lambda name: not name.startswith(".") and match(name)


def _is_visible(name: str) -> bool:
    return not name.startswith(".")
