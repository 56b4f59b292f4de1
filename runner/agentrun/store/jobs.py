"""The jobs that somebody sees from one folder, wherever their state is.

A job's state is in its folder below the state folder, unless a store is named: on the command line or in the job file
(`asked`), by what an earlier launch noted in the job's folder (`store.json`), or else by the environment. So a job that
is known keeps its place, whatever the environment says today.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from agentrun.errors import AgentrunError, StoreError, UsageError
from agentrun.job.address import StoreAddress, address_in_environment, read_address
from agentrun.store.folder.catalogue import FolderCatalogue
from agentrun.store.keyed.catalogue import KeyedCatalogue
from agentrun.store.keyed.store import Timing
from agentrun.store.local.place import check_place
from agentrun.store.local.pointer import NAME as POINTER
from agentrun.store.local.pointer import read_pointer
from agentrun.store.moving import read_mark
from agentrun.store.places import open_place
from agentrun.store.port import Catalogue, Store


class Jobs(Catalogue):
    """The jobs below the state folder `root`, and in the store that is asked for."""

    def __init__(
        self,
        root: Path,
        asked: StoreAddress | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        patience_seconds: float | None = None,
    ) -> None:
        self.root = root
        self._environ = os.environ if environ is None else environ
        self._default = address_in_environment(self._environ, Path.cwd())
        self._asked = asked
        self._patience_seconds = patience_seconds
        self._here = FolderCatalogue(root)

    def names(self) -> list[str]:
        if self._asked is not None and not self._asked.is_folder:
            return self._at(self._asked).names()
        elsewhere = self._at(self._default).names() if self._default is not None and self._asked is None else []
        return sorted({*self._here.names(), *elsewhere})

    def names_found(self) -> tuple[list[str], str]:
        """The same; if the store of the environment does not answer, those that are here, and why there are no more."""
        try:
            return self.names(), ""
        except StoreError as error:
            if self._asked is not None or not (here := self._here.names()):
                raise
            return here, error.message

    def names_here(self) -> list[str]:
        """Those that are known in the state folder, whatever store is asked for."""
        return self._here.names()

    def has(self, name: str) -> bool:
        # A store that does not answer hides no job that is here.
        return (self._asked is None and name in self._here.names()) or name in self.names()

    def store(self, name: str) -> Store:
        address = self.address(name)
        return self._at(address).store(name) if address is not None else self._here.store(name)

    def address(self, name: str) -> StoreAddress | None:
        """Where the job's state is, or will be; None: in its folder."""
        if self._asked is not None:
            return None if self._asked.is_folder else self._asked
        if (noted := self.noted(name)) is not None:
            return noted
        if self._default is None or self._default.is_folder or name in self._here.names():
            return None
        return self._default

    def is_elsewhere(self, name: str) -> bool:
        return self.address(name) is not None

    def with_patience(self, seconds: float) -> Jobs:
        """The same, for a launch that waits so long for a store that does not answer."""
        return Jobs(self.root, self._asked, self._environ, patience_seconds=seconds)

    def noted(self, name: str) -> StoreAddress | None:
        """The store that an earlier launch on this machine noted."""
        folder = self.root / name
        if not (folder / POINTER).exists():
            return None
        check_place(folder)
        text = read_pointer(folder)
        return read_address(text, base=self.root.parent, where=str(folder / POINTER)) if text is not None else None

    def find(self, run_id: str) -> str | None:
        for address in (self._asked, self._default):
            if address is None or address.is_folder or (name := self._at(address).find(run_id)) is None:
                continue
            meant = self.address(name)
            if meant is None or meant.place != address.place:
                raise UsageError(
                    f"{run_id}: is a run of {name} in {address.shown}, and another job of that name is here; "
                    f"add --store {shlex.quote(address.shown)}"
                )
            return name
        return super().find(run_id)

    def check_one_place(self, name: str) -> None:
        """UsageError if the job has runs in another place than the one that is asked for.

        A start there would run, and pay for, everything again.
        """
        if self._asked is None:
            return
        others: list[tuple[str, Store]] = []
        if (noted := self.noted(name)) is not None and noted.place != self._asked.place:
            others.append((noted.shown, self._at(noted).store(name)))
        if not self._asked.is_folder and noted is None and name in self._here.names():
            others.append((f"the folder {self.root / name}", self._here.store(name)))
        for place, store in others:
            if _has_runs(store):
                raise UsageError(
                    f"{name}: its runs are in {place}, and {self._asked.text} was asked for; move them with: "
                    f"agentrun export {name} -o {name}.agentrun --move, then: agentrun import {name}.agentrun "
                    f"--store {shlex.quote(self._asked.text)}; or start over there with --fresh"
                )

    def _at(self, address: StoreAddress) -> Catalogue:
        if address.is_folder:
            return self._here
        address = address.with_secret_of(self._default)
        timing = Timing()
        timing = Timing(
            address.lease_seconds or timing.lease_seconds,
            self._patience_seconds if self._patience_seconds is not None else timing.patience_seconds,
        )
        return KeyedCatalogue(
            lambda: open_place(address, self._environ),
            self.root,
            address=address.seen_from(self.root.parent),
            timing=timing,
        )


def _has_runs(store: Store) -> bool:
    """Whether there is anything to lose; a store that cannot be asked may have."""
    try:
        with store.reader(accept_edits=True) as reader:
            return bool(reader.run_id) and read_mark(store) is None
    except AgentrunError:
        return True
