"""The folder `runs`: the summary of each run that ended, and the journals of the last few."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentrun.checkpoint.summary import Summary, decode_summary, encode_summary, last_finished
from agentrun.system.disk import (
    PIECE_BYTES,
    Disk,
    discard,
    is_temporary,
    names_in,
    open_to_read,
    replace_file,
    secure_folder,
    sync_folder,
)

FOLDER = "runs"
SUMMARIES_KEPT = 20
JOURNALS_KEPT = 3


class Runs:
    """The runs of one job that ended. Errors of the disk are OSErrors."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder / FOLDER
        self._disk = disk

    def file(self, summary: Summary, journal: Path) -> None:
        """Keep the summary, with which the run has ended, and then its journal; durably, except for `runs` itself."""
        secure_folder(self._disk, self._folder)
        if self.summary(summary.run_id) is None:
            replace_file(self._disk, self._summary(summary.run_id), [encode_summary(summary)])
        else:
            # An earlier launch renamed it and may have died before syncing that; the journal must not move before it.
            sync_folder(self._disk, self._folder)
        if journal.exists():
            self._disk.replace(str(journal), str(self.journal(summary.run_id)))
        # Also what an earlier launch renamed, and died before syncing.
        sync_folder(self._disk, self._folder)

    def put_aside(self, files: Mapping[Path, str]) -> None:
        """Move these files here, under other names."""
        secure_folder(self._disk, self._folder)
        for path, name in files.items():
            self._disk.replace(str(path), str(self._folder / name))
        sync_folder(self._disk, self._folder)

    def keep_copies(self, files: Mapping[Path, str]) -> None:
        """Copy these files here, under other names, durably."""
        secure_folder(self._disk, self._folder)
        for path, name in files.items():
            with open_to_read(path) as file:
                replace_file(self._disk, self._folder / name, iter(lambda: file.read(PIECE_BYTES), b""))

    def summary(self, run_id: str) -> Summary | None:
        try:
            with open_to_read(self._summary(run_id)) as file:
                return decode_summary(file.read())
        except OSError:
            return None

    def journal(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.jsonl"

    def summaries(self) -> list[Summary]:
        """Newest first, by their numbers: the clock may have been set back."""
        names = [name[:-5] for name in names_in(self._folder) if name.endswith(".json")]
        found = [summary for name in names if (summary := self.summary(name)) is not None]
        return sorted(found, key=lambda summary: summary.age, reverse=True)

    def prune(self) -> None:
        """Remove what is old, and what a launch that died was writing. The last completed run is never old."""
        ended = self.summaries()
        last = last_finished(ended)
        old = {f"{one.run_id}.json" for one in ended[SUMMARIES_KEPT:] if one is not last}
        old |= {f"{one.run_id}.jsonl" for one in ended[JOURNALS_KEPT:] if one is not last}
        for name in names_in(self._folder):
            if name in old or is_temporary(name):
                discard(self._disk, str(self._folder / name))

    def _summary(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"
