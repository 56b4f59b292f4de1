"""A bucket in memory that counts what it is asked, and whose writes can go wrong as they do over a network."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from obstore.store import MemoryStore

from agentrun.errors import StoreError
from agentrun.store.homes.objects.bucket import Bucket, Found, Listed
from agentrun.store.homes.objects.home import ObjectsHome

if TYPE_CHECKING:
    from obstore import UpdateVersion

Put = Callable[[], "UpdateVersion"]
AT = "jobs/triage"
HEAD = f"{AT}/head"


class MemoryBucket(Bucket):
    """One client of the objects in `store`; another client of the same objects is another bucket."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        super().__init__(self.store, shown="memory")
        self.puts: list[str] = []
        self.gets: list[str] = []
        self.texts: list[bytes] = []
        """What was put, in the same order as `puts`."""
        self.on_put: Callable[[str, Put], UpdateVersion | None] | None = None
        """Called with the path of the next object to write, and how to write it; it may return None for "as usual"."""
        self.on_list: Callable[[], None] = lambda: None
        self.clock: datetime | None = None
        """The time that the service tells, if it is not the time."""
        self.old: set[str] = set()
        """Objects that are hours old."""
        self.keeps_conditions = True

    def client(self) -> MemoryBucket:
        """Another client of the same objects."""
        return MemoryBucket(self.store)

    def home(self, *, margin_seconds: float = 2) -> ObjectsHome:
        return ObjectsHome(self, AT, shown="triage in memory", margin_seconds=margin_seconds)

    def get(self, path: str) -> Found | None:
        self.gets.append(path)
        return super().get(path)

    def put(self, path: str, data: bytes, *, when: UpdateVersion | Literal["create"] | None = None) -> UpdateVersion:
        def write() -> UpdateVersion:
            self.puts.append(path)
            self.texts.append(data)
            return Bucket.put(self, path, data, when=when if self.keeps_conditions else None)

        on_put = self.on_put
        if on_put is not None and (found := on_put(path, write)) is not None:
            return found
        return write()

    def objects(self, folder: str) -> list[Listed]:
        found = super().objects(folder)
        self.on_list()
        hours = timedelta(hours=2)
        return [Listed(one.path, one.modified - hours) if one.path in self.old else one for one in found]

    def now(self, folder: str) -> datetime:
        return self.clock or super().now(folder)

    def paths(self) -> set[str]:
        """All objects that there are."""
        return {one.path for one in Bucket.objects(self, AT)}

    # ---- what goes wrong with the next write of the head

    def send_twice(self, between: Callable[[], None] = lambda: None) -> None:
        """The answer to the first is lost, and the client sends it again, after `between`."""

        def twice(write: Put) -> UpdateVersion:
            write()
            between()
            return write()

        self._at_next_head(twice)

    def lose_answer(self) -> None:
        """It is done, and nobody hears of it."""

        def lose(write: Put) -> UpdateVersion:
            write()
            raise StoreError("memory: does not answer")

        self._at_next_head(lose)

    def hold_back(self) -> list[Put]:
        """It is done only when the test does it: by what this returns, as soon as it is there."""
        held: list[Put] = []

        def hold(write: Put) -> UpdateVersion:
            held.append(write)
            raise StoreError("memory: does not answer")

        self._at_next_head(hold)
        return held

    def _at_next_head(self, fault: Callable[[Put], UpdateVersion]) -> None:
        def on_put(path: str, write: Put) -> UpdateVersion | None:
            if path != HEAD:
                return None
            self.on_put = None
            return fault(write)

        self.on_put = on_put
