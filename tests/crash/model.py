"""A disk as a crash sees it: what is certain, what is only in the page cache, and every state that a power cut may
leave.

Certain is what a file held when it was fsynced, and a folder's entries when the folder was. An fsync of a file says
nothing about its entry. Each write since may be absent, torn, zero-filled or whole; of the operations on folders
since, any subset may have happened (which takes in every prefix), each of them wholly or not at all.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, product

SUBSETS_UP_TO = 8
"""With more pending folder operations than this: all prefixes, and all that lack or have at most two."""
WRITES_UP_TO = 3
"""With more writes to one file since its fsync than this: each with every fate, the others whole, or absent behind
it."""
FATES = ("absent", "line", "torn", "torn, then zeros", "zeros, then the rest", "zeros", "whole")
"""What becomes of a write that was not fsynced."""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    inode: int


@dataclass(frozen=True, slots=True)
class Link:
    source: str
    path: str


@dataclass(frozen=True, slots=True)
class MakeFolder:
    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Unlink:
    """Of a file, or of an empty folder."""

    path: str


@dataclass(frozen=True, slots=True)
class Truncate:
    inode: int
    length: int = 0


@dataclass(frozen=True, slots=True)
class Write:
    inode: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SyncFile:
    inode: int


@dataclass(frozen=True, slots=True)
class SyncFolder:
    path: str


@dataclass(frozen=True, slots=True)
class Told:
    """Not an operation: from here on these items are promised to be done."""

    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Completed:
    """Not an operation: from here on the run is promised to be complete."""


Operation = Create | Link | MakeFolder | Rename | Unlink | Truncate | Write | SyncFile | SyncFolder | Told | Completed

Tree = dict[str, int | None]
"""By path: a file's inode, or None for a folder."""
State = dict[str, bytes | None]
"""By path: a file's content, or None for a folder."""


@dataclass(slots=True)
class _Pending:
    """An operation on folders that is not certain yet, with the inode it moved."""

    operation: Create | Link | MakeFolder | Rename | Unlink
    inode: int | None

    def folders(self) -> set[str]:
        operation = self.operation
        if isinstance(operation, Rename):
            return {os.path.dirname(operation.source), os.path.dirname(operation.target)}
        return {os.path.dirname(operation.path)}

    def apply(self, tree: Tree) -> None:
        operation = self.operation
        if isinstance(operation, Rename):
            tree.pop(operation.source, None)
            tree[operation.target] = self.inode
            if self.inode is None:
                # A folder: what is in it goes with it.
                before = operation.source + "/"
                for path in [path for path in tree if path.startswith(before)]:
                    tree[f"{operation.target}/{path.removeprefix(before)}"] = tree.pop(path)
        elif isinstance(operation, Unlink):
            tree.pop(operation.path, None)
        else:
            tree[operation.path] = self.inode


@dataclass(slots=True)
class _File:
    certain: bytes = b""
    since: tuple[Write | Truncate, ...] = ()


