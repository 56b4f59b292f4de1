"""Moving a job to another folder, machine or store: one file out, one file in. For every kind of front end.

What a crash leaves while a job is moved away: `store/moving.py`. An import that dies leaves no job, or all of it: what
a store adopts is there from one moment to the next, and everything that the run names was put in its place before that.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.errors import JobError, LaterError, UsageError
from agentrun.job.build import job_name
from agentrun.job.file import default_name, read_job_file
from agentrun.job.kept import KeptJob
from agentrun.outputs.claim import drop_claim
from agentrun.people.archive import (
    FORMAT,
    RUNS,
    VERSION,
    Manifest,
    Transform,
    archive_pieces,
    entry_of,
    open_export,
    unchanged,
)
from agentrun.people.destination import checked_name
from agentrun.people.packing import Packed, kept_apart, pack, places_of
from agentrun.people.unpacking import Arrival, unpacked
from agentrun.store.jobs import Jobs
from agentrun.store.moving import MOVED, Moved, command_for, mark_moved, moved_away, read_mark
from agentrun.store.port import Catalogue, Contents, HistoryEvent, Store
from agentrun.system.disk import Disk, discard, disk_errors, sync_folder, temporary_name
from agentrun.system.guardian import end_launch
from agentrun.values.clock import now_text
from agentrun.views.finding import KnownJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was exported."""

    file: Path
    size: int
    is_unfinished: bool
    left_out: tuple[str, ...] = ()
    """What could not be exported, each with the reason."""
    apart: tuple[str, ...] = ()
    """What the job needs besides, and no export has: the user's own files, such as the job file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What was imported."""

    name: str
    store: Store
    host: str
    """Where it was exported, and when."""
    at: str
    was_moved: bool
    """Whether it does not run there any more."""
    is_back: bool
    """Whether it was moved away from here before."""
    is_unfinished: bool
    done: int
    total: int
    job_file: Path | None = None
    """The path of its job file here, whether it is there or not; None for a job without one."""
    has_other_name: bool = False
    """Whether the job file, if it is there, has another name for the job."""
    missed: tuple[str, ...] = ()
    """Items whose files are missing, or not what they were."""


# ---- out


def export_job(
    known: KnownJob,
    file: Path,
    *,
    move: bool = False,
    overwrite: bool = False,
    sealing: Transform = unchanged,
    wait_seconds: float = 1.0,
    disk: Disk | None = None,
) -> Exported:
    """Write everything of the job to `file`; with `move`, it does not run here any more.

    BusyError if a runner is at work. Nothing of the job changes, but for the mark of a move. LaterError, and nothing
    is moved, if something is posted meanwhile: it would be left behind.
    """
    store, file, disk = known.store, Path(os.path.abspath(file)), disk or Disk()
    _check_target(file, overwrite=overwrite)
    _check_has_run(known)
    with _held(store, wait_seconds):
        if (mark := read_mark(store)) is not None:
            if not (move and mark.is_interrupted and mark.file == str(file)):
                raise moved_away(store, known.name, mark)
            discard(disk, mark.temporary)
        found = _load(store)
        contents = store.contents()
        packed = pack(store, contents)
        manifest = _manifest(known.name, store, contents, packed, move=move)
        with disk_errors(file):
            pieces = sealing(archive_pieces(manifest, packed.members))
            size = _write(disk, file, pieces, manifest, store, contents, overwrite=overwrite)
        if move:
            drop_claim(found.context.output if found is not None else "", store.folder)
        store.note(HistoryEvent(at=manifest.at, event="export", reason=f"{'moved' if move else 'copied'} to {file}"))
    return Exported(
        file=file,
        size=size,
        is_unfinished=found is not None,
        left_out=tuple(packed.left_out),
        apart=kept_apart(store, contents),
    )


def undo_move(known: KnownJob, *, wait_seconds: float = 1.0) -> None:
    """The job runs here again. UsageError if it was not moved away."""
    with _held(known.store, wait_seconds):
        if (mark := read_mark(known.store)) is None:
            raise UsageError(f"{known.name}: was not moved away; there is nothing to undo")
        if mark.is_interrupted:
            discard(Disk(), mark.temporary)
        known.store.forget(MOVED)


def _check_target(file: Path, *, overwrite: bool) -> None:
    if file.is_dir():
        raise UsageError(f"{file}: is a folder; give the name of a file")
    if os.path.lexists(file) and not overwrite:
        raise UsageError(f"{file}: already exists; give another name, or add --overwrite")
    if not file.parent.is_dir():
        raise UsageError(f"{file}: there is no folder {file.parent}; make it first")


def _check_has_run(known: KnownJob) -> None:
    with known.store.reader(accept_edits=True) as reader:
        if not reader.run_id:
            raise UsageError(f"{known.name}: has no run yet, so there is nothing to export")


@contextmanager
def _held(store: Store, wait_seconds: float) -> Iterator[None]:
    lease = store.lock(wait_seconds=wait_seconds)
    try:
        if lease.left_mark:
            # Our release forgets it, and the next launch would overlap what is left of the one that died.
            end_launch(lease.left_mark)
        yield
    finally:
        lease.release()


def _load(store: Store) -> Checkpoint | None:
    """The unfinished run. One whose summary is filed is finished first, as a launch does it."""
    loaded = store.load()
    if loaded.finished is None:
        return loaded.checkpoint
    store.finish(loaded.finished)
    return store.load().checkpoint


