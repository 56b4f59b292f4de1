"""The connection to a Postgres server: statements and transactions, and the server's errors in our own words.

No state of the session counts, as a pooler may give each transaction another session: every transaction says for itself
that it must be durable, and no statement is prepared. None of the library's own words are shown, since they may hold
parts of the address, and so of the password.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from psycopg.types.array import ListBinaryDumper

from agentrun.errors import AgentrunError, CheckpointError, StoreError, UsageError
from agentrun.store.homes.postgres.watchdog import Overdue, WatchedConnection

ANSWER_SECONDS = 15.0
"""How long the server may be silent."""
SLOWEST_BYTES_PER_SECOND = 256 * 1024
"""What is sent may take longer, but not slower than this."""
_PARAMETERS: dict[str, Any] = {
    "application_name": "agentrun",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""Unless the address says otherwise."""
_WITHOUT_DEFAULT = (
    "host",
    "hostaddr",
    "password",
    "passfile",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "sslcrl",
    "sslcrldir",
)
"""Parameters that libpq takes as not given if they are empty. It then does not look at their variables either."""
_FORM = "postgres://USER:PASSWORD@HOST:5432/DATABASE, with % and two digits for special characters in the password"
_GRANTS = "usage on the schema agentrun, and select, insert, update and delete on its tables"

DURABLY = "set_config('synchronous_commit', 'on', true)"
"""To be selected in a transaction: when that has returned, it is on the server's disk."""
Rows = list[tuple[Any, ...]]
T = TypeVar("T")

