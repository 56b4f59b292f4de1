"""Jobs in a SQLite file: one machine, many jobs in one file.

WAL with synchronous=FULL: a transaction is on disk when it has returned.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentrun.errors import AgentrunError, CheckpointError, StoreError, UsageError
from agentrun.store.homes.sql import MIGRATIONS, SqlPlace, Step, refuse_unless
from agentrun.system.disk import open_file

BUSY_SECONDS = 10.0
"""How long to wait for another process that is writing to the file."""
_APPLICATION_ID = 0x61677275
"""`agru`: what the file says it is."""
_INSERTED_AT_ONCE = 200
_PAUSE_SECONDS = 0.01


class SqlitePlace(SqlPlace):
    """The file is made by the first write."""

    now = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, path: Path, *, shown: str = "") -> None:
        self.shown = shown or f"sqlite:///{path}"
        self._path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None

    def query(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            connection = self._open(make=False)
            return connection.execute(text.replace("{p}", ""), values).fetchall() if connection is not None else []

    def write(self, steps: Iterable[Step], *, lost: str) -> list[int]:
        touched: list[int] = []
        with self._lock, self._errors():
            connection = self._open(make=True)
            assert connection is not None
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
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _open(self, *, make: bool) -> sqlite3.Connection | None:
        """None if there is no file, and none is to be made."""
        if self._connection is not None:
            return self._connection
        if not self._is_there():
            if not make:
                return None
            self._make()
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_SECONDS,
        )
        try:
            self._use_wal(connection)
            connection.execute("pragma synchronous = full")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

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
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)

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
        (version,) = connection.execute("pragma user_version").fetchone()
        (application,) = connection.execute("pragma application_id").fetchone()
        if version and application != _APPLICATION_ID:
            raise UsageError(f"{self.shown}: is a database of another program; choose another file")
        if version > len(MIGRATIONS):
            raise CheckpointError(f"{self.shown}: has version {version}, from a newer agentrun; use that one")
        return int(version)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What SQLite says, as an error of ours. After one the file is opened again."""
        try:
            yield
        except sqlite3.Error as error:
            self.close()
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> AgentrunError:
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            return CheckpointError(f"{self.shown}: is not a sound database ({error}); restore it from a backup")
        if code.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_READONLY")):
            return UsageError(f"{self.shown}: cannot be opened ({error}); check the file and its folder")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreError(f"{self.shown}: another process has kept it locked for {BUSY_SECONDS:.0f} s")
        return StoreError(f"{self.shown}: {error}")
