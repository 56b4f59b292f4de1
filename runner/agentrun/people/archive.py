"""An export file: a tar.gz whose first member, `manifest.json`, has the name, size and SHA-256 of every other.

It is read strictly: only plain files, exactly those of the manifest, in its order, with its sizes and hashes. So
nothing larger than the manifest says is ever unpacked, and a file that was cut or changed is noticed, with the member
at fault.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from agentrun.checkpoint.message import is_run_id
from agentrun.errors import CheckpointError, LaterError, UsageError
from agentrun.people.inflated import BLOCK, GZIP, Inflated, damaged, not_an_export
from agentrun.store.port import is_side
from agentrun.system.disk import PIECE_BYTES, open_to_read
from agentrun.values.text import is_unicode

FORMAT, VERSION = "agentrun export", 1
MANIFEST, STATE, JOURNAL, HISTORY = "manifest.json", "state.json", "journal.jsonl", "history.jsonl"
SIDES, RUNS, INBOX, LOGS, WORK, FILES = "sides/", "runs/", "inbox/", "logs/", "work/", "files/"
_MANIFEST_MOST_BYTES = 256 << 20
_LEVEL = 3
_DIGEST = re.compile(r"[0-9a-f]{64}")
_INBOX_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.json")
_WORK_NAME = re.compile(r"[0-9a-f]{32}(-g[1-9][0-9]*)?")

Transform = Callable[[Iterable[bytes]], Iterable[bytes]]
"""What the bytes of an export file pass through: sealing when it is written, opening when it is read."""


def unchanged(chunks: Iterable[bytes]) -> Iterable[bytes]:
    return chunks


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the manifest says of a member."""

    name: str
    size: int
    sha256: str
    mtime_ns: int = 0
    """Of a file of an item."""
    executable: bool = False


class OutputEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An output of the job; the files that items published beside it are the members `files/<its position>/`."""

    path: str
    listed: str = ""
    """The name of the list of files written into it, if it is a folder."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an export says of itself."""

    format: str
    version: int
    job: str
    run_id: str
    """The newest run."""
    seq: int | None = None
    """Of the unfinished run; None without one."""
    at: str
    host: str
    moved: bool
    """Whether the job does not run any more where it was exported."""
    home: str
    """The folder that held the state folder; empty if there was none."""
    base: str
    """The job's own folder; empty if that is not known."""
    outputs: list[OutputEntry]
    folders: list[str]
    """Folders of items' scratch, which may be empty."""
    members: list[Entry]
    """The members behind the manifest, in their order."""


class _Version(msgspec.Struct):
    format: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Member:
    """Something to be exported. `read` is called twice, and must give the same bytes both times."""

    name: str
    read: Callable[[], Iterable[bytes]]
    mtime_ns: int = 0
    executable: bool = False


# ---- writing


def entry_of(member: Member) -> Entry:
    """The member as the manifest names it."""
    digest, size = hashlib.sha256(), 0
    for piece in member.read():
        digest.update(piece)
        size += len(piece)
    return Entry(
        name=member.name,
        size=size,
        sha256=digest.hexdigest(),
        mtime_ns=member.mtime_ns,
        executable=member.executable,
    )


def archive_pieces(manifest: Manifest, members: Sequence[Member]) -> Iterator[bytes]:
    """The bytes of the file. LaterError if a member is not what the manifest says: it was changed meanwhile."""
    compress = zlib.compressobj(_LEVEL, wbits=GZIP)
    for piece in _tar_pieces(manifest, members):
        if made := compress.compress(piece):
            yield made
    yield compress.flush()


def _tar_pieces(manifest: Manifest, members: Sequence[Member]) -> Iterator[bytes]:
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    yield from _tar_member(Entry(name=MANIFEST, size=len(text), sha256=""), [text])
    for entry, member in zip(manifest.members, members, strict=True):
        yield from _tar_member(entry, _checked(entry, member.read()))
    yield bytes(2 * BLOCK)


def _tar_member(entry: Entry, pieces: Iterable[bytes]) -> Iterator[bytes]:
    info = tarfile.TarInfo(entry.name)
    info.size, info.mode, info.mtime = entry.size, 0o700 if entry.executable else 0o600, entry.mtime_ns // 10**9
    yield info.tobuf(tarfile.PAX_FORMAT)
    yield from pieces
    yield bytes(-entry.size % BLOCK)