# Otherwise Python shows the library's warnings on standard error.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class PostgresServer:
    """A server, connected to by the first call, and again by the call after an error. One call at a time."""

    def __init__(
        self,
        url: str,
        *,
        shown: str,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shown = shown
        self.connections = 0
        """How many there have been."""
        self._address = _parameters(url, shown)
        self._defaults: dict[str, Any] | None = _defaults()
        self._answer_seconds = answer_seconds
        self._clock = clock
        self._lock = threading.RLock()
        self._connection: WatchedConnection | None = None
        self._is_in_transaction = False

    def ask(self, text: str, values: Sequence[Any] = ()) -> Rows:
        """The rows of a statement that only reads."""
        with self._lock:
            may_be_stale = self._connection is not None and not self._is_in_transaction
            try:
                return self._rows(text, values)
            except _Cut:
                # Servers and firewalls end connections that were idle; reading again does no harm.
                if not may_be_stale:
                    raise
            return self._rows(text, values)

    def change(self, text: str, values: Sequence[Any]) -> Rows:
        """The rows of a statement that writes, which is a transaction by itself."""
        with self._lock:
            return self._rows(text, values)

    def _rows(self, text: str, values: Sequence[Any]) -> Rows:
        return self._call(lambda on: on.execute(text, values, binary=True).fetchall(), size=_size(values))

    @contextmanager
    def transaction(self) -> Iterator[Callable[[str, Sequence[Any]], int]]:
        """A transaction that is durable after the block, or undone by an error in it.

        It gives a function that runs a statement and returns how many rows that touched.
        """

        def run(text: str, values: Sequence[Any] = ()) -> int:
            return self._call(lambda on: on.execute(text, values or None).rowcount, size=_size(values))

        with self._lock:
            if self._connection is None:
                self._connect()
            self._is_in_transaction = True
            try:
                # A runner that is paused now must not keep others from the rows that it has locked: the server ends
                # this transaction before they give up. It would not in a pipeline of psycopg, whose last message, a
                # Flush, turns that clock off.
                idle = f"set local idle_in_transaction_session_timeout = {self._answer_seconds * 600:.0f}"
                run(f"begin; select {DURABLY}; {idle}")
                yield run
                run("commit")
            except BaseException:
                self._undo()
                raise
            finally:
                self._is_in_transaction = False

    def _undo(self) -> None:
        try:
            if self._connection is not None:
                self._call(lambda on: on.execute("rollback"))
        except AgentrunError:
            pass  # without a connection the server undoes it by itself

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _call(self, send: Callable[[WatchedConnection], T], *, size: int = 0) -> T:
        if self._connection is None:
            if self._is_in_transaction:
                raise _Cut(f"{self.shown}: the connection was lost")
            self._connect()
        assert self._connection is not None
        self._connection.sending_seconds = size / SLOWEST_BYTES_PER_SECOND
        try:
            return send(self._connection)
        except Overdue:
            said: AgentrunError = self._overdue()
        except psycopg.Error as error:
            said = self._error(error)
        except UnicodeEncodeError:
            said = self._unkept()
        except BaseException:
            # Perhaps an answer is still on its way, which the next call must not take for its own.
            self.close()
            raise
        self.close()
        # Not within the block above: the library's error would be part of this one.
        raise said

    # ---- connecting

    def _connect(self) -> None:
        if self._defaults is None:
            self._defaults = _defaults()
        try:
            self._connection = WatchedConnection.connect(
                **{**self._defaults, **_PARAMETERS, **self._address, "client_encoding": "UTF8"},
                autocommit=True,
                prepare_threshold=None,
            )
            self._connection.silence_seconds, self._connection.clock = self._answer_seconds, self._clock
            # As text, records would take twice their bytes.
            self._connection.adapters.register_dumper(list, ListBinaryDumper)
        except psycopg.Error as error:
            said: AgentrunError | None = self._refusal(error)
        except UnicodeEncodeError:
            said = UsageError(f"{self.shown}: a variable PG* is not UTF-8; set it to another value")
        except OSError as error:
            said = StoreError(f"{self.shown}: cannot be connected to ({error.strerror})")
        else:
            said = None
        if said is not None:
            self.close()
            if isinstance(said, UsageError) and not self.connections:
                # Someone may set PGPASSWORD now, in the same notebook, and try again.
                self._defaults = None
            raise said
        self.connections += 1
        self._refuse_unless_sound()

    def _refuse_unless_sound(self) -> None:
        ((fsync,),) = self._rows("select current_setting('fsync')", ())
        if fsync != "on":
            self.close()
            raise UsageError(
                f"{self.shown}: this server has fsync off, so a power cut would take back what it has acknowledged; "
                f"set fsync = on in its postgresql.conf and reload it, or choose another store"
            )

    def _refusal(self, error: psycopg.Error) -> AgentrunError:
        """Of a connection. Neither the library nor the server gives a code for it: what counts are the words."""
        if isinstance(error, psycopg.errors.ConnectionTimeout):
            return StoreError(f"{self.shown}: did not answer when it was connected to")
        if isinstance(error, psycopg.ProgrammingError):
            return UsageError(f"{self.shown}: a setting in the address is wrong; write {_FORM}")
        said = str(error)
        for pattern, kind, words in _REFUSALS:
            if re.search(pattern, said, re.IGNORECASE):
                return kind(f"{self.shown}: {words}")
        return StoreError(
            f"{self.shown}: no connection; check that the server is running and can be reached from here, and the "
            f"user, the password and the database in the address"
        )

    # ---- errors

    def _error(self, error: psycopg.Error) -> AgentrunError:
        code = error.sqlstate or ""
        if isinstance(error, psycopg.DataError):
            return self._unkept()
        if not code or code.startswith(("08", "57P")):
            return _Cut(f"{self.shown}: the connection was lost")
        for start, kind, words in _CODES:
            if code.startswith(start):
                return kind(f"{self.shown}: {words}")
        return StoreError(f"{self.shown}: a statement failed there (SQLSTATE {code})")

    def _overdue(self) -> StoreError:
        return StoreError(f"{self.shown}: did not answer within {self._answer_seconds:g} s")

    def _unkept(self) -> UsageError:
        return UsageError(f"{self.shown}: this database cannot keep a name or a value; use a database with UTF-8")


class Forbidden(UsageError):
    """The user may not do that."""


class _Cut(StoreError):
    """The connection turned out to be gone."""


_CODES: list[tuple[str, type[AgentrunError], str]] = [
    ("42501", Forbidden, f"this user may not do that; grant it {_GRANTS}"),
    ("28", UsageError, "the server refuses this user; check the user and the password in the address"),
    ("3D", UsageError, "there is no such database; check the address, or create it"),
    ("42P01", CheckpointError, "tables of agentrun are gone; restore the database from a backup"),
    ("42703", CheckpointError, "the tables are not those of agentrun; restore the database from a backup"),
    ("3F", CheckpointError, "the schema agentrun is gone; restore the database from a backup"),
    ("23505", CheckpointError, "a record is there already; another program wrote here"),
    ("XX001", CheckpointError, "the server says that its data is damaged; restore the database from a backup"),
    ("XX002", CheckpointError, "the server says that an index is damaged; run REINDEX there"),
    ("25006", StoreError, "this server is read-only now, as a standby is; write the address of the primary"),
    ("25P03", StoreError, "the server ended a transaction in which this process was paused"),
    ("40", StoreError, "others changed the same rows at the same time"),
    ("53100", StoreError, "the server's disk is full"),
    ("53", StoreError, "the server lacks memory or connections"),
    ("54", UsageError, "a name or a record is larger than this database can keep"),
    ("57014", StoreError, "the server cancelled a statement"),
    ("58", StoreError, "the server's disk failed"),
]
"""What codes of errors (SQLSTATE) that begin so mean."""

_REFUSALS: list[tuple[str, type[AgentrunError], str]] = [
    (
        r"starting up|shutting down|recovery mode|not yet accepting",
        StoreError,
        "the server is starting or shutting down",
    ),
    (r"too many (clients|connections)|connection slots", StoreError, "the server has too many connections"),
    (
        r"no password supplied",
        UsageError,
        "the server asks for a password; write it into the address (AGENTRUN_STORE), or into ~/.pgpass",
    ),
    (
        r"authentication (failed|error)|SCRAM|no such user|role .* does not exist|not permitted to log in",
        UsageError,
        "the server refuses the user or the password; check both in the address",
    ),
    (
        r"no such database|database .* does not exist|permission denied for database|does not have CONNECT",
        UsageError,
        "there is no such database for this user; check the address, or create it and grant connect on it",
    ),
    (
        r"no pg_hba\.conf entry|pg_hba\.conf rejects",
        UsageError,
        "the server lets nobody in from here with this user and this database; add a line to its pg_hba.conf",
    ),
    (
        r"certificate|does not support SSL|SSL was required|root\.crt",
        UsageError,
        "the server's certificate, or the lack of TLS, is not what sslmode in the address asks for",
    ),
    (
        r"invalid (\S+ )?(value|port|integer|connection option|sslmode)|invalid URI",
        UsageError,
        f"a setting in the address is wrong; write {_FORM}",
    ),
    (
        r"translate host name|resolve host|name or service|getaddrinfo",
        StoreError,
        "the name of the server's host is not known here; check the address",
    ),
    (
        r"connection refused",
        StoreError,
        "nobody listens there; check that the server is running, and the address",
    ),
]
"""What the words of a failed connection mean. Servers that speak another language than English match none of them."""


def _parameters(url: str, shown: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except (psycopg.Error, ValueError):
        pass
    # Not within the block above: the library's error holds parts of the address.
    raise UsageError(f"{shown}: this is not the address of a database; write {_FORM}")


def _defaults() -> dict[str, Any]:
    """What libpq takes from the variables PG* now. Given to each connection, later changes of them have no effect."""
    found: dict[str, Any] = dict.fromkeys(_WITHOUT_DEFAULT, "")
    found |= {one.keyword.decode(): os.fsdecode(one.val) for one in Conninfo.get_defaults() if one.val is not None}
    if found["passfile"]:
        # A launch changes to the job's folder.
        found["passfile"] = os.path.abspath(found["passfile"])
    return found


def _size(values: Sequence[Any]) -> int:
    """Bytes to send, roughly."""
    return sum(len(one) if isinstance(one, bytes) else _size(one) for one in values if isinstance(one, (bytes, list)))
