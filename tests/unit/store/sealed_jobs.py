"""Jobs in a SQLite file, or in another place, for the tests of sealing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from agentrun.checkpoint.message import Reply
from agentrun.checkpoint.sealing import Keyring
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.home import Home, Place
from agentrun.store.keyed.sealed import SealedPlace
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.testing.examples import LATER_RUN, answer, checkpoint, context, record, summary

ONE, TWO = bytes(range(32)), bytes(range(32, 64))
SECRETS = ["customer-4711", "the-verdict", "hunter2-param", "from-job-json", "a-private-answer", "the-gone-verdict"]


class Bench:
    """Jobs in one place; in a file, also from behind their backs."""

    def __init__(self, folder: Path, open_place: Callable[[], Place] | None = None) -> None:
        self.folder = folder
        self.file = folder / "jobs.db"
        self.ring: Keyring | None = Keyring([ONE])
        self._open_place = open_place or (lambda: SqlitePlace(self.file))
        self._places: list[Place] = []

    def home(self, job: str = "triage") -> Home:
        self._places.append(self._open_place())
        return SealedPlace(self._places[-1], self.ring).home(job)

    def store(self, job: str = "triage", *, home: Home | None = None) -> KeyedStore:
        folder = self.folder / ".agentrun" / job
        return KeyedStore(home or self.home(job), job, folder, timing=Timing(beats=False, patience_seconds=0.0))

    def fill(self, job: str = "triage") -> None:
        """A run that ended, an unfinished one, side files and a message."""
        store = self.store(job)
        lease = store.lock(wait_seconds=0)
        store.load()
        store.keep("job.json", [orjson.dumps({"prompt": SECRETS[3]})])
        store.commit(checkpoint(1), [record(SECRETS[0], {"verdict": SECRETS[5]})])
        store.finish(summary(identity={"params": SECRETS[2]}))
        hidden = context(identity={"params": {"password": SECRETS[2]}})
        store.commit(checkpoint(1, run_id=LATER_RUN, context=hidden, total=9), [record(SECRETS[0], SECRETS[1])])
        store.commit(checkpoint(2, run_id=LATER_RUN, context=hidden, total=9), [record("b"), record("c")])
        store.post([answer(SECRETS[0], answer=Reply(yes=True, text=SECRETS[4], details={}))])
        lease.release()

    def close(self) -> None:
        for place in self._places:
            place.close()
        self._places.clear()

    def query(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        self.close()
        with closing(sqlite3.connect(self.file)) as connection, connection:
            return connection.execute(text, values).fetchall()

    def change(self, table: str, column: str, to: Callable[[bytes], bytes], where: str = "job = 'triage'") -> None:
        """Change one value."""
        ((rowid, value),) = self.query(f"select rowid, {column} from {table} where {where}")
        self.query(f"update {table} set {column} = ? where rowid = ?", to(bytes(value)), rowid)

    def swap(self, table: str, column: str, rowids: Sequence[int]) -> None:
        values = [self.query(f"select {column} from {table} where rowid = ?", one)[0][0] for one in rowids]
        for rowid, value in zip(rowids, reversed(values), strict=True):
            self.query(f"update {table} set {column} = ? where rowid = ?", value, rowid)

    def rowids(self, table: str, where: str = "true") -> list[int]:
        return [rowid for (rowid,) in self.query(f"select rowid from {table} where {where} order by rowid")]

    def use(self, job: str = "triage") -> None:
        """Read everything of the job."""
        store = self.store(job)
        store.load()
        list(store.scan())
        for run in store.summaries():
            with store.reader(run_id=run.run_id) as reader:
                list(reader.records())
        for name in store.home.names():
            list(store.home.get(name) or ())
