"""Jobs in a database: the tables, and the statements that SQLite and Postgres share. Time is the database's own."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from typing import Any, NamedTuple

from agentrun.errors import BrokenStoreError, CheckpointError, LostError
from agentrun.store.keyed.home import BatchSize, Commit, EndedRun, Head, Home, Place, in_pieces

MIGRATIONS: list[list[str]] = [
    [
        """create table {p}job (job {text} primary key, epoch bigint not null default 0, holder {bytes},
           until {float} not null default 0, seq bigint not null default 0, state {bytes}, run {text})""",
        """create table {p}record (job {text} not null, journal {text} not null, ref bigint not null,
           line {bytes} not null, primary key (job, journal, ref))""",
        """create table {p}ended (job {text} not null, run {text} not null, journal {text} not null,
           summary {bytes} not null, primary key (job, run))""",
        """create table {p}side (job {text} not null, name {text} not null, piece int not null,
           version {bytes} not null, value {bytes} not null, primary key (job, name, piece, version))""",
    ]
]
"""What each version of the schema adds to the one before. `{p}` stands before the name of each table; `{text}` is
compared by its bytes in UTF-8. The piece -1 of a side file has the version that counts as its value; without it there
is no such file, whatever pieces of it there are."""
PART_BYTES = 1024 * 1024
"""The most bytes of a side file that the holder of a lease sends at once; in between the lease can be renewed."""


class Step(NamedTuple):
    """One statement of a transaction."""

    text: str
    values: Sequence[Any]
    must: int | None = None
    """How many rows it must touch; otherwise the job is another's, and nothing of the transaction happens."""


