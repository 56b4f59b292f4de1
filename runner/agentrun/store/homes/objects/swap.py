"""The object that holds the head of a job: read as a whole, and replaced as a whole, by compare-and-swap.

**Each write replaces one version of the head that had our epoch.** So nothing helps a runner that has lost the job,
whatever it has read since: the new holder's versions have another epoch, and its own are gone.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import structs

from agentrun.errors import LostError, StoreError
from agentrun.store.homes.objects.bucket import Bucket, RefusedError
from agentrun.store.homes.objects.head import HeadText, decode_head, encode_head, no_head

if TYPE_CHECKING:
    from obstore import UpdateVersion

_TRIES = 10


@dataclass(frozen=True, slots=True)
class Version:
    """The head at one moment."""

    head: HeadText
    mark: UpdateVersion | None = None
    """What the service tells this version by; None if there is no head."""
    modified: datetime | None = None
    """When it was written, by the service's clock; None if this process wrote it, or there is none."""


class HeadObject:
    """May be used from several threads: reading waits for nobody, writes happen one after the other."""

    def __init__(self, bucket: Bucket, path: str, *, shown: str) -> None:
        self.known: Version | None = None
        """The head as it was read or written last; it may be out of date."""
        self._bucket = bucket
        self._path = path
        self._shown = shown
        self._lock = threading.RLock()

    def fetch(self) -> Version:
        """The head as it is now."""
        before = self.known
        found = self._bucket.get(self._path)
        version = Version(no_head())
        if found is not None:
            version = Version(decode_head(found.data, where=self._shown), found.version, found.modified)
        if self.known is before:
            # Otherwise another thread has written meanwhile, and this may be the version before.
            self.known = version
        return version

    def ours(self, epoch: int | None, is_fit: Callable[[HeadText], bool] = lambda _: True) -> Version:
        """A version of our epoch (None: of any) that is fit: the known one, which may be out of date, or the newest.

        LostError if there is none.
        """

        def is_ours(head: HeadText) -> bool:
            return epoch in (None, head.epoch) and is_fit(head)

        known = self.known
        if known is not None and is_ours(known.head):
            return known
        found = self.fetch()
        if not is_ours(found.head):
            raise self.lost()
        return found

    def lost(self) -> LostError:
        return LostError(f"{self._shown}: another runner has taken this job over")

    def swap(
        self,
        epoch: int | None,
        change: Callable[[HeadText], HeadText],
        is_fit: Callable[[HeadText], bool] = lambda _: True,
    ) -> HeadText:
        """Replace the head by what `change` makes of it, if it is of our epoch (None: of any) and fit; else LostError.

        `change` is called again with a newer head if that was replaced meanwhile: by a write of ours that nobody
        answered and that arrived late, or by someone who dropped a side file.
        """
        with self._lock:
            for _ in range(_TRIES):
                base = self.ours(epoch, is_fit)
                if (made := self._write(base, change(base.head))) is not None:
                    return made
        raise StoreError(f"{self._shown}: others have replaced the head {_TRIES} times in a row")

    def take(self, change: Callable[[Version], HeadText]) -> HeadText:
        """Replace the head as it is now, whoever wrote it; LostError if somebody is quicker."""
        with self._lock:
            base = self.fetch()
            made = self._write(base, change(base))
        if made is None:
            raise self.lost()
        return made

    def _write(self, base: Version, made: HeadText) -> HeadText | None:
        """Put the new head in place of the one it was made of; None if that is no longer there."""
        made = structs.replace(made, nonce=secrets.token_hex(8))
        try:
            mark = self._bucket.put(self._path, encode_head(made), when=base.mark or "create")
        except RefusedError:
            # The write has happened all the same if the client sent it twice because the first answer was lost.
            # Somebody else's head, which becomes known here, has an epoch that none of our writes will fit.
            self.known = None
            return made if self.fetch().head.nonce == made.nonce else None
        self.known = Version(made, mark)
        return made