def _checked(entry: Entry, pieces: Iterable[bytes]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.hexdigest() != entry.sha256:
        raise LaterError(f"{entry.name} was changed while it was exported; run the same command again")


# ---- reading


class Archive:
    """An export file as it is read, once from its beginning to its end. `where` names the file in messages."""

    def __init__(self, pieces: Iterable[bytes], where: str) -> None:
        self._where = where
        self._tar = Inflated(pieces, where)
        self.manifest = self._read_manifest()

    def _read_manifest(self) -> Manifest:
        header = self._tar.first_header()
        if header.name != MANIFEST:
            raise not_an_export(self._where)
        if header.size > _MANIFEST_MOST_BYTES:
            raise self._damaged(f"its manifest has {header.size:,} bytes")
        text = b"".join(self._tar.content(header.size, of=MANIFEST))
        try:
            found = msgspec.json.decode(text, type=_Version)
        except ValueError:
            raise not_an_export(self._where) from None
        if found.format != FORMAT:
            raise not_an_export(self._where)
        if found.version > VERSION:
            raise CheckpointError(f"{self._where}: is of version {found.version}, from a newer agentrun; use that one")
        try:
            manifest = msgspec.json.decode(text, type=Manifest)
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"its manifest is wrong: {error}") from None
        self._check(manifest)
        return manifest

    def _check(self, manifest: Manifest) -> None:
        """Only names that an export has: whatever the manifest says, nothing is written anywhere else."""
        for path in (manifest.home, manifest.base, *(one.path for one in manifest.outputs)):
            if "\0" in path or not is_unicode(path) or (path and not path.startswith("/")):
                raise self._damaged(f"its manifest names the folder {path!r}, which no export has")
        names: set[str] = set()
        for entry in manifest.members:
            if not is_member_name(entry.name, outputs=len(manifest.outputs)):
                raise self._damaged(f"its manifest names {entry.name!r}, which no export has")
            if entry.name in names or entry.size < 0 or not _DIGEST.fullmatch(entry.sha256):
                raise self._damaged(f"its manifest is wrong about {entry.name!r}")
            names.add(entry.name)
        for name in manifest.folders:
            if not name.startswith(WORK) or not is_member_name(name, outputs=0):
                raise self._damaged(f"its manifest names the folder {name!r}, which no export has")

    def members(self) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """The members in their order, each with its bytes, which must be read to their end: then they are checked.

        CheckpointError for whatever is not as the manifest says. All of the file is there only if this comes to its
        end.
        """
        for entry in self.manifest.members:
            header = self._tar.header(f"before {entry.name}")
            if header is None:
                raise self._damaged(f"{entry.name} is missing")
            if header.name != entry.name:
                raise self._damaged(f"{header.name!r} stands where its manifest has {entry.name}")
            if header.size != entry.size:
                raise self._damaged(f"{entry.name} has {header.size:,} bytes, and its manifest says {entry.size:,}")
            yield entry, self._content(entry)
        if (more := self._tar.header("at its end")) is not None:
            raise self._damaged(f"{more.name!r} is not in its manifest")
        self._tar.end()

    def _content(self, entry: Entry) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for piece in self._tar.content(entry.size, of=entry.name):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != entry.sha256:
            raise self._damaged(f"{entry.name} was changed (its SHA-256 does not match)")

    def content_of(self, name: str) -> bytes | None:
        """The bytes of one member, which reads the file up to there; None if there is no such member."""
        if not any(entry.name == name for entry in self.manifest.members):
            return None
        for entry, pieces in self.members():
            if entry.name == name:
                return b"".join(pieces)
            for _ in pieces:
                pass
        return None

    def verify(self) -> None:
        """Read everything to its end, and check it."""
        for _, pieces in self.members():
            for _ in pieces:
                pass

    def _damaged(self, what: str) -> CheckpointError:
        return damaged(self._where, what)


@contextmanager
def open_export(file: Path, opening: Transform) -> Iterator[Archive]:
    """The export file, from its beginning; UsageError if it cannot be read."""
    try:
        opened = open_to_read(file)
    except FileNotFoundError:
        raise UsageError(f"{file}: there is no such file; check the path") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    with opened as readable:
        yield Archive(opening(iter(partial(readable.read, PIECE_BYTES), b"")), str(file))


def is_member_name(name: str, *, outputs: int) -> bool:
    """Whether an export may have a member of this name."""
    parts = name.split("/")
    if not is_unicode(name) or any(
        part in ("", ".", "..") or "\0" in part or len(part.encode()) > 255 for part in parts
    ):
        return False
    first, rest = f"{parts[0]}/", parts[1:]
    if len(parts) == 1:
        return name in (STATE, JOURNAL, HISTORY)
    if first == SIDES:
        return len(rest) == 1 and is_side(rest[0])
    if first == RUNS:
        stem, dot, ending = rest[0].rpartition(".")
        return len(rest) == 1 and bool(dot) and ending in ("json", "jsonl") and is_run_id(stem)
    if first == INBOX:
        return len(rest) == 1 and _INBOX_NAME.fullmatch(rest[0]) is not None
    if first == LOGS:
        return name.endswith(".log") and (len(rest) == 1 or (len(rest) == 2 and rest[0] == "done"))
    if first == WORK:
        return _WORK_NAME.fullmatch(rest[0]) is not None
    is_output = rest[0].isascii() and rest[0].isdigit() and int(rest[0]) < outputs
    return first == FILES and is_output and len(rest) > 3 and rest[1].endswith(".files")
