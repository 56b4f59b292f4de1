"""Results as a folder with one file an item.

**Every file that we wrote is on the list (`written.py`), with its hash, before it has its name; and only a file on the
list, with that hash, is ever replaced or removed.** What a crash leaves at each step: runner/DESIGN.md, clean
completion.

A file holds the item's output: text as it is, any other value as JSON, and a newline at the end where there is none. In
files named `.json` text is JSON, too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary, WrittenOutput
from agentrun.errors import JobError
from agentrun.outputs.claim import OutputTakenError
from agentrun.outputs.names import Digests, ItemNames, Keys, folded
from agentrun.outputs.port import Output
from agentrun.outputs.results import Results, check_folder_place
from agentrun.outputs.written import Entry, WrittenList
from agentrun.system.disk import Disk, discard, disk_errors, is_temporary, open_to_read, replace_file, sync_folder

_NO_FILE = ""
"""The hash of what is there, but is no file that could be read."""
_text = msgspec.json.Decoder(str).decode


class FolderOutput(Output):
    """The folder at `path`; `names` is the template of its files' names."""

    form = "folder"

    def __init__(self, path: Path, names: str, written: WrittenList, *, overwrite: bool = False) -> None:
        self.path = path
        self.partial = path
        self.side_files = (written.name,) if written.name else ()
        self._names = names
        self._written = written
        self._overwrite = overwrite

    # ---- before anything runs

    def check(self, *, ended: Sequence[Summary], is_own: bool = False, is_first_launch: bool = False) -> None:
        may = self._overwrite or not is_first_launch or bool(ended)
        check_folder_place(self.path, is_foreign=not may)

    def check_items(self, keys: Keys) -> list[str]:
        names = ItemNames(self._names, keys)
        if self.path.is_dir():
            ours = self._ours()
            for index, key in keys():
                try:
                    self._may_write(names.name(index, key), "", ours)
                except OutputTakenError as error:
                    raise JobError(f"{error}; choose another output with -o, or add --overwrite") from None
        if not names.shared:
            return []
        examples = ", ".join(names.examples) + (", …" if names.shared > len(names.examples) else "")
        return [f"items that would share a file name, so a digest is added: {names.shared} ({examples})"]

    def is_missing(self) -> bool:
        return any(not os.path.lexists(self.path / entry.name) for entry in self._written)

    def sweep(self, disk: Disk) -> None:
        if not self.path.is_dir():
            return
        listed = None
        for name in os.listdir(self.path):
            if is_temporary(name):
                listed = listed or Digests(entry.name for entry in self._written)
                # `.<name>.<random>.tmp`; a temporary of another name is not ours.
                if name[1:-17] in listed:
                    discard(disk, str(self.path / name))

    # ---- writing

    def write(self, results: Results, disk: Disk, check: Callable[[], None] = lambda: None) -> WrittenOutput:
        """Make the folder hold these results, and of other files only those that are not ours."""
        names = self._put(results, disk, check, removes=True)
        digest, size = hashlib.sha256(), 0

        def entries() -> Iterator[Entry]:
            nonlocal size
            for entry, text in _files(results, names):
                digest.update(msgspec.json.encode(entry))
                size += len(text)
                yield entry

        self._written.replace(entries())
        listed = self._written.name
        return WrittenOutput(str(self.path), size, digest.hexdigest(), "folder", self._names, listed)

    def write_partial(self, results: Results, disk: Disk, check: Callable[[], None] = lambda: None) -> None:
        """Put these results in place. Nothing is removed: that waits for the run's completion."""
        self._put(results, disk, check, removes=False)

    def restore(self, results: Results, disk: Disk, check: Callable[[], None] = lambda: None) -> None:
        """Write the files that are missing, and only those: what was changed by hand stays."""
        names = _names_of(self._names, results)
        self._make(disk)
        with disk_errors(self.path):
            for entry, text in _files(results, names):
                if not os.path.lexists(self.path / entry.name):
                    replace_file(disk, self.path / entry.name, [text], mode=0o644, check=check, sync=False)
            sync_folder(disk, self.path)

    def drop_partial(self, disk: Disk) -> None:
        pass  # it is part of the results by now

    def _put(self, results: Results, disk: Disk, check: Callable[[], None], *, removes: bool) -> ItemNames:
        names, ours = _names_of(self._names, results), self._ours()

        def new() -> Iterator[Entry]:
            for entry, _ in _files(results, names):
                self._may_write(entry.name, entry.sha256, ours)
                if _mark(entry.name, entry.sha256) not in ours:
                    yield entry

        self._written.replace(chain(self._written, new()))
        self._make(disk)
        with disk_errors(self.path):
            if removes:
                # Before the new ones are written: where case does not count, an old name may be a new one.
                self._remove_others(results, names, disk, check)
            for entry, text in _files(results, names):
                if self._may_write(entry.name, entry.sha256, ours):
                    replace_file(disk, self.path / entry.name, [text], mode=0o644, check=check, sync=False)
            sync_folder(disk, self.path)
        return names

    def _make(self, disk: Disk) -> None:
        with disk_errors(self.path):
            try:
                disk.mkdir(str(self.path), 0o755)
            except FileExistsError:
                pass
            # Even if it exists already: the launch that made it may have been killed before this.
            sync_folder(disk, self.path.parent)

    def _remove_others(self, results: Results, names: ItemNames, disk: Disk, check: Callable[[], None]) -> None:
        """Remove the files that we wrote and that are no longer results, if nobody has changed them since."""
        now = Digests(names.name(one.position, one.record.key) for one in results())
        check()
        for entry in self._written:
            if entry.name not in now and _is_plain(entry.name) and self._hash(entry.name) == entry.sha256:
                discard(disk, str(self.path / entry.name))

    # ---- whose a file is

    def _ours(self) -> Digests:
        return Digests(_mark(entry.name, entry.sha256) for entry in self._written)

    def _may_write(self, name: str, sha256: str, ours: Digests) -> bool:
        """Whether the file is to be written; False if it is there already. OutputTakenError if another is."""
        found = self._hash(name)
        if found is None or (found and _mark(name, found) in ours):
            return found != sha256
        if found == sha256 != _NO_FILE:
            return False
        if self._overwrite and not (self.path / name).is_dir():
            return True
        whose = "and no run of this job wrote it as it is now" if self._written.name else "with other contents"
        what = f"already exists, {whose}" if found else "is in the way, and not a file that can be read"
        raise OutputTakenError(f"{self.path / name}: {what}")

    def _hash(self, name: str) -> str | None:
        """Of the file of that name; None if there is none. Links are not followed."""
        try:
            with open_to_read(self.path / name) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return _NO_FILE


def file_text(name: str, record: Record) -> bytes:
    """What an item's file holds."""
    raw = bytes(record.output)
    if raw.lstrip()[:1] == b'"' and not name.lower().endswith(".json"):
        raw = _text(raw).encode("utf-8", "backslashreplace")
    return raw if not raw or raw.endswith(b"\n") else raw + b"\n"


def _names_of(template: str, results: Results) -> ItemNames:
    return ItemNames(template, lambda: ((one.position, one.record.key) for one in results()))


def _files(results: Results, names: ItemNames) -> Iterator[tuple[Entry, bytes]]:
    for index, record in results():
        name = names.name(index, record.key)
        text = file_text(name, record)
        yield Entry(name, hashlib.sha256(text).hexdigest()), text


def _mark(name: str, sha256: str) -> str:
    return f"{folded(name)}\0{sha256}"


def _is_plain(name: str) -> bool:
    """The list is ours, but whatever it says: nothing outside of the folder is removed."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name
