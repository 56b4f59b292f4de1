"""What attempts print: one file per slot while they run, one file per item that is not done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from agentrun.checkpoint.checkpoint import Running
from agentrun.system.disk import disk_errors, make_folders, open_file, open_to_read
from agentrun.system.trust import check_folder
from agentrun.values.names import file_stem

KEPT_BYTES = 1024 * 1024
END_BYTES = 64 * 1024


class ItemLogs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()
        self._slot_paths: dict[int, Path] = {}
        with disk_errors(folder):
            make_folders(folder)
            check_folder(folder)
            self._known.update(name for name in os.listdir(folder) if not name.startswith("."))

    def adopt(self, running: Sequence[Running], heading: str) -> None:
        """After a launch that died: what the items in flight had printed goes to their own logs."""
        for item in running:
            if item.slot is not None:
                self.keep(item.slot, item.key, heading)
        with disk_errors(self._folder):
            for name in os.listdir(self._folder):
                if name.startswith(".slot-"):
                    (self._folder / name).unlink()

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

    def keep(self, slot: int, key: str, heading: str) -> None:
        """After an attempt that is not done: add what it printed to the item's own log."""
        said = _tail(self.slot_path(slot), KEPT_BYTES)
        if not said:
            return
        path = self._folder / log_name(key)
        self._known.add(path.name)
        with disk_errors(path):
            with _open_append(path) as file:
                file.write(f"--- {heading}\n".encode("utf-8", "backslashreplace"))
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

    def forget(self, key: str) -> None:
        """The item is done: its log is no longer needed."""
        if self._known and (name := log_name(key)) in self._known:
            self._known.discard(name)
            with disk_errors(self._folder):
                (self._folder / name).unlink(missing_ok=True)

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
    """The files with what an item printed: its finished attempts, then the running one in its slot."""
    return [folder / log_name(key)] + ([_slot_path(folder, slot)] if slot is not None else [])


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


def _trim(path: Path) -> None:
    try:
        if os.path.getsize(path) <= 2 * KEPT_BYTES:
            return
    except FileNotFoundError:
        return
    end = _tail(path, KEPT_BYTES)
    os.truncate(path, 0)
    with _open_append(path) as file:
        file.write(b"[the beginning was dropped]\n" + end)
