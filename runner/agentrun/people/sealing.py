"""Keys of people: new ones for a job in a shared store, sealing one that was not sealed, and sealed export files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from agentrun.checkpoint.sealed_file import key_of_file, open_sealed, seal_file
from agentrun.checkpoint.sealing import Keyring, about, needs_key, read_keyring
from agentrun.errors import UsageError
from agentrun.job.keys import KEY_VARIABLES
from agentrun.job.keys import new_key as new_key
from agentrun.store.keyed.rekeying import Change as Change
from agentrun.store.keyed.rekeying import Rekeyed as Rekeyed
from agentrun.store.keyed.rekeying import rekey
from agentrun.store.keyed.sealed import peek
from agentrun.store.keyed.store import KeyedStore
from agentrun.store.port import Store

_EXPORT = about("export")
_RESTORE = "export the job again, or use another copy of the file"


def rekey_job(
    store: Store, name: str, *, change: Change = "rekey", environ: Mapping[str, str] | None = None
) -> Rekeyed:
    """Write everything of the job again under the first key of the environment; to unseal, in clear.

    BusyError if a runner is at work. UsageError for a job in its folder, which is never sealed.
    """
    if not isinstance(store, KeyedStore):
        raise UsageError(
            f"{name}: its state is in its folder, beside results and logs in clear, and is not sealed; encrypt the disk"
        )
    ring = read_keyring(os.environ if environ is None else environ)
    if ring is None:
        raise UsageError(f"{name}: no key is given; set {KEY_VARIABLES[0]}, {KEY_VARIABLES[1]} or {KEY_VARIABLES[2]}")
    lease = store.lock(wait_seconds=1.0)
    try:
        return rekey(store.home, name, lease.epoch, ring=ring, folder=store.folder, change=change)
    finally:
        lease.release()


class FileSeal:
    """What an export file is passed through, on its way out and in, with the keys of the environment."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._ring: Keyring | None = read_keyring(os.environ if environ is None else environ)

    @property
    def is_set(self) -> bool:
        return self._ring is not None

    def seal(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Sealed if there is a key, else as they are."""
        return seal_file(self._ring, pieces, _EXPORT) if self._ring is not None else iter(pieces)

    def open(self, pieces: Iterable[bytes], *, where: str) -> Iterator[bytes]:
        """Opened if they are sealed, else as they are; UsageError without the key."""
        start, pieces = peek(iter(pieces))
        if (key := key_of_file(start)) is None:
            return pieces
        if self._ring is None:
            raise needs_key(where, key)
        return open_sealed(self._ring, pieces, _EXPORT, where=where, what_to_do=_RESTORE)
