"""Side files in a bucket. Most are put by whoever has the lease, and the head names them: these are pieces alone.

Messages are put by anyone: `side/<name>` is an object with a line of JSON, and the text or the name of its pieces.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from msgspec import DecodeError, Struct, json

from agentrun.errors import CheckpointError, StoreError
from agentrun.store.homes.objects.bucket import Bucket, RefusedError
from agentrun.store.homes.objects.head import VERSION, File, decode_name, encode_name


class _Header(Struct, frozen=True, omit_defaults=True):
    version: int
    nonce: str
    file: File | None = None


class Side(Struct, frozen=True):
    """A side file that anyone may put: its text, unless that is in pieces."""

    text: bytes
    file: File | None = None


class Sides:
    """The side files of one job, in the folder `at`; their pieces are in `pieces_at`."""

    def __init__(self, bucket: Bucket, *, at: str, pieces_at: str) -> None:
        self._bucket = bucket
        self._at = at
        self._pieces_at = pieces_at

    def path(self, name: str) -> str:
        return f"{self._at}/{'/'.join(map(encode_name, name.split('/')))}"

    def name(self, path: str) -> str:
        return "/".join(map(decode_name, path.removeprefix(f"{self._at}/").split("/")))

    # ---- by anyone

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        rest = iter(pieces)
        first = list(islice(rest, 2))
        file = self.upload(chain(first, rest)) if len(first) > 1 else None
        header = _Header(VERSION, secrets.token_hex(8), file)
        self._bucket.put(self.path(name), json.encode(header) + b"\n" + (b"" if file is not None else b"".join(first)))

    def put_new(self, name: str, text: bytes) -> bool:
        """Whether it was kept: not if there is one already."""
        header = _Header(VERSION, secrets.token_hex(8))
        unsure = None
        try:
            self._bucket.put(self.path(name), json.encode(header) + b"\n" + text, when="create")
            return True
        except RefusedError:
            pass
        except StoreError as error:
            unsure = error
        # Perhaps it was kept, and only the answer was lost: the client then sends it again, and is refused.
        found = self._bucket.get(self.path(name))
        if found is None and unsure is not None:
            raise unsure
        return found is not None and self._split(name, found.data)[0].nonce == header.nonce

    def get(self, name: str) -> Side | None:
        found = self._bucket.get(self.path(name))
        if found is None:
            return None
        header, text = self._split(name, found.data)
        return Side(text, header.file)

    def _split(self, name: str, data: bytes) -> tuple[_Header, bytes]:
        line, _, text = data.partition(b"\n")
        try:
            header = json.decode(line, type=_Header)
        except DecodeError:
            raise CheckpointError(f"{self._bucket.shown}: {self.path(name)} is damaged; delete it") from None
        if header.version != VERSION:
            raise CheckpointError(f"{self._bucket.shown}: {self.path(name)} is from a newer agentrun; use that one")
        return header, text

    def names(self, prefix: str = "") -> list[str]:
        """The names that begin so, in any order."""
        folder = prefix.rpartition("/")[0]
        listed = self._bucket.objects(self.path(folder) if folder else self._at)
        return [name for one in listed if (name := self.name(one.path)).startswith(prefix)]

    def delete(self, names: Iterable[str], files: Iterable[File] = ()) -> None:
        self._bucket.delete([*map(self.path, names), *(path for file in files for path in self.piece_paths(file))])

    # ---- in pieces

    def upload(self, pieces: Iterable[bytes]) -> File:
        """Write the pieces; nothing names them yet."""
        tag, number = secrets.token_hex(8), 0
        for piece in pieces:
            self._bucket.put(f"{self._pieces_at}/{tag}/{number}", piece)
            number += 1
        return File(tag, number)

    def piece_paths(self, file: File) -> list[str]:
        return [f"{self._pieces_at}/{file.tag}/{number}" for number in range(file.pieces)]

    def read(self, name: str, file: File) -> Iterator[bytes]:
        for path in self.piece_paths(file):
            found = self._bucket.get(path)
            if found is None:
                raise CheckpointError(
                    f"{self._bucket.shown}: {name} was replaced while it was read; run the command again"
                )
            yield found.data

    def tags(self, paths: Sequence[str]) -> set[str] | None:
        """The tags of the pieces that the files at these paths have; None if one of the files cannot be read."""
        found: set[str] = set()
        for path in paths:
            try:
                side = self.get(self.name(path))
            except CheckpointError:
                return None
            if side is not None and side.file is not None:
                found.add(side.file.tag)
        return found
