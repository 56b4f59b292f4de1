"""The jobs of a shared place, each with a folder on this machine for what is not in the place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentrun.store.keyed.home import Place
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.port import Catalogue


class KeyedCatalogue(Catalogue):
    """The jobs in a place; `root` is the state folder on this machine. Looking connects, opening does not."""

    def __init__(
        self, open_place: Callable[[], Place], root: Path, *, address: str = "", timing: Timing | None = None
    ) -> None:
        self._open_place = open_place
        self._root = root
        self._address = address
        self._timing = timing

    def names(self) -> list[str]:
        return self._open_place().names()

    def store(self, name: str) -> KeyedStore:
        home = self._open_place().home(name)
        return KeyedStore(home, name, self._root / name, address=self._address, timing=self._timing)

    def find(self, run_id: str) -> str | None:
        return self._open_place().find(run_id) if run_id else None
