"""A home whose n-th call fails, before it was done, after it, or so that it is done later.

Nobody can tell these apart from the error: the connection was cut, and the answer did not come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from agentrun.errors import AgentrunError, StoreError
from agentrun.store.keyed.home import Commit, EndedRun, Head, Home
from agentrun.store.keyed.wrapped import WrappedHome

T = TypeVar("T")
How = Literal["before", "after", "late", "last"]
"""When the call that fails is done: not at all, before the error, right before the next change, or at `deliver`."""
HOWS: tuple[How, ...] = ("before", "after", "late", "last")


class FaultyHome(WrappedHome):
    """Counts the changes (`kind` is "change") or the looks ("look"), and lets the n-th fail."""

    def __init__(
        self,
        inner: Home,
        *,
        at: int,
        how: How = "before",
        kind: Literal["change", "look"] = "change",
        on_fault: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(inner)
        self.at = at
        self._how, self._kind = how, kind
        self.on_fault = on_fault
        self._held_back: Callable[[], object] | None = None
        self.calls: list[str] = []
        """The names of the calls so far that count."""
        self.struck = ""
        """The name of the call that failed; empty before it."""

    @property
    def raw(self) -> Home:
        return self

    def deliver(self) -> None:
        """What was held back arrives; nobody hears how it ends."""
        held_back, self._held_back = self._held_back, None
        if held_back is not None:
            try:
                held_back()
            except AgentrunError:
                pass

    def _change(self, name: str, call: Callable[[], T]) -> T:
        if self._how != "last":
            self.deliver()
        return self._do("change", name, call)

    def _do(self, kind: str, name: str, call: Callable[[], T]) -> T:
        if kind == self._kind:
            self.calls.append(name)
        if kind != self._kind or len(self.calls) != self.at or self.struck:
            return call()
        self.struck = name
        if self._how == "after":
            call()
        elif self._how != "before":
            self._held_back = call
        self.on_fault()
        raise StoreError(f"{self.shown}: the connection was cut")

    # ---- changes

    def take(self, seen: Head, holder: bytes, ttl_seconds: float) -> int:
        return self._change("take", lambda: self.inner.take(seen, holder, ttl_seconds))

    def beat(self, epoch: int, ttl_seconds: float) -> None:
        self._change("beat", lambda: self.inner.beat(epoch, ttl_seconds))

    def give(self, epoch: int) -> None:
        self._change("give", lambda: self.inner.give(epoch))

    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        self._change("commit", lambda: self.inner.commit(epoch, commit, ttl_seconds))

    def stage(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> None:
        self._change("stage", lambda: self.inner.stage(journal, first_ref, lines))

    def finish(self, epoch: int, run: EndedRun) -> None:
        self._change("finish", lambda: self.inner.finish(epoch, run))

    def replace(self, epoch: int, commit: Commit | None, ended: Sequence[EndedRun]) -> None:
        self._change("replace", lambda: self.inner.replace(epoch, commit, ended))

    def forget(self, epoch: int, *, runs: Collection[str] = (), journals: Collection[str] = ()) -> None:
        self._change("forget", lambda: self.inner.forget(epoch, runs=runs, journals=journals))

    def clear(self, epoch: int) -> None:
        self._change("clear", lambda: self.inner.clear(epoch))

    def put(self, name: str, pieces: Iterable[bytes], *, epoch: int | None = None) -> None:
        sent = list(pieces)
        self._change(f"put {name}", lambda: self.inner.put(name, sent, epoch=epoch))

    def put_new(self, name: str, text: bytes) -> bool:
        return self._change(f"put_new {name}", lambda: self.inner.put_new(name, text))

    def drop(self, names: Sequence[str], *, epoch: int | None = None) -> None:
        self._change(f"drop {' '.join(names)}", lambda: self.inner.drop(names, epoch=epoch))

    # ---- looks

    def head(self, *, exact: bool = False) -> Head:
        return self._do("look", "head", lambda: self.inner.head(exact=exact))

    def scan(self, journal: str, first_ref: int, end_ref: int) -> Iterator[tuple[int, bytes]]:
        """Fails in the middle, if there is one."""
        found = list(self.inner.scan(journal, first_ref, end_ref))
        yield from found[: len(found) // 2]
        self._do("look", "scan", lambda: None)
        yield from found[len(found) // 2 :]

    def read(self, journal: str, refs: Sequence[int]) -> list[bytes | None]:
        return self._do("look", "read", lambda: self.inner.read(journal, refs))

    def size(self, journal: str) -> int:
        return self._do("look", "size", lambda: self.inner.size(journal))

    def ended(self) -> list[EndedRun]:
        return self._do("look", "ended", self.inner.ended)

    def journals(self) -> set[str]:
        return self._do("look", "journals", self.inner.journals)

    def get(self, name: str) -> Iterator[bytes] | None:
        return self._do("look", f"get {name}", lambda: self.inner.get(name))

    def names(self, prefix: str = "") -> list[str]:
        return self._do("look", f"names {prefix}", lambda: self.inner.names(prefix))
