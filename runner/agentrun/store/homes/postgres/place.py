"""Jobs in a Postgres database: the tables are in the schema `agentrun`, and many machines may use them.

The schema is made by the first write, which needs the right to create it. Where it exists, a runner needs usage of the
schema and select, insert, update and delete on its tables; a reader needs select.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from agentrun.errors import CheckpointError, UsageError
from agentrun.store.homes.postgres.server import ANSWER_SECONDS, DURABLY, Forbidden, PostgresServer
from agentrun.store.homes.sql import MIGRATIONS, SqlPlace, Step, refuse_unless
from agentrun.store.keyed.home import Commit

_MIGRATION_LOCK = 0x61677275
"""`agru`: the number of the advisory lock, held while the tables are made."""
_TYPES = {"p": "agentrun.", "text": 'text collate "C"', "bytes": "bytea", "float": "float8"}


class PostgresPlace(SqlPlace):
    """`url` may hold a password; `shown` is the address for people."""

    now = "extract(epoch from clock_timestamp())::float8"

    def __init__(
        self,
        url: str,
        *,
        shown: str,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shown = shown
        self._server = PostgresServer(url, shown=shown, answer_seconds=answer_seconds, clock=clock)
        self._found_by = 0
        """The number of the connection that found the tables."""

    def query(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._server.ask(_sql(text), values) if self._find_tables(make=False) else []

    def write(self, steps: Iterable[Step], *, lost: str) -> list[int]:
        self._find_tables(make=True)
        if isinstance(steps, Sequence) and len(steps) == 1:
            return [self._write_one(steps[0], lost=lost)]
        touched: list[int] = []
        with self._server.transaction() as run:
            for step in steps:
                touched.append(run(_sql(step.text), step.values))
                refuse_unless(touched[-1], step, lost)
        return touched

    def commit(self, head: Step, job: str, commit: Commit, *, lost: str) -> None:
        # The usual write is one statement and one round trip: the records are added only if the head was replaced.
        self._find_tables(make=True)
        (add,) = self._insert(job, commit.journal, commit.first_ref, commit.lines, source="done, ")
        self._write_one(head, add, lost=lost)

    def _write_one(self, step: Step, *more: Step, lost: str) -> int:
        """A statement that is a transaction by itself; `more` use the rows that it touched, `done`. All are durable."""
        parts = "".join(f", also{number} as ({one.text})" for number, one in enumerate(more))
        text = f"with done as ({step.text} returning 1){parts} select count(*), {DURABLY} from done"
        values = [value for one in (step, *more) for value in one.values]
        ((touched, _),) = self._server.change(_sql(text), values)
        refuse_unless(touched, step, lost)
        return int(touched)

    def insert(
        self, job: str, journal: str, first_ref: int, lines: Sequence[bytes], *, again: bool = False
    ) -> list[Step]:
        return self._insert(job, journal, first_ref, lines, then=" on conflict do nothing" if again else "")

    def _insert(
        self, job: str, journal: str, first_ref: int, lines: Sequence[bytes], *, source: str = "", then: str = ""
    ) -> list[Step]:
        text = (
            "insert into {p}record (job, journal, ref, line) select ?::text, ?::text, new.ref, new.line "
            f"from {source}unnest(?b::bigint[], ?b::bytea[]) as new(ref, line){then}"
        )
        return [Step(text, [job, journal, list(range(first_ref, first_ref + len(lines))), list(lines)])]

    def select(self, job: str, journal: str, refs: Sequence[int]) -> list[tuple[Any, ...]]:
        return self.query(
            "select ref, line from {p}record where job = ? and journal = ? and ref = any(?::bigint[])",
            [job, journal, list(refs)],
        )

    def close(self) -> None:
        self._server.close()

    # ---- the tables

    def _find_tables(self, *, make: bool) -> bool:
        """False if there are none, and none are to be made."""
        if self._found_by and self._found_by == self._server.connections:
            return True
        version = self._version()
        if version == 0 and not make:
            return False
        if version < len(MIGRATIONS):
            self._migrate()
        self._found_by = self._server.connections
        return True

    def _version(self) -> int:
        """The version of the tables; 0 without any."""
        # Not to_regclass: within a transaction that asks a cache, which may be older than what others have committed.
        ((is_there,),) = self._server.ask(
            "select exists (select from pg_class join pg_namespace on pg_namespace.oid = relnamespace "
            "where nspname = 'agentrun' and relname = 'version')"
        )
        if not is_there:
            return 0
        ((version,),) = self._server.ask("select coalesce(max(n), 0) from agentrun.version")
        if version > len(MIGRATIONS):
            raise CheckpointError(f"{self.shown}: has version {version}, from a newer agentrun; use that one")
        return int(version)

    def _migrate(self) -> None:
        try:
            with self._server.transaction() as run:
                # Somebody else may be quicker.
                run("select pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK])
                for text in self._migration(self._version()):
                    run(text, ())
        except Forbidden:
            raise UsageError(
                f"{self.shown}: the tables of this version of agentrun are not there, and this user may not create "
                f"them; start a run as a user who may, or let the database's owner grant create on the database"
            ) from None

    def _migration(self, version: int) -> Iterator[str]:
        """The statements that make the tables of this version those of the newest."""
        if not version:
            ((has_schema,),) = self._server.ask("select exists (select from pg_namespace where nspname = 'agentrun')")
            if not has_schema:
                yield "create schema agentrun"
            yield "create table if not exists agentrun.version (n int primary key)"
        for number, texts in enumerate(MIGRATIONS[version:], version + 1):
            yield from (text.format(**_TYPES) for text in texts)
            yield f"insert into agentrun.version values ({number})"


@lru_cache(maxsize=64)
def _sql(text: str) -> str:
    # In binary, lists of bytes take less than half of the time.
    return text.replace("{p}", "agentrun.").replace("?b", "%b").replace("?", "%s")
