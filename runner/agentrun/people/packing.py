"""What an export of a job holds, as members of an archive: nothing is written here.

The job file, the agent and the items are not among them (`kept_apart`): they are the user's own, in a repository of
theirs. Items from standard input or Python are kept with the run, and so among them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from agentrun.checkpoint.checkpoint import Checkpoint, encode_checkpoint
from agentrun.checkpoint.record import PublishedFile, decode_record
from agentrun.checkpoint.summary import encode_summary, last_finished
from agentrun.errors import CheckpointError, JobError
from agentrun.job.file import read_job_file
from agentrun.job.kept import JOB_JSON, KeptJob, decode_job_json
from agentrun.job.prompt import prompt_file
from agentrun.outputs.files import files_folder
from agentrun.outputs.workspace import Workspace
from agentrun.outputs.written import WrittenList
from agentrun.people import archive
from agentrun.people.archive import Member, OutputEntry, is_member_name
from agentrun.store.contents import Contents, Pieces, file_names
from agentrun.store.port import Store, is_side
from agentrun.system.disk import PIECE_BYTES, open_to_read


@dataclass(slots=True)
class Packed:
    """The members in their order, and what the manifest says besides."""

    members: list[Member] = field(default_factory=list)
    outputs: list[OutputEntry] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What cannot be exported: links and special files in the items' scratch, published files that are gone."""


def pack(store: Store, contents: Contents) -> Packed:
    """The job with its lock held. Nothing follows a link."""
    packed, folder = Packed(), Workspace(store).folder
    add = packed.members.append
    for name, pieces in contents.sides.items():
        if is_side(name):
            add(Member(archive.SIDES + name, pieces))
    for run in contents.ended:
        run_id = run.summary.run_id
        add(Member(f"{archive.RUNS}{run_id}.json", partial(list, [encode_summary(run.summary)])))
        if run.lines is not None:
            add(Member(f"{archive.RUNS}{run_id}.jsonl", partial(_with_newlines, run.lines)))
    for name, text in file_names(contents.letters):
        add(Member(archive.INBOX + name, partial(list, [text])))
    with store.reader(accept_edits=True) as reader:
        history = b"".join(msgspec.json.encode(event) + b"\n" for event in reader.history())
    add(Member(archive.HISTORY, partial(list, [history])))
    _add_tree(packed, folder / "logs", archive.LOGS)
    _add_tree(packed, folder / "work", archive.WORK)
    _add_files(packed, store, contents)
    if contents.checkpoint is not None:
        add(Member(archive.JOURNAL, partial(_with_newlines, contents.lines)))
        add(Member(archive.STATE, partial(list, [encode_checkpoint(contents.checkpoint)])))
    return packed


def kept_apart(store: Store, contents: Contents) -> tuple[str, ...]:
    """What the job needs and the export does not have: the user's own files, in words."""
    kept = _kept_job(store, contents)
    layer, parts = kept.layer if kept is not None else None, []
    if kept is None or kept.file is not None:
        parts.append("the job file")
        try:
            layer = read_job_file(kept.file) if kept is not None and kept.file is not None else None
        except JobError:
            layer = None
    prompt = layer.get("prompt") if layer is not None else None
    if not isinstance(prompt, str):
        parts.append("the program" if layer is not None and layer.get("command") else "the agent")
    elif prompt_file(prompt):
        parts.append("the prompt")
    if not _has_items(contents):
        parts.append("the items")
    return tuple(parts)


def _has_items(contents: Contents) -> bool:
    """Whether the items came from outside, and are kept: those of the unfinished run, or of the last one."""
    last = last_finished([one.summary for one in contents.ended])
    spool = contents.checkpoint.context.spool if contents.checkpoint is not None else last.spool if last else None
    return spool is not None and spool in contents.sides


def places_of(store: Store, contents: Contents) -> tuple[str, str]:
    """The folder that holds the state folder, and the job's own; empty where that is not known."""
    if store.folder is None:
        return "", ""
    kept = _kept_job(store, contents)
    return str(_root(store.folder).parent), str(kept.base) if kept is not None else ""


