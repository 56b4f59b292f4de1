"""The inbox of a job's folder: one file a message, posted without the lock, processed by the runner.

A kill while one is posted leaves a stray temporary file, or the whole message. Files are never changed once they have
their name. Before a runner processes a message it renames it, and whoever takes one back unlinks it under the name it
was posted with: of the two only one succeeds.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from io import BufferedReader
from pathlib import Path

from agentrun.checkpoint.message import LIMIT_BYTES, AnyMessage, MessageError, decode_message, encode_message
from agentrun.errors import UsageError
from agentrun.store.port import Posted, message_names
from agentrun.system.disk import (
    Disk,
    NotAFile,
    discard,
    disk_error,
    is_temporary,
    open_to_read,
    secure_folder,
    sync_folder,
    temporary_name,
)

FOLDER = "inbox"
REJECTED = ".rejected"
CLAIMED = ".claimed.json"
STRAY_SECONDS = 3600.0
# Also files that people or scripts put there under other names; but none that could not be written into a log.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.json")


def _claimed(name: str) -> str:
    return name.removesuffix(".json") + CLAIMED


def _posted_as(name: str) -> str:
    return name.removesuffix(CLAIMED) + ".json" if name.endswith(CLAIMED) else name


class Inbox:
    """`folder` is the job's; the inbox inside it is made by the first message."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._path = folder / FOLDER
        self._disk = disk
        self._known: dict[str, Posted] = {}

    def post(self, messages: Sequence[AnyMessage]) -> None:
        """All of them durably. After an error some may be there; posting them again does no harm."""
        texts = [encode_message(message) for message in messages]
        if not texts:
            return
        if not self._folder.is_dir():
            raise UsageError(f"{self._folder}: there is no such job; start a run of it first")
        try:
            secure_folder(self._disk, self._path)
            self._write(texts)
        except OSError as error:
            raise disk_error(self._path, error) from error

    def _write(self, texts: list[bytes]) -> None:
        names = message_names(len(texts))
        written: list[str] = []
        try:
            # All of them before the first gets its name: on a full disk none is posted, rather than a few.
            for name, text in zip(names, texts, strict=True):
                written.append(temporary_name(self._path, name))
                fd = self._disk.open(written[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                try:
                    self._disk.write(fd, text)
                    self._disk.fsync(fd)
                finally:
                    self._disk.close(fd)
            for temporary, name in zip(written, names, strict=True):
                self._disk.replace(temporary, str(self._path / name))
        except BaseException:
            for temporary in written:
                discard(self._disk, temporary)
            raise
        sync_folder(self._disk, self._path)

    def messages(self) -> list[Posted]:
        """What is there now, oldest first. What was read before is not read again: files never change."""
        try:
            names = sorted({_posted_as(name) for name in os.listdir(self._path) if _NAME.fullmatch(name)})
        except FileNotFoundError:
            names = []
        except OSError as error:
            raise disk_error(self._path, error) from error
        found = {name: self._known.get(name) or self._read(name) for name in names}
        self._known = {name: posted for name, posted in found.items() if posted is not None}
        return list(self._known.values())

    def _read(self, name: str) -> Posted | None:
        """None if it has gone meanwhile."""
        try:
            with self._open(name) as file:
                text = file.read(LIMIT_BYTES + 1)
            if len(text) > LIMIT_BYTES:
                return Posted(name, None, f"it has more than {LIMIT_BYTES:,} bytes")
            return Posted(name, decode_message(text))
        except FileNotFoundError:
            return None
        except NotAFile:
            return Posted(name, None, "it is not a file")
        except OSError as error:
            return Posted(name, None, f"it cannot be read: {os.strerror(error.errno or 0)}")
        except MessageError as error:
            return Posted(name, None, str(error))

    def _open(self, name: str) -> BufferedReader:
        try:
            return open_to_read(self._path / name)
        except FileNotFoundError:
            return open_to_read(self._path / _claimed(name))

    def claim(self, names: Iterable[str]) -> set[str]:
        """Those of these that nobody has taken back; from now on nobody can."""
        found: set[str] = set()
        for name in filter(_NAME.fullmatch, names):
            path, claimed = self._path / name, self._path / _claimed(name)
            try:
                # No fsync: what a power cut undoes was not processed, or the records show that it was.
                self._disk.replace(str(path), str(claimed))
                found.add(name)
            except FileNotFoundError:
                # By a launch that died before it could drop the message.
                if claimed.exists():
                    found.add(name)
            except OSError as error:
                raise disk_error(path, error) from error
        return found

    def withdraw(self, name: str) -> bool:
        if not _NAME.fullmatch(name):
            return False
        try:
            self._disk.unlink(str(self._path / name))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise disk_error(self._path / name, error) from error
        self._known.pop(name, None)
        try:
            sync_folder(self._disk, self._path)
        except OSError as error:
            raise disk_error(self._path, error) from error
        return True

    def drop(self, names: Iterable[str]) -> None:
        """Unlink these; one that could not be read as a message is kept under another name, and not read again."""
        for name in names:
            if not _NAME.fullmatch(name):
                continue
            posted = self._known.pop(name, None) or self._read(name)
            if posted is None:
                continue
            path = str(self._path / name)
            claimed = str(self._path / _claimed(name))
            # No fsync after either: one that a power cut brings back is taken in again, which does no harm.
            if posted.message is None:
                try:
                    self._disk.replace(path, path + REJECTED)
                except OSError:
                    pass  # left for the next launch
            else:
                discard(self._disk, claimed if os.path.lexists(claimed) else path)

    def prune(self) -> None:
        """Unlink what posts that died have left; a young one may belong to a post that is under way."""
        try:
            names = [name for name in os.listdir(self._path) if is_temporary(name)]
        except OSError:
            return
        for name in names:
            try:
                age_seconds = time.time() - os.lstat(self._path / name).st_mtime
            except OSError:
                continue
            if age_seconds > STRAY_SECONDS:
                discard(self._disk, str(self._path / name))
