"""The records of one journal, checked and decoded as they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from agentrun.checkpoint.record import Record, RecordError, check_record, decode_record
from agentrun.errors import CheckpointError, StoreError
from agentrun.store.keyed.home import BatchSize, Home
from agentrun.store.keyed.patience import Patience


class KeyedRecords:
    """The first `length` records of a journal. What is missing or damaged raises CheckpointError."""

    def __init__(self, home: Home, journal: str, length: int, *, patience_seconds: float = 0.0) -> None:
        self._home = home
        self._journal = journal
        self._length = length
        self._patience_seconds = patience_seconds

    def scan(self, since: int = 0) -> Iterator[tuple[int, Record]]:
        patience = Patience(self._patience_seconds)
        while since < self._length:
            try:
                for ref, line in self._home.scan(self._journal, since, self._length):
                    if ref != since:
                        break
                    yield ref, self._decode(ref, line)
                    since, patience = since + 1, Patience(self._patience_seconds)
            except StoreError as error:
                # From the record that did not come.
                patience.after(error)
            else:
                if since < self._length:
                    raise self._gone(since)

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        for ref, line in self.lines(refs):
            yield self._decode(ref, line)

    def lines(self, refs: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """The text of the records at these refs, each checked."""
        for ref, line in self._found(self._home, refs):
            if not check_record(line):
                raise self._damaged(ref, "the checksum does not match")
            yield ref, line

    def size(self, refs: Iterable[int]) -> int:
        """Bytes of the records at these refs as they are stored, with a newline each."""
        return sum(len(line) + 1 for _, line in self._found(self._home.raw, refs))

    def _found(self, home: Home, refs: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        rest, batch = iter(refs), BatchSize()
        while some := list(islice(rest, batch.records)):
            found = Patience(self._patience_seconds).insist(partial(home.read, self._journal, some))
            batch.got(found)
            for ref, line in zip(some, found, strict=True):
                if line is None or ref >= self._length:
                    raise self._gone(ref)
                yield ref, line

    def is_there(self) -> bool:
        """False if the records of the run are no longer kept."""
        if not self._length:
            return True
        last = partial(self._home.read, self._journal, [self._length - 1])
        return Patience(self._patience_seconds).insist(last) != [None]

    def _decode(self, ref: int, line: bytes) -> Record:
        try:
            return decode_record(line)
        except RecordError as error:
            raise self._damaged(ref, str(error)) from None

    def _damaged(self, ref: int, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._home.shown}: record {ref} is damaged ({what}); restore the store from a backup, or start over "
            f"with --fresh"
        )

    def _gone(self, ref: int) -> CheckpointError:
        return CheckpointError(
            f"{self._home.shown}: record {ref} is gone; if a run has ended meanwhile look again, else restore the "
            f"store from a backup, or start over with --fresh"
        )
