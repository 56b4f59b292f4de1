"""The runs of a job that ended: one list of all of them, in an object that never changes and that the head names."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from msgspec import DecodeError, Struct, json

from agentrun.errors import CheckpointError
from agentrun.store.homes.objects.bucket import Bucket
from agentrun.store.homes.objects.segments import GoneError
from agentrun.store.keyed.home import EndedRun


class _Run(Struct, frozen=True):
    run: str
    journal: str
    summary: bytes


class EndedRuns:
    """The lists, in the folder `at`; no runs are an empty name."""

    def __init__(self, bucket: Bucket, at: str) -> None:
        self._bucket = bucket
        self._at = at

    def path(self, name: str) -> str:
        return f"{self._at}/{name}"

    def put(self, runs: Sequence[EndedRun]) -> str:
        """Write the list; its name."""
        if not runs:
            return ""
        name = secrets.token_hex(8)
        self._bucket.put(self.path(name), json.encode([_Run(one.run_id, one.journal, one.summary) for one in runs]))
        return name

    def get(self, name: str) -> list[EndedRun]:
        """GoneError if the list is not there."""
        if not name:
            return []
        found = self._bucket.get(self.path(name))
        if found is None:
            raise GoneError(f"{self._bucket.shown}: {self.path(name)} is gone; restore it from a backup")
        try:
            runs = json.decode(found.data, type=list[_Run])
        except DecodeError:
            raise CheckpointError(
                f"{self._bucket.shown}: {self.path(name)} is damaged; restore it from a backup"
            ) from None
        return [EndedRun(one.run, one.journal, one.summary) for one in runs]
