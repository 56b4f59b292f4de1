"""Jobs in a SQLite file: one machine, many jobs in one file.

WAL with synchronous=FULL: a transaction is on disk when it has returned.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentrun.errors import AgentrunError, BrokenStoreError, CheckpointError, StoreError, UsageError
from agentrun.store.homes.sql import MIGRATIONS, SqlPlace, Step, refuse_unless
from agentrun.system.disk import open_file

BUSY_SECONDS = 10.0
"""How long to wait for another process that is writing to the file."""
_APPLICATION_ID = 0x61677275
"""`agru`: what the file says it is."""
_INSERTED_AT_ONCE = 200
_PAUSE_SECONDS, _RESTART_SECONDS = 0.01, 1.0


class SqlitePlace(SqlPlace):
    """The file is made by the first write; looking changes nothing in it."""

    now = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, path: Path, *, shown: str = "") -> None:
        self.shown = shown or f"sqlite:///{path}"
        self._path = path
        # SQLite keeps it beside the file that a link points to.
        self._wal_path = Path(f"{os.path.realpath(path)}-wal")
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: _File | None = None
        """What was at the path when it was connected to; nobody can have the same number while it is open."""
        self._wal: _File | None = None
        """The same of the log; None until the connection is ready to write."""
        self._has_written = False

    def query(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            connection = self._open()
            return connection.execute(text.replace("{p}", ""), values).fetchall() if connection is not None else []

    def write(self, steps: Iterable[Step], *, lost: str) -> list[int]:
        touched: list[int] = []
        with self._lock, self._errors(writing=True):
            connection = self._open_to_write()
            connection.execute("begin immediate")
            try:
                for step in steps:
                    touched.append(connection.execute(step.text.replace("{p}", ""), step.values).rowcount)
                    refuse_unless(touched[-1], step, lost)
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise
            # After the commit: it counts only if it went into the file that others will find.
            self._refuse_if_gone()
        return touched

    def insert(
        self, job: str, journal: str, first_ref: int, lines: Sequence[bytes], *, again: bool = False
    ) -> list[Step]:
        steps: list[Step] = []
        for at in range(0, len(lines), _INSERTED_AT_ONCE):
            some = lines[at : at + _INSERTED_AT_ONCE]
            rows = ",".join(["(?,?,?,?)"] * len(some))
            values = [one for n, line in enumerate(some, first_ref + at) for one in (job, journal, n, line)]
            then = " on conflict do nothing" if again else ""
            steps.append(Step(f"insert into {{p}}record (job, journal, ref, line) values {rows}{then}", values))
        return steps

    def select(self, job: str, journal: str, refs: Sequence[int]) -> list[tuple[Any, ...]]:
        marks = ",".join("?" * len(refs))
        return self.query(
            f"select ref, line from {{p}}record where job = ? and journal = ? and ref in ({marks})",
            [job, journal, *refs],
        )

    def close(self) -> None:
        with self._lock:
            self._disconnect()
            self._has_written = False

    def _disconnect(self) -> None:
        connection, self._connection, self._wal = self._connection, None, None
        if connection is not None:
            connection.close()

    def _open(self) -> sqlite3.Connection | None:
        """None if there is no file, or nothing in it."""
        if self._connection is not None and (self._has_written or _file_at(self._path) == self._file):
            return self._connection
        self._disconnect()
        if self._has_written:
            self._refuse_if_gone()
        return self._connect() if self._is_there() and self._is_ours() else None

    def _open_to_write(self) -> sqlite3.Connection:
        connection = self._open()
        if connection is None:
            if not self._is_there():
                self._make()
            connection = self._connect()
        if self._wal is None:
            self._use_wal(connection)
            self._restart_log(connection)
            self._migrate(connection)
            self._wal, self._has_written = _file_at(self._wal_path), True
        return connection

    def _connect(self) -> sqlite3.Connection:
        self._file = _file_at(self._path)
        self._connection = self._connected("mode=rw")
        self._connection.execute("pragma synchronous = full")
        return self._connection

    def _connected(self, how: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(self._path))}?{how}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_SECONDS,
        )

    def _refuse_if_gone(self) -> None:
        if _file_at(self._path) == self._file and (self._wal is None or _file_at(self._wal_path) == self._wal):
            return
        self.close()
        raise BrokenStoreError(
            f"{self.shown}: was removed or replaced while it was in use, and the last write is not in it; put the file "
            f"back, or restore it from a backup, and resume"
        )

    def _is_ours(self) -> bool:
        """Whether the file has our tables; False if it is empty. Of a file that is not ours nothing is changed."""
        # Without locks and without the log: nothing is left beside the file, and nothing is moved from the log into it.
        # While another process writes, this look may fail; and tables that are new may be in the log alone.
        with closing(self._connected("mode=ro&immutable=1")) as connection, suppress(sqlite3.DatabaseError):
            if self._version(connection):
                return True
            if not os.path.exists(self._wal_path):
                return False
        with closing(self._connected("mode=ro")) as connection:
            return bool(self._version(connection))

    def _is_there(self) -> bool:
        try:
            return self._path.exists()
        except OSError as error:
            raise UsageError(f"{self.shown}: cannot be opened: {error.strerror}") from None

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                connection.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError as error:
                # For this SQLite does not wait by itself: another process may have just made the file, too.
                if not _is_busy(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _restart_log(self, connection: sqlite3.Connection) -> None:
        """What a failed fsync left in the log is read from memory, and may not be on the disk. So before anything is
        added to it, the log goes into the file. Not if others are in the way: those who write have done it."""
        # SQLite would wait with a lock that those need for whom it waits.
        connection.execute("pragma busy_timeout = 0")
        deadline = time.monotonic() + _RESTART_SECONDS
        while time.monotonic() < deadline:
            try:
                (is_busy, *_) = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
                if not is_busy:
                    break
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    raise
            time.sleep(_PAUSE_SECONDS)
        connection.execute(f"pragma busy_timeout = {BUSY_SECONDS * 1000:.0f}")

    def _make(self) -> None:
        """Ours alone, whatever the umask; SQLite gives its other files the same mode."""
        if not self._path.parent.is_dir():
            raise UsageError(f"{self.shown}: there is no folder {self._path.parent}; make it first")
        try:
            os.close(open_file(self._path, os.O_RDWR | os.O_CREAT))
        except OSError as error:
            raise UsageError(f"{self.shown}: cannot be made: {error.strerror}") from None

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self._version(connection) == len(MIGRATIONS):
            return
        connection.execute("begin immediate")
        try:
            # Somebody else may have been quicker.
            for number, steps in enumerate(MIGRATIONS[self._version(connection) :], self._version(connection) + 1):
                for text in steps:
                    connection.execute(text.format(p="", text="text", bytes="blob", float="real"))
                connection.execute(f"pragma user_version = {number}")
                connection.execute(f"pragma application_id = {_APPLICATION_ID}")
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise

    def _version(self, connection: sqlite3.Connection) -> int:
        """The version of the tables; 0 without any."""
        # One statement, since another process may be making the tables.
        application, version, has_tables = connection.execute(
            "select application_id, user_version, exists (select 1 from sqlite_master) "
            "from pragma_application_id, pragma_user_version"
        ).fetchone()
        if application != _APPLICATION_ID and (application or version or has_tables):
            raise UsageError(f"{self.shown}: is a database of another program; choose another file")
        if version > len(MIGRATIONS):
            raise CheckpointError(f"{self.shown}: has version {version}, from a newer agentrun; use that one")
        return int(version)

    @contextmanager
    def _errors(self, *, writing: bool = False) -> Iterator[None]:
        """What SQLite says, as an error of ours. After one the file is opened again."""
        try:
            yield
        except sqlite3.Error as error:
            self._disconnect()
            raise self._error(error, writing=writing) from error

    def _error(self, error: sqlite3.Error, *, writing: bool) -> AgentrunError:
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            return CheckpointError(f"{self.shown}: is not a sound database ({error}); restore it from a backup")
        if code.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_READONLY")):
            return UsageError(f"{self.shown}: cannot be opened ({error}); check the file and its folder")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreError(f"{self.shown}: another process has kept it locked for {BUSY_SECONDS:.0f} s")
        if code.startswith("SQLITE_IOERR") and writing:
            return BrokenStoreError(f"{self.shown}: the disk failed ({code}); check it, and resume")
        if code == "SQLITE_FULL":
            # Unlike after a failed fsync, it is certain that nothing was written: a later try does no harm.
            return StoreError(f"{self.shown}: the disk is full; free some space")
        return StoreError(f"{self.shown}: {error}")


def _is_busy(error: sqlite3.Error) -> bool:
    return error.sqlite_errorname.startswith("SQLITE_BUSY")


_File = tuple[int, int]
"""Device and inode."""


def _file_at(path: Path) -> _File | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
