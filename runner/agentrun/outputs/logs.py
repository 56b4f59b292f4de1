"""What attempts print: one file per slot while they run, one per item that is not done, one per done item in `done/`.

An attempt that is over has its prints appended to the item's own log, and its slot's log emptied, before the item's
record is committed: so a slot's log never holds what another item printed. Once the record of a done item is on disk,
its log is moved to `done/`, where the newest are kept. Nothing is synced, and nobody recovers from a log: a crash loses
no more than the log of an item in flight. A crash between the commit and the move leaves a log among those of the
unfinished items; the next run moves it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from agentrun.checkpoint.checkpoint import Running
from agentrun.system.disk import disk_errors, make_folders, open_file, open_to_read
from agentrun.system.trust import check_folder
from agentrun.values.names import file_stem

KEPT_BYTES = 1024 * 1024
DONE_BYTES = 64 * 1024
END_BYTES = 64 * 1024
DONE = "done"
DROPPED = b"[the beginning was dropped]\n"
HEADING = b"--- "
HEADING_BYTES = 1024
"""What a heading may have at most, beside what is kept of one attempt."""


class ItemLogs:
    def __init__(self, folder: Path, *, keep_done: int = 0) -> None:
        """`keep_done` is of how many done items the log is kept."""
        self._folder = folder
        self._keep_done = keep_done
        self._known: set[str] = set()
        self._done: dict[str, None] = {}
        """Names of the done items' logs, oldest first."""
        self._slot_paths: dict[int, Path] = {}
        with disk_errors(folder):
            make_folders(folder)
            check_folder(folder)
            self._known.update(name for name in os.listdir(folder) if name.endswith(".log") and name[0] != ".")
            self._done = dict.fromkeys(_by_age(folder / DONE))

    def adopt(self, running: Sequence[Running], heading: str) -> None:
        """After a launch that died: what the items in flight had printed goes to their own logs."""
        for item in running:
            if item.slot is not None:
                self.keep(item.slot, item.key, heading)
        with disk_errors(self._folder):
            for name in os.listdir(self._folder):
                if name.startswith(".slot-"):
                    (self._folder / name).unlink()
            self._prune()

    def retire(self) -> None:
        """A new run begins: what is left of the runs before are logs like those of done items."""
        with disk_errors(self._folder):
            for name in _by_age(self._folder):
                if name in self._known:
                    self._move(name)

    def slot_path(self, slot: int) -> Path:
        path = self._slot_paths.get(slot)
        if path is None:
            path = self._slot_paths[slot] = _slot_path(self._folder, slot)
        return path

    def append(self, slot: int, text: str) -> None:
        with disk_errors(self.slot_path(slot)), _open_append(self.slot_path(slot)) as file:
            file.write(text.encode("utf-8", "backslashreplace") + b"\n")

    def tail(self, slot: int, count: int) -> bytes:
        return _tail(self.slot_path(slot), count)

    def keep(self, slot: int, key: str, heading: str, *, most: int = KEPT_BYTES) -> None:
        """After an attempt: add what it printed to the item's own log."""
        said = _tail(self.slot_path(slot), most)
        if not said:
            return
        path = self._folder / log_name(key)
        self._known.add(path.name)
        with disk_errors(path):
            with _open_append(path) as file:
                file.write(HEADING + f"{heading}\n".encode("utf-8", "backslashreplace"))
                file.write(said if said.endswith(b"\n") else said + b"\n")
            _trim(path)
            self.empty(slot)

    def empty(self, slot: int) -> None:
        path = self.slot_path(slot)
        try:
            if os.path.getsize(path):
                os.truncate(path, 0)
        except FileNotFoundError:
            pass

    def settle(self, key: str) -> None:
        """The item is done, and that is on disk: its log is one of the done items'; one of an older result is not."""
        if not self._known and not self._done:
            return
        name = log_name(key)
        # The item has its result: a log that cannot be moved is no reason to stop.
        with suppress(OSError):
            if name in self._known:
                self._move(name)
            elif name in self._done:
                self._drop_done(name)

    def _move(self, name: str) -> None:
        path, target = self._folder / name, self._folder / DONE / name
        self._known.discard(name)
        if not self._keep_done:
            path.unlink(missing_ok=True)
            return
        _trim(path, DONE_BYTES, over=DONE_BYTES + HEADING_BYTES)
        try:
            os.replace(path, target)
        except FileNotFoundError:
            make_folders(target.parent)
            os.replace(path, target)
        self._done.pop(name, None)
        self._done[name] = None
        self._prune()

    def _prune(self) -> None:
        while len(self._done) > self._keep_done:
            self._drop_done(next(iter(self._done)))

    def _drop_done(self, name: str) -> None:
        del self._done[name]
        (self._folder / DONE / name).unlink(missing_ok=True)

    def trim(self, slots: int) -> None:
        """Keep only the end of logs that grew too long. Writers append, so they continue at the new end."""
        for slot in range(slots):
            _trim(self.slot_path(slot))

    def close(self, slots: int) -> None:
        with disk_errors(self._folder):
            for slot in range(slots):
                self.slot_path(slot).unlink(missing_ok=True)


def log_name(key: str) -> str:
    """A file name for a key: unique, and as readable as is safe."""
    return f"{file_stem(key, digits=12)}.log"


def log_paths(folder: Path, key: str, slot: int | None) -> list[Path]:
    """The files with what an item printed, oldest first: when it was done, its attempts since then, the running one."""
    name = log_name(key)
    return [folder / DONE / name, folder / name, *([_slot_path(folder, slot)] if slot is not None else [])]


def read_end(paths: Sequence[Path], count: int) -> tuple[Path | None, list[str]]:
    """The last lines of the last of these files that has any, and which one that is."""
    for path in reversed(paths):
        text = _tail(path, END_BYTES).decode("utf-8", "replace")
        if text:
            return path, text.rstrip("\n").split("\n")[-count:]
    return None, []


def _slot_path(folder: Path, slot: int) -> Path:
    return folder / f".slot-{slot}.log"


def _open_append(path: Path) -> FileIO:
    return FileIO(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "wb")


def _tail(path: Path, count: int) -> bytes:
    try:
        with open_to_read(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - count))
            return file.read(count)
    except OSError:
        return b""


def _by_age(folder: Path) -> list[str]:
    """The names of the logs in a folder, oldest first."""
    try:
        with os.scandir(folder) as found:
            dated = [
                (one.stat(follow_symlinks=False).st_mtime_ns, one.name) for one in found if one.name.endswith(".log")
            ]
    except FileNotFoundError:
        return []
    return [name for _, name in sorted(dated) if name[0] != "."]


def _trim(path: Path, most: int = KEPT_BYTES, *, over: int = 2 * KEPT_BYTES) -> None:
    try:
        if os.path.getsize(path) <= over:
            return
    except FileNotFoundError:
        return
    end = _tail(path, most - len(DROPPED))
    os.truncate(path, 0)
    with _open_append(path) as file:
        file.write(DROPPED + end)