@dataclass(slots=True)
class Model:
    files: dict[int, _File] = field(default_factory=dict)
    certain: Tree = field(default_factory=dict)
    visible: Tree = field(default_factory=dict)
    pending: list[_Pending] = field(default_factory=list)
    told: frozenset[str] = frozenset()
    completed: bool = False

    @classmethod
    def of(cls, state: State, *, told: frozenset[str] = frozenset(), completed: bool = False) -> Model:
        """After a power cut: what is there is certain."""
        model = cls(told=told, completed=completed)
        for path, content in state.items():
            if content is None:
                model.certain[path] = None
            else:
                inode = model.new_inode()
                model.files[inode] = _File(content)
                model.certain[path] = inode
        model.visible = dict(model.certain)
        return model

    def copy(self) -> Model:
        files = {inode: _File(file.certain, file.since) for inode, file in self.files.items()}
        return Model(files, dict(self.certain), dict(self.visible), list(self.pending), self.told, self.completed)

    def new_inode(self) -> int:
        return len(self.files) + 1

    def apply(self, operation: Operation) -> None:
        match operation:
            case Create(path, inode):
                self.files[inode] = _File()
                self._pend(_Pending(operation, inode))
            case Link(source):
                self._pend(_Pending(operation, self.visible[source]))
            case MakeFolder(path):
                self._pend(_Pending(operation, None))
            case Rename(source, _):
                self._pend(_Pending(operation, self.visible[source]))
            case Unlink(path):
                self._pend(_Pending(operation, None))
            case Write(inode) | Truncate(inode):
                self.files[inode].since += (operation,)
            case SyncFile(inode):
                file = self.files[inode]
                file.certain, file.since = _whole(file), ()
            case SyncFolder(path):
                folder = "" if path == "." else path
                for pending in self.pending:
                    if folder in pending.folders():
                        pending.apply(self.certain)
                self.pending = [pending for pending in self.pending if folder not in pending.folders()]
            case Told(keys):
                self.told |= keys
            case Completed():
                self.completed = True

    def _pend(self, pending: _Pending) -> None:
        pending.apply(self.visible)
        self.pending.append(pending)

    def after_kill(self) -> State:
        """What the next launch reads if only the process died: everything, certain or not."""
        contents = {inode: _whole(file) for inode, file in self.files.items()}
        return {path: None if inode is None else contents[inode] for path, inode in _reachable(self.visible)}

    def after_power_cut(self, *, brief: bool = False) -> Iterator[State]:
        """Every state that may be left. Some are the same. `brief`: of files that still have a temporary name, which
        nothing ever reads, only with a torn and a whole content."""
        for chosen in _subsets(self.pending):
            tree = dict(self.certain)
            for pending in chosen:
                pending.apply(tree)
            entries = _reachable(tree)
            # A file may have two names: one that is written over was state.json until its successor was on disk.
            doubtful = dict.fromkeys(inode for _, inode in entries if inode is not None and self.files[inode].since)
            certain = {path: None if inode is None else self.files[inode].certain for path, inode in entries}
            if not doubtful:
                yield certain
                continue
            paths = {inode: [path for path, other in entries if other == inode] for inode in doubtful}
            found = (
                _variants(
                    self.files[inode].certain,
                    self.files[inode].since,
                    ("torn", "whole") if brief and all(path.endswith(".tmp") for path in names) else FATES,
                )
                for inode, names in paths.items()
            )
            for contents in product(*found):
                state = dict(certain)
                for names, content in zip(paths.values(), contents, strict=True):
                    state |= dict.fromkeys(names, content)
                yield state

    def may_leave_more(self, operation: Operation) -> bool:
        """Can a crash right after `operation` leave what one right before it cannot, or break a promise it cannot?
        What is synced only rules states out."""
        if isinstance(operation, Told):
            return bool(operation.keys)
        return not isinstance(operation, SyncFile | SyncFolder)


def fingerprint(state: State) -> int:
    """64 bits: states that are the same have the same."""
    return hash(tuple(state.items()))


def _reachable(tree: Tree) -> list[tuple[str, int | None]]:
    """The entries whose folders are there, in order of their paths."""
    found: dict[str, int | None] = {}
    for path, inode in sorted(tree.items()):
        folder = os.path.dirname(path)
        if not folder or found.get(folder, 0) is None:
            found[path] = inode
    return list(found.items())


def _subsets(pending: list[_Pending]) -> Iterator[list[_Pending]]:
    count = len(pending)
    if count <= SUBSETS_UP_TO:
        sizes = list(range(count + 1))
    else:
        for size in range(count + 1):
            yield pending[:size]
        sizes = [0, 1, 2, count - 2, count - 1, count]
    for size in sizes:
        yield from (list(chosen) for chosen in combinations(pending, size))


def _whole(file: _File) -> bytes:
    content = bytearray(file.certain)
    for one in file.since:
        _apply(content, one, "whole")
    return bytes(content)


@lru_cache(maxsize=1024)
def _variants(certain: bytes, since: tuple[Write | Truncate, ...], fates_of_one: tuple[str, ...]) -> tuple[bytes, ...]:
    """What a file may hold, each write since its fsync having a fate of its own."""
    found: dict[bytes, None] = {}
    for fates in _fates(fates_of_one, len(since)):
        content = bytearray(certain)
        for one, fate in zip(since, fates, strict=True):
            _apply(content, one, fate)
        found[bytes(content)] = None
    return tuple(found)


def _fates(fates_of_one: tuple[str, ...], count: int) -> Iterator[tuple[str, ...]]:
    if count <= WRITES_UP_TO:
        yield from product(fates_of_one, repeat=count)
        return
    for at in range(count):
        for fate in fates_of_one:
            yield ("whole",) * at + (fate,) + ("whole",) * (count - at - 1)
            yield ("whole",) * at + (fate,) + ("absent",) * (count - at - 1)


def _apply(content: bytearray, one: Write | Truncate, fate: str) -> None:
    if fate == "absent":
        return
    if isinstance(one, Truncate):
        del content[one.length :]
        return
    half, rest = len(one.data) // 2, len(one.data) - len(one.data) // 2
    data = {
        "line": one.data[: one.data.find(b"\n") + 1],
        "torn": one.data[:half],
        "torn, then zeros": one.data[:half] + bytes(rest),
        "zeros, then the rest": bytes(half) + one.data[half:],
        "zeros": bytes(len(one.data)),
        "whole": one.data,
    }[fate]
    if len(content) < one.offset:
        content.extend(bytes(one.offset - len(content)))
    content[one.offset : one.offset + len(data)] = data