class SqlPlace(Place):
    """A database. Its dialect says how statements are run, what time it is, and how a list is passed."""

    now: str
    """The time in seconds, as an expression."""

    @abstractmethod
    def query(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows of one statement, which only reads."""

    @abstractmethod
    def write(self, steps: Iterable[Step], *, lost: str) -> list[int]:
        """The statements in one transaction, durably; how many rows each one touched.

        LostError with the message `lost` if one touches another number of rows than it must.
        """

    @abstractmethod
    def insert(
        self, job: str, journal: str, first_ref: int, lines: Sequence[bytes], *, again: bool = False
    ) -> list[Step]:
        """Add records; `again`: some may be there already."""

    @abstractmethod
    def select(self, job: str, journal: str, refs: Sequence[int]) -> list[tuple[Any, ...]]:
        """Ref and line of the records at these refs, in any order."""

    def commit(self, head: Step, job: str, commit: Commit, *, lost: str) -> None:
        """Replace the head by this statement, and add the records, in one transaction, durably. LostError as above."""
        self.write([head, *self.insert(job, commit.journal, commit.first_ref, commit.lines)], lost=lost)

    def names(self) -> list[str]:
        rows = self.query(
            "select job from {p}job where state is not null union select job from {p}ended union "
            "select job from {p}side where piece = -1 order by 1",
            [],
        )
        return sorted(name for (name,) in rows)

    def home(self, job: str) -> SqlHome:
        return SqlHome(self, job)

    def find(self, run_id: str) -> str | None:
        rows = self.query(
            "select job from {p}job where run = ? union select job from {p}ended where run = ? order by 1",
            [run_id, run_id],
        )
        return rows[0][0] if rows and run_id else None


class SqlHome(Home):
    """One job's rows."""

    def __init__(self, place: SqlPlace, job: str) -> None:
        self.shown = f"{job} in {place.shown}"
        self._lost = f"{self.shown}: another runner has taken this job over"
        self._place = place
        self._job = job
        self._broken: BrokenStoreError | None = None

    def _query(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._breaking():
            return self._place.query(text, values)

    def _write(self, *steps: Step) -> list[int]:
        return self._write_all(steps)

    def _write_all(self, steps: Iterable[Step]) -> list[int]:
        with self._breaking():
            return self._place.write(steps, lost=self._lost)

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """After a failure for good, also of a heartbeat, nothing succeeds: the next launch has another home."""
        if self._broken is not None:
            raise self._broken
        try:
            yield
        except BrokenStoreError as error:
            self._broken = error
            raise

    def _ours(self, epoch: int) -> Step:
        """Only if the job is ours; nobody else can take it before the transaction has ended."""
        return Step("update {p}job set epoch = epoch where job = ? and epoch = ?", [self._job, epoch], 1)

    # ---- the lease

    def head(self, *, exact: bool = False) -> Head:
        rows = self._query(
            f"select epoch, holder, until > {self._place.now}, seq, state from {{p}}job where job = ?", [self._job]
        )
        if not rows:
            return Head()
        epoch, holder, fresh, seq, state = rows[0]
        return Head(epoch, _bytes(holder), bool(fresh) and holder is not None, seq, _bytes(state))

    def take(self, seen: Head, holder: bytes, ttl_seconds: float) -> int:
        now = self._place.now
        self._write(
            Step("insert into {p}job (job) values (?) on conflict do nothing", [self._job]),
            Step(
                f"update {{p}}job set epoch = epoch + 1, holder = ?, until = {now} + ? where job = ? and epoch = ? "
                f"and (holder is null or until <= {now} or holder = ?)",
                [holder, ttl_seconds, self._job, seen.epoch, seen.holder or b""],
                1,
            ),
        )
        return seen.epoch + 1

    def beat(self, epoch: int, ttl_seconds: float) -> None:
        self._write(
            Step(
                f"update {{p}}job set until = {self._place.now} + ? where job = ? and epoch = ?",
                [ttl_seconds, self._job, epoch],
                1,
            )
        )

    def give(self, epoch: int) -> None:
        self._write(
            Step("update {p}job set holder = null, until = 0 where job = ? and epoch = ?", [self._job, epoch], 1)
        )

    # ---- the run

    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        before: list[Any]
        if commit.is_first:
            follows = "state is null and not exists (select 1 from {p}ended where job = ? and run = ?)"
            before = [self._job, commit.run_id]
        else:
            follows, before = "state is not null and seq = ?", [commit.seq - 1]
        head = Step(
            f"update {{p}}job set seq = ?, state = ?, run = ?, until = {self._place.now} + ? "
            "where job = ? and epoch = ? and " + follows,
            [commit.seq, commit.state, commit.run_id, ttl_seconds, self._job, epoch, *before],
            1,
        )
        with self._breaking():
            self._place.commit(head, self._job, commit, lost=self._lost)

    def stage(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> None:
        self._write(*self._place.insert(self._job, journal, first_ref, lines, again=True))

    def scan(self, journal: str, first_ref: int, end_ref: int) -> Iterator[tuple[int, bytes]]:
        batch = BatchSize()
        while rows := self._query(
            "select ref, line from {p}record where job = ? and journal = ? and ref >= ? and ref < ? "
            "order by ref limit ?",
            [self._job, journal, first_ref, end_ref, batch.records],
        ):
            lines = [bytes(line) for _, line in rows]
            batch.got(lines)
            yield from zip((ref for ref, _ in rows), lines, strict=True)
            first_ref = rows[-1][0] + 1

    def read(self, journal: str, refs: Sequence[int]) -> list[bytes | None]:
        with self._breaking():
            found = {ref: bytes(line) for ref, line in self._place.select(self._job, journal, refs)} if refs else {}
        return [found.get(ref) for ref in refs]

    def size(self, journal: str) -> int:
        rows = self._query(
            "select coalesce(sum(length(line) + 1), 0) from {p}record where job = ? and journal = ?",
            [self._job, journal],
        )
        return int(rows[0][0]) if rows else 0

    def finish(self, epoch: int, run: EndedRun) -> None:
        self._write(
            self._ours(epoch),
            Step(
                "update {p}job set state = null, seq = 0, run = null where job = ? and run = ?", [self._job, run.run_id]
            ),
            self._file(run),
        )

    def _file(self, run: EndedRun) -> Step:
        return Step(
            "insert into {p}ended (job, run, journal, summary) values (?, ?, ?, ?) on conflict do nothing",
            [self._job, run.run_id, run.journal, run.summary],
        )

    def ended(self) -> list[EndedRun]:
        rows = self._query("select run, journal, summary from {p}ended where job = ?", [self._job])
        return [EndedRun(run, journal, bytes(summary)) for run, journal, summary in rows]

    def replace(self, epoch: int, commit: Commit | None, ended: Sequence[EndedRun]) -> None:
        state = [commit.seq, commit.state, commit.run_id] if commit is not None else [0, None, None]
        self._write(
            Step(
                "update {p}job set seq = ?, state = ?, run = ? where job = ? and epoch = ?",
                [*state, self._job, epoch],
                1,
            ),
            Step("delete from {p}ended where job = ?", [self._job]),
            *map(self._file, ended),
        )

    def journals(self) -> set[str]:
        # From one name to the next by the index: a journal may have a million records.
        rows = self._query(
            "with recursive found(journal) as (select min(journal) from {p}record where job = ? union all "
            "select (select min(journal) from {p}record where job = ? and journal > found.journal) from found "
            "where found.journal is not null) select journal from found where journal is not null",
            [self._job, self._job],
        )
        return {journal for (journal,) in rows}

    def forget(self, epoch: int, *, runs: Collection[str] = (), journals: Collection[str] = ()) -> None:
        self._write(
            self._ours(epoch),
            *(Step("delete from {p}ended where job = ? and run = ?", [self._job, run]) for run in runs),
            *(Step("delete from {p}record where job = ? and journal = ?", [self._job, name]) for name in journals),
        )

    def clear(self, epoch: int) -> None:
        self._write(
            Step(
                "update {p}job set state = null, seq = 0, run = null where job = ? and epoch = ?", [self._job, epoch], 1
            ),
            *(Step(f"delete from {{p}}{table} where job = ?", [self._job]) for table in ("record", "ended", "side")),
        )

    # ---- beside the run

    def put(self, name: str, pieces: Iterable[bytes], *, epoch: int | None = None) -> None:
        version = secrets.token_bytes(8)
        if epoch is None:
            self._write_all(chain(self._switch(name, version), self._add(name, version, pieces)))
            return
        # A transaction each, under a version that does not count yet, however long the next piece takes to come.
        ours, steps = self._ours(epoch), [self._sweep()]
        for number, step in enumerate(self._add(name, version, in_pieces(pieces, PART_BYTES))):
            if number:
                self._write(ours, *steps)
                steps = []
            steps.append(step)
        self._write(ours, *steps, *self._switch(name, version))

    def _add(self, name: str, version: bytes, pieces: Iterable[bytes]) -> Iterator[Step]:
        for number, piece in enumerate(pieces):
            yield Step(
                "insert into {p}side (job, name, piece, version, value) values (?, ?, ?, ?, ?)",
                [self._job, name, number, version, piece],
            )

    def _switch(self, name: str, version: bytes) -> list[Step]:
        """Let this version count, and no other. Of two who put the same name, one waits here for the other."""
        return [
            self._name(name, version, "(job, name, piece, version) do update set value = excluded.value"),
            Step(
                "delete from {p}side where job = ? and name = ? and piece >= 0 and version <> ?",
                [self._job, name, version],
            ),
        ]

    def _name(self, name: str, version: bytes, on_conflict: str) -> Step:
        return Step(
            "insert into {p}side (job, name, piece, version, value) values (?, ?, -1, ?, ?) on conflict " + on_conflict,
            [self._job, name, b"", version],
        )

    def _sweep(self) -> Step:
        """Remove the pieces of versions that never came to count. Only the holder of the lease has any under way."""
        return Step(
            "delete from {p}side where job = ? and piece >= 0 and (name, version) not in "
            "(select name, value from {p}side where job = ? and piece = -1)",
            [self._job, self._job],
        )

    def put_new(self, name: str, text: bytes) -> bool:
        version = secrets.token_bytes(8)
        made, _ = self._write(
            self._name(name, version, "do nothing"),
            Step(
                "insert into {p}side (job, name, piece, version, value) select job, name, 0, value, ? from {p}side "
                "where job = ? and name = ? and piece = -1 and value = ?",
                [text, self._job, name, version],
            ),
        )
        return made == 1

    def get(self, name: str) -> Iterator[bytes] | None:
        found = self._get_piece(name, 0)
        return self._pieces(name, found) if -1 in found else None

    def _get_piece(self, name: str, number: int) -> dict[int, bytes]:
        """The piece with this number of the version that counts, and that version as piece -1."""
        rows = self._query(
            "select piece, version, value from {p}side where job = ? and name = ? and piece in (-1, ?)",
            [self._job, name, number],
        )
        counts = {b"", *(bytes(value) for piece, _, value in rows if piece == -1)}
        return {piece: bytes(value) for piece, version, value in rows if bytes(version) in counts}

    def _pieces(self, name: str, found: dict[int, bytes]) -> Iterator[bytes]:
        version = found[-1]
        for number in count():
            if found.get(-1) != version:
                raise CheckpointError(f"{self.shown}: {name} was changed while it was read; run the command again")
            if number not in found:
                return
            yield found[number]
            found = self._get_piece(name, number + 1)

    def names(self, prefix: str = "") -> list[str]:
        rows = self._query(
            "select name from {p}side where job = ? and piece = -1 and name >= ? and name < ?",
            [self._job, prefix, prefix + "\U0010ffff"],
        )
        return sorted(name for (name,) in rows)

    def drop(self, names: Sequence[str], *, epoch: int | None = None) -> None:
        if names:
            self._write(
                *([self._ours(epoch)] if epoch is not None else []),
                *(Step("delete from {p}side where job = ? and name = ?", [self._job, name]) for name in names),
            )


def refuse_unless(touched: int, step: Step, lost: str) -> None:
    """LostError if a step touched another number of rows than it must."""
    if step.must is not None and touched != step.must:
        raise LostError(lost)


def _bytes(value: Any) -> bytes | None:
    return bytes(value) if value is not None else None