def _kept_job(store: Store, contents: Contents) -> KeptJob | None:
    """How the job was started; None if that is not known."""
    pieces = contents.sides.get(JOB_JSON)
    if store.folder is None or pieces is None:
        return None
    try:
        return decode_job_json(b"".join(pieces()), root=_root(store.folder))
    except CheckpointError:
        return None


def _root(folder: Path) -> Path:
    return Path(os.path.abspath(folder.parent))


def _with_newlines(lines: Pieces) -> Iterator[bytes]:
    piece = bytearray()
    for line in lines():
        piece += line
        piece += b"\n"
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


# ---- the files of items


def _add_tree(packed: Packed, folder: Path, before: str) -> None:
    """The plain files below a folder, and those of its folders that are items' own."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        name = before + entry.name
        is_ours = is_member_name(name, outputs=0)
        if entry.is_dir(follow_symlinks=False) and (is_ours or name == f"{archive.LOGS}done"):
            if before.startswith(archive.WORK):
                packed.folders.append(name)
            _add_tree(packed, folder / entry.name, f"{name}/")
        elif is_ours and entry.is_file(follow_symlinks=False):
            packed.members.append(_file(name, folder / entry.name))
        elif before.startswith(archive.WORK):
            packed.left_out.append(f"{name} (not a plain file)")


def _file(name: str, path: Path) -> Member:
    found = path.lstat()
    return Member(name, partial(_read, path), found.st_mtime_ns, bool(found.st_mode & stat.S_IXUSR))


def _read(path: Path) -> Iterator[bytes]:
    with open_to_read(path) as file:
        yield from iter(partial(file.read, PIECE_BYTES), b"")


def _add_files(packed: Packed, store: Store, contents: Contents) -> None:
    """What items published: of the unfinished run, and of the finished one whose results the next run keeps."""
    outputs = _outputs(contents)
    packed.outputs = [OutputEntry(one, WrittenList(store, Path(one)).name) for one in outputs]
    for output, by_key in published(contents).items():
        for one in (file for files in by_key.values() for file in files):
            name, path = f"{archive.FILES}{outputs.index(output)}/{one.path}", Path(output).parent / one.path
            if not is_member_name(name, outputs=len(outputs)):
                continue
            if _is_plain(path):
                packed.members.append(_file(name, path))
            else:
                packed.left_out.append(f"{one.path} (not there any more)")


def _outputs(contents: Contents) -> list[str]:
    context = contents.checkpoint.context if contents.checkpoint is not None else None
    named = [context.output, context.files_from] if context is not None else []
    named += [one.summary.output.path for one in contents.ended if one.summary.output is not None]
    return list(dict.fromkeys(one for one in named if one))


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


Published = dict[str, list[PublishedFile]]
"""By an item's key, the files of its newest result."""


def published(contents: Contents) -> dict[str, Published]:
    """By output, what is published beside it: by the last run that was finished, and by the unfinished one since."""
    found: dict[str, Published] = {}
    last = last_finished([one.summary for one in contents.ended])
    for run in contents.ended:
        if run.summary is last and last.output is not None and run.lines is not None:
            found.setdefault(last.output.path, {}).update(_newest(run.lines()))
    if contents.checkpoint is not None:
        for key, files in _newest(contents.lines()).items():
            found.setdefault(_output_of(files[0], contents.checkpoint), {})[key] = files
    return found


def _output_of(file: PublishedFile, checkpoint: Checkpoint) -> str:
    """The output of the run, or the one that its files are still to be copied from."""
    context = checkpoint.context
    if not context.files_from:
        return context.output
    # As a launch tells them apart after one that died while it copied them.
    old, new = files_folder(Path(context.files_from)).name, files_folder(Path(context.output)).name
    is_copied = old != new and file.path.startswith(f"{new}/")
    return context.output if is_copied else context.files_from


def _newest(lines: Iterable[bytes]) -> Published:
    found: Published = {}
    for line in lines:
        # Decoding takes longest, and most jobs have no files.
        if not found and b'"files":' not in line:
            continue
        record = decode_record(line)
        if record.kind == "done" and record.files:
            found[record.key] = record.files
        elif record.kind in ("done", "failed", "skipped", "redo"):
            found.pop(record.key, None)
    return found