def _manifest(name: str, store: Store, contents: Contents, packed: Packed, *, move: bool) -> Manifest:
    checkpoint = contents.checkpoint
    home, base = places_of(store, contents)
    return Manifest(
        format=FORMAT,
        version=VERSION,
        job=name,
        run_id=checkpoint.run_id if checkpoint is not None else contents.ended[0].summary.run_id,
        seq=checkpoint.seq if checkpoint is not None else None,
        at=now_text(),
        host=socket.gethostname(),
        moved=move,
        home=home,
        base=base,
        outputs=packed.outputs,
        folders=packed.folders,
        members=[entry_of(member) for member in packed.members],
    )


def _write(
    disk: Disk,
    file: Path,
    pieces: Iterable[bytes],
    manifest: Manifest,
    store: Store,
    contents: Contents,
    *,
    overwrite: bool,
) -> int:
    """The file, whole and durable under a temporary name; then the mark, if the job is moved; then its name."""
    temporary, size = temporary_name(file.parent, file.name), 0
    try:
        fd = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for piece in pieces:
                disk.write(fd, piece)
                size += len(piece)
            disk.fsync(fd)
        finally:
            disk.close(fd)
        sync_folder(disk, file.parent)
        _check_target(file, overwrite=overwrite)
    except BaseException:
        discard(disk, temporary)
        raise
    if manifest.moved:
        # From here on the temporary file stays, whatever happens: it shows that the move was interrupted.
        mark_moved(
            store,
            Moved(at=manifest.at, host=manifest.host, file=str(file), temporary=temporary, run_id=manifest.run_id),
        )
        if _has_more_posted(store, contents):
            # Without the mark before the file: until then this is an interrupted move, which can be undone.
            store.forget(MOVED)
            discard(disk, temporary)
            raise LaterError(
                f"{manifest.job}: something was posted while it was exported, so it was not moved; run the same "
                f"command again"
            )
    disk.replace(temporary, str(file))
    sync_folder(disk, file.parent)
    return size


def _has_more_posted(store: Store, contents: Contents) -> bool:
    letters = {one.name for one in contents.letters}
    return any(one.name not in letters for one in store.inbox() if one.message is not None)


# ---- in


def import_job(
    file: Path,
    catalogue: Catalogue,
    *,
    here: Path,
    name: str = "",
    opening: Transform = unchanged,
    wait_seconds: float = 1.0,
) -> Imported:
    """Make the job in `file` a job of `catalogue`; its own folder, with its job file, is `here`.

    CheckpointError, with nothing imported, if the file is damaged; UsageError if it is no export, or if there is a
    job of that name. A job that was moved away from here may come back, and takes the place of what is left of it.
    """
    file = Path(os.path.abspath(file))
    with open_export(file, opening) as export:
        manifest = export.manifest
        # Everything, before anything is made: a file that is damaged at its end leaves nothing behind.
        export.verify()
    name = checked_name(name or manifest.job)
    if isinstance(catalogue, Jobs):
        catalogue.check_one_place(name)
    store = catalogue.store(name)
    with _held(store, wait_seconds):
        is_back = _is_back(store, name, manifest)
        with open_export(file, opening) as export, unpacked(export, store) as staged:
            arrival = Arrival(export.manifest, staged, str(file), store, name, here=here)
            if not is_back:
                arrival.check_free()
            contents = arrival.contents()
            arrival.place_files()
            store.adopt(contents, replace=is_back)
            if is_back:
                store.forget(MOVED)
            found = store.load().checkpoint
            with store.reader() as reader:
                last = max((event.at for event in reader.history()), default="")
            arrival.note_history(last)
        store.note(HistoryEvent(at=now_text(), event="import", reason=f"from {manifest.host}, {manifest.at}"))
        counts = found.counts if found is not None else contents.ended[0].summary.counts
        total = found.total if found is not None else contents.ended[0].summary.total
    return Imported(
        name=name,
        store=store,
        host=manifest.host,
        at=manifest.at,
        was_moved=manifest.moved,
        is_back=is_back,
        is_unfinished=found is not None,
        done=counts.get("done", 0),
        total=total,
        job_file=arrival.job.file if arrival.job is not None else None,
        has_other_name=_own_name(arrival.job) not in ("", name),
        missed=tuple(arrival.missed),
    )


def _own_name(kept: KeptJob | None) -> str:
    """The name that the job file gives the job here; empty if it cannot be read, or there is none."""
    if kept is None or kept.file is None:
        return ""
    try:
        layers = [read_job_file(kept.file), kept.layer]
        return job_name(layers, has_file=True, default_name=default_name(kept.file))
    except JobError:
        return ""


def _is_back(store: Store, name: str, manifest: Manifest) -> bool:
    """Whether the job comes back to where it was moved away from. UsageError if another one is in its place."""
    found, ended = _load(store), store.summaries()
    if found is None and not ended:
        return False
    mark = read_mark(store)
    there = f"in {store.where}" if store.where else "here"
    if mark is None:
        raise UsageError(
            f"{name}: a job of that name is {there} already; import this one under another name with --name, or remove "
            f"that one with: {command_for('clear', store, name)}"
        )
    runs = {manifest.run_id, *(_run_of(entry.name) for entry in manifest.members)}
    if mark.run_id not in runs:
        away = f"from {store.where}" if store.where else "from here"
        raise UsageError(f"{name}: the job that was moved away {away} is another one; import this one with --name")
    if found is not None and found.run_id == manifest.run_id and (manifest.seq or found.seq) < found.seq:
        raise UsageError(
            f"{name}: the export is older than what is {there} (commit {manifest.seq}, and there {found.seq}); import "
            f"a newer one, or continue with what is {there}: {command_for('export', store, name)} --undo"
        )
    return True


def _run_of(member: str) -> str:
    return member.removeprefix(RUNS).removesuffix(".json") if member.startswith(RUNS) else ""
