"""One job in a bucket. The head is the only object that is ever replaced; what it names never changes.

<job>/head                       the lease, the state, the newest records, and what else there is
<job>/seg/<journal>/…            records that left the tail of the head
<job>/ended/<random>             the runs that ended
<job>/side/<name>                side files that anyone may put: messages
<job>/piece/<random>/<number>    side files that only the holder of the lease may put, and large ones
<job>/clock/<random>             made to learn the time or how conditions are kept, and deleted at once
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import structs

from agentrun.errors import CheckpointError
from agentrun.store.homes.objects.bucket import Bucket, Listed
from agentrun.store.homes.objects.ended import EndedRuns
from agentrun.store.homes.objects.garbage import garbage
from agentrun.store.homes.objects.head import File, HeadText, Parts, Segment, decode_name, no_head
from agentrun.store.homes.objects.segments import TAIL_BYTES, GoneError, Segments
from agentrun.store.homes.objects.sides import Sides
from agentrun.store.homes.objects.swap import HeadObject, Version
from agentrun.store.keyed.home import Commit, EndedRun, Head, Home


class ObjectsHome(Home):
    """One job's objects, all in the folder `at`."""

    # A look lists objects, which is among the most expensive requests.
    look_seconds = 5.0

    def __init__(self, bucket: Bucket, at: str, *, shown: str, margin_seconds: float) -> None:
        self.shown = shown
        self._margin_seconds = margin_seconds
        self._bucket = bucket
        self._at = at
        self._head = HeadObject(bucket, f"{at}/head", shown=shown)
        self._segments = Segments(bucket, f"{at}/seg")
        self._ended = EndedRuns(bucket, f"{at}/ended")
        self._sides = Sides(bucket, at=f"{at}/side", pieces_at=f"{at}/piece")
        self._staged: dict[str, dict[int, list[Segment]]] = {}
        """Segments of journals that nothing names yet, by the ref of the first record."""
        self._held: int | None = None
        """The epoch with which this object took the job, until it gives it back."""

    # ---- the lease

    def head(self, *, exact: bool = False) -> Head:
        found = self._head.fetch()
        head = found.head
        return Head(head.epoch, head.holder, self._is_fresh(found, exact=exact), head.seq, head.state)

    def _is_fresh(self, version: Version, *, exact: bool) -> bool:
        if version.head.holder is None or version.modified is None:
            return False
        now = self._bucket.now(f"{self._at}/clock") if exact else datetime.now(UTC)
        return (now - version.modified).total_seconds() < version.head.ttl + self._margin_seconds

    def take(self, seen: Head, holder: bytes, ttl_seconds: float) -> int:
        self._bucket.check_conditions(f"{self._at}/clock")

        def change(found: Version) -> HeadText:
            head = found.head
            if head.epoch != seen.epoch or (head.holder != seen.holder and self._is_fresh(found, exact=True)):
                raise self._head.lost()
            return structs.replace(head, epoch=seen.epoch + 1, holder=holder, ttl=ttl_seconds)

        self._held = self._head.take(change).epoch
        return self._held

    def beat(self, epoch: int, ttl_seconds: float) -> None:
        self._head.swap(epoch, lambda head: structs.replace(head, ttl=ttl_seconds))

    def give(self, epoch: int) -> None:
        self._head.swap(epoch, lambda head: structs.replace(head, holder=None))
        self._held = None

    # ---- the run

    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        def is_before(head: HeadText) -> bool:
            if commit.is_first:
                return head.state is None and commit.run_id not in head.ended_runs
            return head.state is not None and head.seq == commit.seq - 1

        # Without the lock: the heartbeat must not wait for large records.
        base = self._head.ours(epoch, is_before).head
        grown = self._grow(base, commit)

        def change(head: HeadText) -> HeadText:
            made = grown if head.has_records_of(base) else self._grow(head, commit)
            return structs.replace(
                head,
                seq=commit.seq,
                state=commit.state,
                run=commit.run_id,
                ttl=ttl_seconds,
                journal=made.journal,
                tail_ref=made.tail_ref,
                tail=made.tail,
                journals=made.journals,
            )

        self._head.swap(epoch, change, is_before)
        self._staged.pop(commit.journal, None)

    def _grow(self, head: HeadText, commit: Commit) -> HeadText:
        """The head with the records of the commit, in its tail or in segments."""
        if commit.journal != head.journal:
            head = self._settle(head)
            journals = self._with_staged(head.journals, [commit.journal])
            end = journals.get(commit.journal, Parts()).end
            head = structs.replace(head, journal=commit.journal, journals=journals, tail_ref=end)
        if not commit.lines:
            return head
        if commit.first_ref != head.end_of(commit.journal):
            raise CheckpointError(
                f"{self.shown}: record {commit.first_ref} does not follow the stored ones, of which there are "
                f"{head.end_of(commit.journal)}; another program wrote here"
            )
        head = structs.replace(head, tail=(*head.tail, *commit.lines))
        return self._settle(head) if sum(map(len, head.tail)) > TAIL_BYTES else head

    def _settle(self, head: HeadText) -> HeadText:
        """The head without a tail: its records are in segments."""
        if not head.tail:
            return head
        parts = self._segments.extend(
            head.journal,
            head.journals.get(head.journal, Parts()),
            self._segments.put(head.journal, head.tail_ref, head.tail),
        )
        return structs.replace(head, journals={**head.journals, head.journal: parts}, tail=(), tail_ref=parts.end)

    def _with_staged(self, journals: dict[str, Parts], names: Iterable[str]) -> dict[str, Parts]:
        """The journals, and those with these names that were staged."""
        new = self._staged.keys() & set(names) - journals.keys()
        staged = {name: self._staged_segments(name) for name in new}
        return {**journals, **{name: self._segments.extend(name, Parts(), found) for name, found in staged.items()}}

    def _staged_segments(self, journal: str) -> tuple[Segment, ...]:
        return tuple(segment for _, some in sorted(self._staged[journal].items()) for segment in some)

    def stage(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> None:
        made = self._segments.put(journal, first_ref, lines)
        self._staged.setdefault(journal, {})[first_ref] = made

    def _where(self, journal: str, end_ref: int) -> tuple[Parts, dict[int, bytes]]:
        """The segments of a journal, and its records that are in none; up to `end_ref` at least, if it has so many."""
        known = self._head.known
        if known is None or (known.head.end_of(journal) < end_ref and journal not in self._staged):
            known = self._head.fetch()
        head = known.head
        if head.has_journal(journal):
            tail = dict(enumerate(head.tail, head.tail_ref)) if head.journal == journal else {}
            return head.journals.get(journal, Parts()), tail
        if journal in self._staged:
            return Parts(segments=self._staged_segments(journal)), {}
        return self._segments.listed(journal), {}

    def scan(self, journal: str, first_ref: int, end_ref: int) -> Iterator[tuple[int, bytes]]:
        parts, tail = self._where(journal, end_ref)
        yield from self._segments.scan(journal, parts, first_ref, end_ref)
        yield from ((ref, line) for ref, line in tail.items() if first_ref <= ref < end_ref)

    def read(self, journal: str, refs: Sequence[int]) -> list[bytes | None]:
        parts, tail = self._where(journal, max(refs, default=-1) + 1)
        found = self._segments.find(journal, parts, (ref for ref in refs if ref not in tail))
        return [tail[ref] if ref in tail else found.get(ref) for ref in refs]

    def size(self, journal: str) -> int:
        parts, tail = self._where(journal, 1 << 62)
        return parts.size + sum(len(line) + 1 for line in tail.values())

    # ---- runs that ended

    def finish(self, epoch: int, run: EndedRun) -> None:
        self._head.fetch()

        def change(head: HeadText) -> HeadText:
            if head.run == run.run_id:
                head = self._without_run(head)
            if run.run_id in head.ended_runs:
                return head
            return self._file(head, [*self._ended.get(head.ended), run])

        self._head.swap(epoch, change)
        self._staged.pop(run.journal, None)

    def _without_run(self, head: HeadText) -> HeadText:
        """The head without an unfinished run; its records stay."""
        return structs.replace(self._settle(head), seq=0, state=None, run="", journal="", tail_ref=0)

    def _file(self, head: HeadText, runs: Sequence[EndedRun]) -> HeadText:
        """The head with these runs that ended instead of those it has."""
        return structs.replace(
            head,
            journals=self._with_staged(head.journals, [run.journal for run in runs]),
            ended=self._ended.put(runs),
            ended_runs=tuple(run.run_id for run in runs),
        )

    def ended(self) -> list[EndedRun]:
        head = self._head.fetch().head
        try:
            return self._ended.get(head.ended)
        except GoneError:
            # Another list may have taken its place meanwhile.
            newer = self._head.fetch().head
            if newer.ended == head.ended:
                raise
            return self._ended.get(newer.ended)

    def replace(self, epoch: int, commit: Commit | None, ended: Sequence[EndedRun]) -> None:
        def change(head: HeadText) -> HeadText:
            head = self._file(self._without_run(head), ended)
            if commit is None:
                return head
            return structs.replace(self._grow(head, commit), seq=commit.seq, state=commit.state, run=commit.run_id)

        self._head.swap(epoch, change)
        for journal in [*(run.journal for run in ended), *([commit.journal] if commit is not None else [])]:
            self._staged.pop(journal, None)

    # ---- removing

    def journals(self) -> set[str]:
        folders = map(decode_name, self._bucket.folders(self._segments.at))
        head = self._head.fetch().head
        return {*folders, *head.journals, *self._staged, *([head.journal] if head.tail else [])}

    def forget(self, epoch: int, *, runs: Collection[str] = (), journals: Collection[str] = ()) -> None:
        # In this order: what others wrote who have the job by now cannot be in the list if the head was still ours.
        self._head.fetch()
        listed = self._bucket.objects(self._at)

        def change(head: HeadText) -> HeadText:
            if head.journal in journals:
                head = structs.replace(head, tail=(), tail_ref=head.end_of(head.journal))
            if not set(runs).isdisjoint(head.ended_runs):
                head = self._file(head, [run for run in self._ended.get(head.ended) if run.run_id not in runs])
            kept = {name: parts for name, parts in head.journals.items() if name not in journals}
            return structs.replace(head, journals=kept)

        head = self._head.swap(epoch, change)
        for journal in journals:
            self._staged.pop(journal, None)
        folders = tuple(f"{self._segments.folder(journal)}/" for journal in journals)
        forgotten = [one.path for one in listed if one.path.startswith(folders)]
        self._bucket.delete(sorted({*forgotten, *self._garbage(head, listed)}))

    def _garbage(self, head: HeadText, listed: Sequence[Listed]) -> list[str]:
        try:
            named = self._named(head)
        except CheckpointError:
            # What is damaged may have named anything.
            return []
        tags = {file.tag for file in head.files.values()}
        return garbage(listed, at=self._at, named=named, tags=tags, tags_of_sides=self._sides.tags)

    def _named(self, head: HeadText) -> set[str]:
        """The paths of what the head names, and of what was staged."""
        named, segments = {self._ended.path(head.ended)}, self._segments
        for journal, parts in head.journals.items():
            named.add(segments.path(journal, parts.index))
            named |= {segments.path(journal, one.name) for one in segments.all(journal, parts)}
        for journal in self._staged:
            named |= {segments.path(journal, one.name) for one in self._staged_segments(journal)}
        return named

    def clear(self, epoch: int) -> None:
        self._head.fetch()
        listed = self._bucket.objects(self._at)
        self._head.swap(
            epoch,
            lambda head: structs.replace(no_head(), epoch=head.epoch, holder=head.holder, ttl=head.ttl),
        )
        self._staged.clear()
        self._bucket.delete([one.path for one in listed if one.path != f"{self._at}/head"])

    # ---- beside the run

    def put(self, name: str, pieces: Iterable[bytes], *, epoch: int | None = None) -> None:
        if epoch is None:
            self._sides.put(name, pieces)
            return
        self._head.ours(epoch)
        file = self._sides.upload(pieces)
        before: list[File] = []

        def change(head: HeadText) -> HeadText:
            before[:] = [head.files[name]] if name in head.files else []
            return structs.replace(head, files={**head.files, name: file})

        self._head.swap(epoch, change)
        self._sides.delete([name], before)

    def put_new(self, name: str, text: bytes) -> bool:
        return name not in self._files() and self._sides.put_new(name, text)

    def get(self, name: str) -> Iterator[bytes] | None:
        side = self._sides.get(name)
        if side is not None and side.file is None:
            return iter([side.text])
        file = side.file if side is not None else self._files().get(name)
        return self._sides.read(name, file) if file is not None else None

    def names(self, prefix: str = "") -> list[str]:
        return sorted({*self._sides.names(prefix), *(name for name in self._files() if name.startswith(prefix))})

    def drop(self, names: Sequence[str], *, epoch: int | None = None) -> None:
        dropped: list[File] = []

        def change(head: HeadText) -> HeadText:
            dropped[:] = [file for name, file in head.files.items() if name in names]
            return structs.replace(head, files={name: file for name, file in head.files.items() if name not in names})

        if epoch is not None or not self._files().keys().isdisjoint(names):
            self._head.swap(epoch, change)
        self._sides.delete(names, dropped)

    def _files(self) -> Mapping[str, File]:
        """The side files that the head names. Whoever has the lease need not ask: nobody else adds any."""
        known = self._head.known
        if known is not None and known.head.epoch == self._held:
            return known.head.files
        return self._head.fetch().head.files

    # ---- for the place

    def is_there(self) -> bool:
        """Whether there is anything but a lease."""
        head = self._head.fetch().head
        return head.state is not None or bool(head.ended_runs or head.files or self._sides.names())

    def has_run(self, run_id: str) -> bool:
        """Whether there is a run with this id, unfinished or ended."""
        head = self._head.fetch().head
        return run_id in (head.run, *head.ended_runs)
