"""A home that passes everything on to another one, for those that change some of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from agentrun.store.keyed.home import Commit, EndedRun, Head, Home


class WrappedHome(Home):
    """`inner` is what it is wrapped around."""

    def __init__(self, inner: Home) -> None:
        self.inner = inner
        self.shown = inner.shown
        self.look_seconds = inner.look_seconds

    @property
    def raw(self) -> Home:
        return self.inner.raw

    def head(self, *, exact: bool = False) -> Head:
        return self.inner.head(exact=exact)

    def take(self, seen: Head, holder: bytes, ttl_seconds: float) -> int:
        return self.inner.take(seen.stored if isinstance(seen, WrappedHead) else seen, holder, ttl_seconds)

    def beat(self, epoch: int, ttl_seconds: float) -> None:
        self.inner.beat(epoch, ttl_seconds)

    def give(self, epoch: int) -> None:
        self.inner.give(epoch)

    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        self.inner.commit(epoch, commit, ttl_seconds)

    def stage(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> None:
        self.inner.stage(journal, first_ref, lines)

    def scan(self, journal: str, first_ref: int, end_ref: int) -> Iterator[tuple[int, bytes]]:
        return self.inner.scan(journal, first_ref, end_ref)

    def read(self, journal: str, refs: Sequence[int]) -> list[bytes | None]:
        return self.inner.read(journal, refs)

    def size(self, journal: str) -> int:
        return self.inner.size(journal)

    def finish(self, epoch: int, run: EndedRun) -> None:
        self.inner.finish(epoch, run)

    def ended(self) -> list[EndedRun]:
        return self.inner.ended()

    def replace(self, epoch: int, commit: Commit | None, ended: Sequence[EndedRun]) -> None:
        self.inner.replace(epoch, commit, ended)

    def journals(self) -> set[str]:
        return self.inner.journals()

    def forget(self, epoch: int, *, runs: Collection[str] = (), journals: Collection[str] = ()) -> None:
        self.inner.forget(epoch, runs=runs, journals=journals)

    def clear(self, epoch: int) -> None:
        self.inner.clear(epoch)

    def put(self, name: str, pieces: Iterable[bytes], *, epoch: int | None = None) -> None:
        self.inner.put(name, pieces, epoch=epoch)

    def put_new(self, name: str, text: bytes) -> bool:
        return self.inner.put_new(name, text)

    def get(self, name: str) -> Iterator[bytes] | None:
        return self.inner.get(name)

    def names(self, prefix: str = "") -> list[str]:
        return self.inner.names(prefix)

    def drop(self, names: Sequence[str], *, epoch: int | None = None) -> None:
        self.inner.drop(names, epoch=epoch)


class WrappedHead(Head):
    """A head whose state is read when it is asked for: a lease can be looked at, taken and given back without."""

    __slots__ = ("_found", "_read", "stored")
    stored: Head
    _read: Callable[[bytes], bytes]
    _found: bytes | None

    def __init__(self, stored: Head, read: Callable[[bytes], bytes]) -> None:
        # Not by the constructor of Head, which would set the state.
        for name in ("epoch", "holder", "fresh", "seq"):
            object.__setattr__(self, name, getattr(stored, name))
        object.__setattr__(self, "stored", stored)
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_found", None)

    @property
    def state(self) -> bytes | None:
        if self.stored.state is not None and self._found is None:
            object.__setattr__(self, "_found", self._read(self.stored.state))
        return self._found
