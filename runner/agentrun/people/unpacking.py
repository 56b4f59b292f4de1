"""An export that is unpacked into a job's folder, and what of it goes where.

Everything is unpacked into a temporary folder first, and checked while it is. What items published, their scratch and
their logs come to their places before the store adopts the run that names them: a crash before that leaves files that
nothing names, and the next import of the same file puts them there again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from agentrun.checkpoint.checkpoint import Checkpoint, decode_checkpoint
from agentrun.checkpoint.record import check_record
from agentrun.checkpoint.summary import decode_summary
from agentrun.errors import CheckpointError, UsageError
from agentrun.job.kept import JOB_JSON, KeptJob, decode_job_json, encode_job_json
from agentrun.outputs.files import ItemFiles, files_folder
from agentrun.outputs.place import make_output_folder
from agentrun.outputs.workspace import Workspace
from agentrun.outputs.written import WrittenList
from agentrun.people import archive
from agentrun.people.archive import Archive, Manifest
from agentrun.people.inflated import damaged
from agentrun.people.packing import published
from agentrun.people.relocation import Relocation, relocate_checkpoint, relocate_job, relocate_summary
from agentrun.store.contents import Contents, FiledRun, Letter, Pieces
from agentrun.store.port import HistoryEvent, Store
from agentrun.system.disk import (
    PIECE_BYTES,
    Disk,
    disk_errors,
    is_temporary,
    make_folders,
    names_in,
    open_to_read,
    secure_folder,
    temporary_name,
)
from agentrun.system.trust import check_folder

_STAGED = "import"


@contextmanager
def unpacked(export: Archive, store: Store) -> Iterator[Path]:
    """A folder with the members of the export, in the job's folder, whose lock is held; afterwards it is removed."""
    folder, disk = Workspace(store).folder, Disk()
    for name in names_in(folder):
        if is_temporary(name, _STAGED):
            shutil.rmtree(folder / name, ignore_errors=True)
    staged = Path(temporary_name(folder, _STAGED))
    try:
        with disk_errors(folder):
            disk.mkdir(str(staged))
            for name in export.manifest.folders:
                make_folders(staged / name)
            for entry, pieces in export.members():
                path = staged / entry.name
                make_folders(path.parent)
                _write(disk, path, pieces, mode=0o700 if entry.executable else 0o600)
                if entry.mtime_ns:
                    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _write(disk: Disk, path: Path, pieces: Iterable[bytes], *, mode: int) -> None:
    fd = disk.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        for piece in pieces:
            disk.write(fd, piece)
    finally:
        disk.close(fd)


class Arrival:
    """A job that arrives in `store` under `name`, from the members in `staged`; `here` is its folder from now on."""

    def __init__(self, manifest: Manifest, staged: Path, where: str, store: Store, name: str, *, here: Path) -> None:
        self._manifest = manifest
        self._staged = staged
        self._where = where
        self._store = store
        self._name = name
        self._folder = Workspace(store).folder
        self._before = self._read()
        self._places = Relocation(tuple(self._folders_before()), here)
        self._outputs = [self._new_output(number) for number in range(len(manifest.outputs))]
        self.job = self._read_job()
        """What was asked, as it is asked here; None if that is not known."""
        self.missed: list[str] = []
        """Items whose files are not as they were recorded."""

    # ---- reading

    def _new_output(self, number: int) -> Path:
        """Where the output is here. If it was outside of the job's folders, nothing is written there: its files, if it
        has any, go to the state folder, and the next launch copies them."""
        old = self._manifest.outputs[number].path
        new = self._places.path(old)
        if new is not None and ".." not in new.parts:
            return new
        has_files = (self._staged / archive.FILES / str(number)).exists()
        return self._folder / "files" / str(number) / Path(old).name if has_files else new or Path(old)

    def _output(self, old: str) -> str:
        for entry, new in zip(self._manifest.outputs, self._outputs, strict=True):
            if entry.path == old:
                return str(new)
        raise damaged(self._where, f"its manifest does not name the output {old!r}")

    def _read(self) -> Contents:
        """The job as it was exported."""
        inbox, journal = self._staged / archive.INBOX, self._staged / archive.JOURNAL
        return Contents(
            checkpoint=self._read_checkpoint(),
            lines=partial(self._lines, journal) if journal.exists() else tuple,
            ended=self._read_ended(),
            letters=[Letter(name, (inbox / name).read_bytes()) for name in sorted(names_in(inbox))],
        )

    def _read_checkpoint(self) -> Checkpoint | None:
        path = self._staged / archive.STATE
        if not path.exists():
            return None
        found = decode_checkpoint(path.read_bytes(), where=f"{self._where}: {archive.STATE}")
        if (found.run_id, found.seq) != (self._manifest.run_id, self._manifest.seq):
            raise damaged(self._where, f"{archive.STATE} is of another run than its manifest says")
        return found

    def _read_ended(self) -> list[FiledRun]:
        found: list[FiledRun] = []
        for name in names_in(self._staged / archive.RUNS):
            path = self._staged / archive.RUNS / name
            if name.endswith(".json"):
                summary = decode_summary(path.read_bytes())
                if summary is None or f"{summary.run_id}.json" != name:
                    raise damaged(self._where, f"{archive.RUNS}{name} is not the summary of that run")
                lines = path.with_suffix(".jsonl")
                found.append(FiledRun(summary, partial(self._lines, lines) if lines.exists() else None))
        return sorted(found, key=lambda one: one.summary.age, reverse=True)

    def _read_job(self) -> KeptJob | None:
        path = self._staged / archive.SIDES / JOB_JSON
        if not path.exists() or not self._manifest.home:
            return None
        try:
            # Only the folder around it counts.
            kept = decode_job_json(path.read_bytes(), root=Path(self._manifest.home, "state"))
        except CheckpointError:
            return None
        return relocate_job(kept, self._name, self._places, was=self._manifest.job)

    def _folders_before(self) -> Iterator[str]:
        """The job's folder where it was exported, in its last launch, and in the runs that ended: perhaps elsewhere."""
        yield self._manifest.base or self._manifest.home
        if self._before.checkpoint is not None:
            yield self._before.checkpoint.context.base
        for run in self._before.ended:
            # Of a job in a shared store: with the host before it.
            yield run.summary.place.partition(":")[2]

    # ---- what the store adopts

    def contents(self) -> Contents:
        """The job as it is here."""
        lists = {
            entry.listed: WrittenList(self._store, new).name
            for entry, new in zip(self._manifest.outputs, self._outputs, strict=True)
            if entry.listed
        }
        has_file = self.job is not None and self.job.file is not None
        before, checkpoint = self._before, self._before.checkpoint
        if checkpoint is not None:
            checkpoint = relocate_checkpoint(checkpoint, self._name, self._output, has_file=has_file)
        ended = [
            replace(one, summary=relocate_summary(one.summary, self._name, self._output, lists)) for one in before.ended
        ]
        return replace(before, checkpoint=checkpoint, ended=ended, sides=self._sides(lists))

    def _lines(self, path: Path) -> Iterator[bytes]:
        with open_to_read(path) as file:
            for line in file:
                if not line.endswith(b"\n") or not check_record(line[:-1]):
                    raise damaged(self._where, f"a record in {path.relative_to(self._staged)} is not as it was written")
                yield line[:-1]

    def _sides(self, lists: dict[str, str]) -> dict[str, Pieces]:
        folder = self._staged / archive.SIDES
        sides: dict[str, Pieces] = {}
        for name in sorted(names_in(folder)):
            sides[lists.get(name, name)] = partial(_pieces, folder / name)
        if self.job is not None:
            root = self._store.folder.parent if self._store.folder is not None else self._places.here / "state"
            sides[JOB_JSON] = partial(list, [encode_job_json(self.job, root=root)])
        return sides

    # ---- what goes into folders

    def check_free(self) -> None:
        """UsageError if files of others are where published files go."""
        for number, output in enumerate(self._outputs):
            home, staged = files_folder(output), self._staged / archive.FILES / str(number)
            if not staged.exists() or not os.path.lexists(home):
                continue
            if home.is_symlink() or not home.is_dir():
                raise UsageError(f"{home}: is not a folder, but files of the job go there; move it away")
            check_folder(home, otherwise="move it away")
            ours = {entry.name: entry.sha256 for entry in self._manifest.members}
            for path in _files_in(home):
                name = f"{archive.FILES}{number}/{home.name}/{path.relative_to(home)}"
                if name not in ours or _hash(path) != ours[name]:
                    raise UsageError(
                        f"{home}: holds {path.relative_to(home)}, which is not of this job, and its files would go "
                        f"there; move it away"
                    )

    def place_files(self) -> None:
        """Put items' files, scratch and logs into their places."""
        files, disk = ItemFiles(self._folder), Disk()
        for output, by_key in published(self._before).items():
            new = Path(self._output(output))
            number = [entry.path for entry in self._manifest.outputs].index(output)
            before = self._staged / archive.FILES / str(number) / Path(output).name
            make_output_folder(new.parent, new, base=self._places.here, disk=disk)
            for key, listed in by_key.items():
                if files.carry_over(listed, before, new, key) is None:
                    self.missed.append(key)
        with disk_errors(self._folder):
            for part in (archive.WORK, archive.LOGS, f"{archive.LOGS}done/"):
                self._place(part)

    def _place(self, part: str) -> None:
        names = names_in(self._staged / part)
        if names:
            secure_folder(Disk(), self._folder / part)
        for name in names:
            source, target = self._staged / part / name, self._folder / part / name
            if part != archive.WORK and not name.endswith(".log"):
                continue
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            os.replace(source, target)

    def note_history(self, after: str) -> None:
        """Add the events of the job's history that came later than `after`, a time."""
        decoder = msgspec.json.Decoder(HistoryEvent)
        path = self._staged / archive.HISTORY
        if not path.exists():
            return
        with open_to_read(path) as file:
            for line in file:
                try:
                    event = decoder.decode(line)
                except (ValueError, RecursionError):
                    continue
                if event.at > after:
                    self._store.note(event)


def _pieces(path: Path) -> Iterator[bytes]:
    with open_to_read(path) as file:
        yield from iter(partial(file.read, PIECE_BYTES), b"")


def _hash(path: Path) -> str:
    """Of a plain file; empty for anything else."""
    try:
        with open_to_read(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _files_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if is_temporary(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files_in(path)
        else:
            yield path
