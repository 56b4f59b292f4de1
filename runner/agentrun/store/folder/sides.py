"""The side files of a job's folder: job.json, and the spools of items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path

from agentrun.errors import UsageError
from agentrun.system.disk import Disk, open_to_read, replace_file

PIECE_BYTES = 1 << 18


class SideFiles:
    """Files that are replaced whole. Errors of writing are OSErrors."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk

    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        replace_file(self._disk, self._folder / name, chunks)

    def fetch(self, name: str) -> Iterator[bytes] | None:
        path = self._folder / name
        try:
            file = open_to_read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
        return _pieces(file)


def _pieces(file: BufferedReader) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece
