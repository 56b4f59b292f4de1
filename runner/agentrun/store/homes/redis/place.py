"""Jobs in a Redis server: hashes, in memory and in an append-only file that is synced before each answer.

The keys of a job begin with `agentrun:{job}:`, and so are in one slot of a cluster:

    head               form, epoch, holder; seq, state and run, or none of these
    lease              the epoch, for as long as the lease lasts by the server's own clock
    journals           the names of the journals
    records:JOURNAL    the lines by their refs; `end`, the ref after the last; `bytes`
    ended              by run: its journal and its summary
    names              the names of the side files, sorted
    file:NAME          the parts by their numbers; `id`, another for each version; `count`
    new:ID             a side file that is being written; gone after an hour

`agentrun:jobs` is in another slot, and cannot change in the same step. So a job is entered there before anything is
stored of it, stays there for good, and counts if it has anything.

What replicas have not received is lost in a failover: Redis acknowledges a write when its own file has it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from agentrun.errors import AgentrunError, CheckpointError, LostError, StoreError
from agentrun.store.homes.redis import scripts
from agentrun.store.homes.redis.scripts import FORM, Script
from agentrun.store.homes.redis.server import RedisServer
from agentrun.store.keyed.home import BatchSize, Commit, EndedRun, Head, Home, Place

_JOBS = b"agentrun:jobs"
_JOBS_AT_ONCE = 500
_UNFINISHED_MS = "3600000"
_PART_BYTES = 1024 * 1024
"""The most bytes of a side file in one message, which must be sent within the time for an answer."""


class _Keys:
    """The keys of one job. A name stands last in a key, so that it may hold anything."""

    def __init__(self, job: str) -> None:
        # Quoted: a brace in the name of a job would move its keys to different slots.
        self._start = f"agentrun:{{{quote(job, safe='')}}}:".encode()
        self.head, self.lease, self.ended = self._of("head"), self._of("lease"), self._of("ended")
        self.journals, self.names = self._of("journals"), self._of("names")

    def _of(self, kind: str, name: str = "") -> bytes:
        return self._start + (f"{kind}:{name}" if name else kind).encode()

    def records(self, journal: str) -> bytes:
        return self._of("records", journal)

    def file(self, name: str) -> bytes:
        return self._of("file", name)

    def new(self, file_id: str) -> bytes:
        return self._of("new", file_id)


class RedisPlace(Place):
    """A database of a server. `url` may hold a password; `is_trusted` is what `?durable=trust` means."""

    def __init__(self, url: str, *, shown: str, is_trusted: bool = False) -> None:
        self.shown = shown
        self._server = RedisServer(url, shown=shown, is_trusted=is_trusted)

    def names(self) -> list[str]:
        found = self._of_each_job(
            lambda keys: [("HEXISTS", keys.head, "state"), ("EXISTS", keys.ended), ("EXISTS", keys.names)]
        )
        return [job for job, answers in found if any(answers)]

    def home(self, job: str) -> RedisHome:
        return RedisHome(self._server, job)

    def find(self, run_id: str) -> str | None:
        found = self._of_each_job(lambda keys: [("HGET", keys.head, "run"), ("HEXISTS", keys.ended, run_id)])
        return next((job for job, (run, has_ended) in found if run_id and (has_ended or run == run_id.encode())), None)

    def _of_each_job(self, questions: Callable[[_Keys], list[tuple[Any, ...]]]) -> Iterator[tuple[str, list[Any]]]:
        """Each job that was ever entered, sorted, with the answers to some questions about its keys."""
        jobs = sorted(job.decode() for job in self._server.ask("SMEMBERS", _JOBS))
        for at in range(0, len(jobs), _JOBS_AT_ONCE):
            some = jobs[at : at + _JOBS_AT_ONCE]
            asked = [questions(_Keys(job)) for job in some]
            answers = iter(self._server.ask_all([question for one in asked for question in one]))
            yield from ((job, [next(answers) for _ in one]) for job, one in zip(some, asked, strict=True))

    def close(self) -> None:
        self._server.close()


class RedisHome(Home):
    """One job's keys."""

    def __init__(self, server: RedisServer, job: str) -> None:
        self.shown = f"{job} in {server.shown}"
        self._server = server
        self._job = job
        self._keys = _Keys(job)
        self._is_entered = False

    def _change(self, script: Script, keys: Sequence[bytes], *values: str | bytes) -> None:
        if self._server.change(script, keys, values) != 1:
            raise LostError(f"{self.shown}: another runner has taken this job over")

    def _enter(self) -> None:
        if not self._is_entered:
            self._server.note("SADD", _JOBS, self._job)
            self._is_entered = True

    # ---- the lease

    def head(self, *, exact: bool = False) -> Head:
        form, epoch, holder, seq, state, is_leased = self._server.look(
            scripts.LOOK, [self._keys.head, self._keys.lease]
        )
        try:
            version, epoch, seq = int(form or FORM), int(epoch or 0), int(seq or 0)
        except ValueError:
            raise CheckpointError(
                f"{self.shown}: its head is damaged, or was changed by hand; restore a backup of it"
            ) from None
        if version > int(FORM):
            raise CheckpointError(f"{self.shown}: has version {version}, from a newer agentrun; use that one")
        return Head(epoch, holder, bool(is_leased) and holder is not None, seq, state)

    def take(self, seen: Head, holder: bytes, ttl_seconds: float) -> int:
        self._enter()
        epoch = seen.epoch + 1
        self._change(
            scripts.TAKE,
            [self._keys.head, self._keys.lease],
            *(str(seen.epoch), seen.holder or b"", FORM, str(epoch), holder, _milliseconds(ttl_seconds)),
        )
        return epoch

    def beat(self, epoch: int, ttl_seconds: float) -> None:
        self._change(scripts.BEAT, [self._keys.head, self._keys.lease], str(epoch), _milliseconds(ttl_seconds))

    def give(self, epoch: int) -> None:
        self._change(scripts.GIVE, [self._keys.head, self._keys.lease], str(epoch))

    # ---- the run

    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        before = "" if commit.is_first else str(commit.seq - 1)
        end_ref = commit.first_ref + len(commit.lines)
        self._change(
            scripts.COMMIT,
            [
                *(self._keys.head, self._keys.lease, self._keys.records(commit.journal)),
                *(self._keys.journals, self._keys.ended),
            ],
            *(str(epoch), before, str(commit.seq), commit.state, commit.run_id, _milliseconds(ttl_seconds)),
            *(commit.journal, str(commit.first_ref), str(end_ref)),
            *commit.lines,
        )

    def stage(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> None:
        if lines:
            self._change(
                scripts.STAGE,
                [self._keys.records(journal), self._keys.journals],
                *(journal, str(first_ref), str(first_ref + len(lines))),
                *lines,
            )

    def scan(self, journal: str, first_ref: int, end_ref: int) -> Iterator[tuple[int, bytes]]:
        end_ref = min(end_ref, int(self._server.ask("HGET", self._keys.records(journal), "end") or 0))
        batch = BatchSize()
        while first_ref < end_ref:
            refs = range(first_ref, min(first_ref + batch.records, end_ref))
            lines = self.read(journal, refs)
            batch.got(lines)
            yield from ((ref, line) for ref, line in zip(refs, lines, strict=True) if line is not None)
            first_ref = refs.stop

    def read(self, journal: str, refs: Sequence[int]) -> list[bytes | None]:
        return list(self._server.ask("HMGET", self._keys.records(journal), *refs)) if refs else []

    def size(self, journal: str) -> int:
        return int(self._server.ask("HGET", self._keys.records(journal), "bytes") or 0)

    def finish(self, epoch: int, run: EndedRun) -> None:
        self._change(scripts.FINISH, [self._keys.head, self._keys.ended], str(epoch), *_filed(run))

    def ended(self) -> list[EndedRun]:
        found = self._server.ask("HGETALL", self._keys.ended)
        return [_ended(run, filed) for run, filed in found.items()]

    def replace(self, epoch: int, commit: Commit | None, ended: Sequence[EndedRun]) -> None:
        state = [str(commit.seq), commit.state, commit.run_id] if commit is not None else ["", "", ""]
        filed = [value for run in ended for value in _filed(run)]
        self._change(scripts.REPLACE, [self._keys.head, self._keys.ended], str(epoch), *state, *filed)

    def journals(self) -> set[str]:
        return {name.decode() for name in self._server.ask("SMEMBERS", self._keys.journals)}

    def forget(self, epoch: int, *, runs: Collection[str] = (), journals: Collection[str] = ()) -> None:
        self._change(
            scripts.FORGET,
            [self._keys.head, self._keys.ended, self._keys.journals, *map(self._keys.records, journals)],
            *(str(epoch), *journals, *runs),
        )

    def clear(self, epoch: int) -> None:
        # What is added after this look is kept, as if it had been added after all.
        journals, names = sorted(self.journals()), self.names()
        self._change(
            scripts.CLEAR,
            [
                *(self._keys.head, self._keys.journals, self._keys.names, self._keys.ended),
                *map(self._keys.records, journals),
                *map(self._keys.file, names),
            ],
            *(str(epoch), str(len(journals)), *journals, *names),
        )

    # ---- beside the run

    def put(self, name: str, pieces: Iterable[bytes], *, epoch: int | None = None) -> None:
        self._enter()
        file_id = secrets.token_hex(8)
        new = self._keys.new(file_id)
        try:
            self._change(scripts.PIECE, [new], "id", file_id, _UNFINISHED_MS)
            count = 0
            for count, piece in enumerate(_parts(pieces), 1):
                self._change(scripts.PIECE, [new], str(count - 1), piece, _UNFINISHED_MS)
            done = self._server.change(
                scripts.PUT,
                [self._keys.head, new, self._keys.file(name), self._keys.names],
                [str(epoch) if epoch is not None else "", file_id, str(count), name],
            )
        except BaseException:
            self._discard(new)
            raise
        if done == 0:
            self._discard(new)
            raise LostError(f"{self.shown}: another runner has taken this job over")
        if done < 0:
            raise StoreError(f"{self.shown}: {name} was not completed within an hour; try it again")

    def _discard(self, new: bytes) -> None:
        """Remove what nobody will complete; it goes away by itself, too, but may be large."""
        with suppress(AgentrunError):
            self._server.note("UNLINK", new)

    def put_new(self, name: str, text: bytes) -> bool:
        self._enter()
        keys = [self._keys.file(name), self._keys.names]
        return self._server.change(scripts.PUT_NEW, keys, [secrets.token_hex(8), text, name]) == 1

    def get(self, name: str) -> Iterator[bytes] | None:
        file_id, count, piece = self._server.ask("HMGET", self._keys.file(name), "id", "count", "0")
        return self._pieces(name, file_id, int(count), piece) if file_id is not None else None

    def _pieces(self, name: str, file_id: bytes, count: int, piece: bytes | None) -> Iterator[bytes]:
        for number in range(count):
            if number:
                found_id, piece = self._server.ask("HMGET", self._keys.file(name), "id", number)
                if found_id != file_id:
                    raise CheckpointError(f"{self.shown}: {name} was replaced while it was read; run the command again")
            if piece is None:
                raise CheckpointError(f"{self.shown}: {name} is not complete; restore the store from a backup")
            yield piece

    def names(self, prefix: str = "") -> list[str]:
        # No byte of UTF-8 is as high as 0xff.
        first, last = b"[" + prefix.encode(), b"[" + prefix.encode() + b"\xff"
        return [name.decode() for name in self._server.ask("ZRANGEBYLEX", self._keys.names, first, last)]

    def drop(self, names: Sequence[str], *, epoch: int | None = None) -> None:
        if names:
            keys = [self._keys.head, self._keys.names, *map(self._keys.file, names)]
            self._change(scripts.DROP, keys, str(epoch) if epoch is not None else "", *names)


def _parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from (piece[at : at + _PART_BYTES] for at in range(0, len(piece), _PART_BYTES))


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


def _filed(run: EndedRun) -> tuple[str, bytes]:
    """A run that ended, as a field and its value: its journal, quoted, and its summary."""
    return run.run_id, quote(run.journal, safe="").encode() + b" " + run.summary


def _ended(run: bytes, filed: bytes) -> EndedRun:
    journal, _, summary = filed.partition(b" ")
    return EndedRun(run.decode(), unquote(journal.decode()), summary)
