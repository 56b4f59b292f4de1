"""The default store: a folder with an atomically replaced state.json and a journal.

A commit costs one file fsync and one folder fsync; the journal is written when the redo part (`outputs`) passes its
limit. Crash windows and invariants: runner/DESIGN.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from agentrun.checkpoint.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from agentrun.checkpoint.message import is_run_id
from agentrun.checkpoint.record import RecordError, check_record, decode_head, decode_record, encode_record
from agentrun.checkpoint.summary import checkpoint_from
from agentrun.errors import CheckpointError, DiskError
from agentrun.store.folder.inbox import Inbox
from agentrun.store.folder.journal import PIECE_BYTES, JournalLines
from agentrun.store.folder.lock import Lock
from agentrun.store.folder.runs import Runs, copy_lines, filed_lines, names_in
from agentrun.store.folder.state import StateFile, Written
from agentrun.store.port import Entry, Loaded, Posted, Sync
from agentrun.system.disk import Disk, check_folder, discard, disk_error, is_temporary, replace_file, secure_folder

REDO_LIMIT_BYTES = 16 * 1024
LOG_LIMIT_BYTES = 8 * 1024 * 1024
_JOURNAL = re.compile(r"journal-(\d+)\.jsonl")


class FolderStore:
    """`folder` is made by `lock`; reading needs neither."""

    def __init__(self, folder: Path, *, disk: Disk | None = None, redo_limit_bytes: int = REDO_LIMIT_BYTES) -> None:
        self._folder = folder
        self._disk = disk or Disk()
        self._redo_limit_bytes = redo_limit_bytes
        self._lock = Lock(folder / "lock", self._disk)
        self._inbox = Inbox(folder, self._disk)
        self._runs = Runs(folder / "runs", self._disk)
        self._state = StateFile(folder, self._disk)
        self._state_path = self._state.path
        self._seq: int | None = None
        self._outputs: list[bytes] = []
        self._outputs_bytes = 0
        self._journal_name = ""
        self._journal_length = 0
        self._journal_fd: int | None = None
        self._journal_is_new = False
        self._folder_fd: int | None = None
        self._log_fd: int | None = None
        self._broken: DiskError | None = None

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def lock_fd(self) -> int | None:
        return self._lock.fd

    @property
    def mark(self) -> str:
        return self._lock.mark

    @property
    def left_mark(self) -> str:
        return self._lock.left_mark

    # ---- the lock

    def lock(self, *, wait_seconds: float = 5.0) -> None:
        root = self._folder.parent
        try:
            secure_folder(self._disk, root)
            if not (root / ".gitignore").exists():
                replace_file(self._disk, root / ".gitignore", [b"*\n"])
            secure_folder(self._disk, self._folder)
            for name in ("runs", "logs", "inbox", "work"):
                if os.path.lexists(self._folder / name):
                    check_folder(self._folder / name)
            self._lock.acquire(wait_seconds=wait_seconds)
            self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise disk_error(error.filename or self._folder, error) from error

    def release(self) -> None:
        for fd in (self._journal_fd, self._folder_fd, self._log_fd):
            if fd is not None:
                os.close(fd)
        self._journal_fd = self._folder_fd = self._log_fd = None
        self._state.forget()
        self._lock.release()

    # ---- reading

    def load(self, *, accept_edits: bool = False) -> Loaded:
        """Read and check the state, changing nothing on disk."""
        try:
            text = _read_file(self._state_path)
        except FileNotFoundError:
            self._begin_fresh()
            return Loaded()
        except OSError as error:
            raise disk_error(self._state_path, error) from error
        checkpoint = decode_checkpoint(text, where=str(self._state_path), accept_edits=accept_edits)
        self._seq = checkpoint.seq
        self._outputs = checkpoint.outputs
        self._outputs_bytes = sum(len(line) + 1 for line in self._outputs)
        self._journal_name, self._journal_length = checkpoint.journal_name, checkpoint.journal_length
        self._state.adopt()
        summary = self._runs.summary(checkpoint.run_id)
        if summary is not None:
            self._check_alone()
            return Loaded(checkpoint=checkpoint, finished=summary)
        self._check_tail()
        return Loaded(checkpoint=checkpoint)

    def _begin_fresh(self) -> None:
        # Never the number of the run before: its state.json, put back, must not fit the journal of another.
        names = [*names_in(self._folder), *(str(ended.get("journal")) for ended in self.summaries()[:1])]
        numbers = [int(found[1]) for name in names if (found := _JOURNAL.fullmatch(name))]
        self._state.forget()
        self._seq = 0
        self._outputs, self._outputs_bytes = [], 0
        self._journal_name, self._journal_length = f"journal-{max(numbers, default=0) + 1}.jsonl", 0

    def _check_alone(self) -> None:
        """The state of a finished run, and the journal of another: an old state.json was put over a newer run's."""
        others = [name for name in names_in(self._folder) if _JOURNAL.fullmatch(name) and name != self._journal_name]
        if others:
            raise CheckpointError(
                f"{self._state_path}: is of a run that has finished, and {others[0]} is of another; "
                f"put the newest state.json back, or begin anew with --fresh (the old files are kept)"
            )

    def _check_tail(self) -> None:
        """A valid record past the journal's length and beyond the next seq: an older state.json was put back."""
        assert self._seq is not None
        with self._journal_bytes() as lines:
            for _, line in lines.after(self._journal_length):
                if check_record(line) and (seq := orjson.loads(line)["seq"]) > self._seq + 1:
                    raise CheckpointError(
                        f"{self._state_path}: is older than {self._journal_name} (seq {self._seq}, and the journal "
                        f"goes on to {seq}); put the newest state.json back, or begin anew with --fresh"
                    )

    def scan(self, *, with_outputs: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
        assert self._seq is not None
        decode = decode_record if with_outputs else decode_head
        with self._journal_bytes() as lines:
            for ref, line in lines.until(self._journal_length):
                yield ref, self._decode(ref, line, decode)
        for ref, line in self._outputs_with_refs():
            yield ref, self._decode(ref, line, decode)

    def _decode(
        self, ref: int, line: bytes, decode: Callable[[bytes], dict[str, Any]] = decode_record
    ) -> dict[str, Any]:
        try:
            record = decode(line)
        except (RecordError, orjson.JSONDecodeError) as error:
            raise self._damaged(ref, str(error)) from None
        if record["seq"] > (self._seq or 0):
            raise self._damaged(ref, f"its seq {record['seq']} is beyond the checkpoint's {self._seq}")
        return record

    def _damaged(self, ref: int, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._folder / self._journal_name}: the record at byte {ref} is damaged ({what}); "
            f"restore the folder from a backup, or begin anew with --fresh (the old files are kept)"
        )

    def read(self, refs: Iterable[int]) -> Iterator[dict[str, Any]]:
        outputs, length = dict(self._outputs_with_refs()), self._journal_length
        with self._journal_bytes() as journal:
            for ref in refs:
                yield self._decode(ref, journal.at(ref) if ref < length else outputs[ref])

    def lines(self, refs: Iterable[int]) -> Iterator[bytes]:
        outputs, length = dict(self._outputs_with_refs()), self._journal_length
        with self._journal_bytes() as journal:
            at = journal.at
            for ref in refs:
                line = at(ref) if ref < length else outputs[ref]
                if not check_record(line):
                    raise self._damaged(ref, "the checksum does not match")
                yield line

    def _outputs_with_refs(self) -> Iterator[tuple[int, bytes]]:
        ref = self._journal_length
        for line in self._outputs:
            yield ref, line
            ref += len(line) + 1

    def _journal_bytes(self) -> JournalLines:
        return JournalLines(self._folder / self._journal_name)

    def size(self, refs: Iterable[int] | None = None) -> int:
        if refs is None:
            return self._journal_length + self._outputs_bytes
        with self._journal_bytes() as lines:
            return sum(len(lines.at(ref)) + 1 for ref in refs if ref < self._journal_length)

    # ---- committing

    def commit(self, checkpoint: Checkpoint, entries: Sequence[Entry] = (), *, flush: bool = False) -> list[int]:
        return self.begin(checkpoint, entries, flush=flush)()

    def begin(self, checkpoint: Checkpoint, entries: Sequence[Entry] = (), *, flush: bool = False) -> Sync:
        """All but the fsyncs and the rename: what goes into the system's memory is quick, and nobody's state yet."""
        self._refuse_unless_next(seq := checkpoint.seq)
        lines = [encode_record(seq, entry.fields, entry.output) for entry in entries]
        refs = []
        ref = self._journal_length + self._outputs_bytes
        for line in lines:
            refs.append(ref)
            ref += len(line) + 1
        outputs = [*self._outputs, *lines]
        length = self._journal_length
        is_flushed = bool(outputs) and (flush or ref - length > self._redo_limit_bytes)
        try:
            if is_flushed:
                text = b"\n".join(outputs) + b"\n"
                self._write_journal(text, length)
                outputs, length = [], length + len(text)
            written = self._write_state(checkpoint, outputs, self._journal_name, length)
        except OSError as error:
            raise self._break(error) from error

        def sync() -> list[int]:
            try:
                self._replace_state(written, seq, after_journal=is_flushed)
            except OSError as error:
                raise self._break(error) from error
            self._outputs, self._outputs_bytes = outputs, ref - length
            self._journal_length = length
            return refs

        return sync

    def _refuse_unless_next(self, seq: int) -> None:
        if self._broken is not None:
            raise DiskError(f"{self._folder}: an earlier write failed ({self._broken.message})")
        if self._seq is None or seq != self._seq + 1:
            raise CheckpointError(
                f"{self._state_path}: seq {seq} does not follow the stored {self._seq}; another program wrote here"
            )
        if not self._state.is_as_left():
            raise CheckpointError(f"{self._state_path}: was replaced by another program while this one was running")

    def _break(self, error: OSError, where: Path | None = None) -> DiskError:
        # After a failed fsync the kernel may call the lost pages clean: the next fsync would say all is well.
        self._broken = disk_error(where or self._folder, error)
        return self._broken

    def _write_journal(self, text: bytes, offset: int) -> None:
        if self._journal_fd is None:
            self._journal_fd = self._disk.open(str(self._folder / self._journal_name), os.O_WRONLY | os.O_CREAT)
            self._journal_is_new = True
        self._disk.write(self._journal_fd, text, offset)

    def _sync_journal(self) -> None:
        """Before the state.json that counts on it has its name; the journal's own entry too."""
        assert self._journal_fd is not None
        if self._journal_is_new:
            self._sync_folder()
            self._journal_is_new = False
        self._disk.fsync(self._journal_fd)

    def _write_state(self, checkpoint: Checkpoint, outputs: list[bytes], name: str, length: int) -> Written:
        """The next state.json, under a name that nobody reads."""
        checkpoint.outputs = outputs
        checkpoint.journal_name, checkpoint.journal_length = name, length
        return self._state.write(encode_checkpoint(checkpoint))

    def _replace_state(self, new: Written, seq: int, *, after_journal: bool = False) -> None:
        assert self._folder_fd is not None
        if after_journal:
            try:
                self._sync_journal()
            except BaseException:
                self._state.drop(new)
                raise
        self._state.replace(new, self._folder_fd)
        self._seq = seq

    def _sync_folder(self) -> None:
        assert self._folder_fd is not None
        self._disk.fsync(self._folder_fd)

    def compact(self, checkpoint: Checkpoint, refs: Sequence[int]) -> list[int]:
        self._refuse_unless_next(checkpoint.seq)
        number = int(_JOURNAL.fullmatch(self._journal_name)[1]) + 1  # type: ignore[index]
        name = f"journal-{number}.jsonl"
        new_refs: list[int] = []
        recent = dict(self._outputs_with_refs())
        outputs: list[bytes] = []
        length = outputs_bytes = 0
        piece = bytearray()
        try:
            fd = self._disk.open(str(self._folder / name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                with self._journal_bytes() as lines:
                    for ref in refs:
                        if ref >= self._journal_length:
                            # They come last, and follow the journal as before.
                            new_refs.append(length + outputs_bytes)
                            outputs.append(recent[ref])
                            outputs_bytes += len(recent[ref]) + 1
                            continue
                        line = lines.at(ref) + b"\n"
                        piece += line
                        new_refs.append(length)
                        length += len(line)
                        if len(piece) >= PIECE_BYTES:
                            self._disk.write(fd, bytes(piece))
                            piece.clear()
                self._disk.write(fd, bytes(piece))
                self._disk.fsync(fd)
            finally:
                self._disk.close(fd)
            self._sync_folder()
            self._replace_state(self._write_state(checkpoint, outputs, name, length), checkpoint.seq)
            self._outputs, self._outputs_bytes = outputs, outputs_bytes
            old, self._journal_name, self._journal_length = self._journal_name, name, length
            if self._journal_fd is not None:
                os.close(self._journal_fd)
                self._journal_fd = None
            discard(self._disk, str(self._folder / old))
        except OSError as error:
            raise self._break(error) from error
        return new_refs

    # ---- the end of a run

    def finish(self, summary: Mapping[str, Any]) -> None:
        # Nothing past the length is data in the journal that is kept beside it, either.
        filed = {**summary, "journal": self._journal_name, "journal_length": self._journal_length}
        # Before the folder is synced for the last time: nobody comes by to prune what a finished run has left.
        self._state.forget()
        try:
            # From here on the run is finished, whatever happens: a state.json with a summary is not resumed.
            self._runs.file(filed, self._folder / self._journal_name if self._journal_name else None)
            # Also the entry of runs/ itself, and the journal's, which is gone from here.
            self._sync_folder()
            if self._state_path.exists():
                self._disk.unlink(str(self._state_path))
            self._sync_folder()
        except OSError as error:
            raise self._break(error) from error
        if self._journal_fd is not None:
            os.close(self._journal_fd)
            self._journal_fd = None
        self._begin_fresh()

    def reopen(self, run_id: str) -> Checkpoint | None:
        summary = self._runs.summary(run_id) if is_run_id(run_id) else None
        filed = self._runs.journal(run_id)
        if summary is None or not (filed.exists() or summary.get("journal_length") == 0):
            return None
        if self._state_path.exists():
            raise CheckpointError(f"{self._state_path}: is of an unfinished run; finish that one first")
        self._begin_fresh()
        try:
            # No state.json names it before the first commit does: a crash leaves a stray file, which is pruned.
            lines = filed_lines(filed, int(summary.get("journal_length", 0)))
            length, seq = copy_lines(self._disk, lines, self._folder / self._journal_name)
            self._sync_folder()
        except OSError as error:
            raise self._break(error) from error
        self._seq, self._journal_length = seq, length
        return checkpoint_from({**summary, "run_id": run_id}, seq=seq)

    def set_aside(self) -> str:
        """Move a state that cannot be read, and its journals, into runs/ under a name of its own."""
        from agentrun.values.clock import new_run_id

        name = f"{new_run_id()}-set-aside"
        try:
            journals = [found for found in names_in(self._folder) if _JOURNAL.fullmatch(found)]
            files = {self._folder / journal: f"{name}.{journal}" for journal in journals}
            if self._state_path.exists():
                files[self._state_path] = f"{name}.state"
            self._runs.put_aside(files)
            self._sync_folder()
        except OSError as error:
            raise self._break(error) from error
        self._begin_fresh()
        return name

    def summaries(self) -> list[dict[str, Any]]:
        return self._runs.summaries()

    def prune(self, *, keep: Collection[str] = ()) -> None:
        self._runs.prune()
        for name in names_in(self._folder):
            is_old_journal = _JOURNAL.fullmatch(name) and name != self._journal_name
            is_old_spool = name.endswith(".spool") and name not in keep
            if is_old_journal or is_old_spool or is_temporary(name):
                discard(self._disk, str(self._folder / name))
        self._inbox.prune()

    # ---- the inbox

    def post(self, messages: Sequence[Mapping[str, Any]]) -> None:
        self._inbox.post(messages)

    def inbox(self) -> list[Posted]:
        return self._inbox.messages()

    def drop(self, names: Iterable[str]) -> None:
        self._inbox.drop(names)

    # ---- beside the run

    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        try:
            replace_file(self._disk, self._folder / name, chunks)
        except OSError as error:
            raise self._break(error, self._folder / name) from error

    def note(self, event: Mapping[str, Any]) -> None:
        try:
            if self._log_fd is None:
                self._log_fd = self._disk.open(str(self._folder / "log.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                self._log_bytes = os.fstat(self._log_fd).st_size
            line = orjson.dumps(event) + b"\n"
            os.write(self._log_fd, line)
            self._log_bytes += len(line)
            if self._log_bytes > LOG_LIMIT_BYTES:
                os.close(self._log_fd)
                self._log_fd = None
                os.replace(self._folder / "log.jsonl", self._folder / "log.1.jsonl")
        except OSError:
            # It tells what happened; the run does not depend on it.
            self._log_fd = None

    def clear(self) -> None:
        import shutil

        self._state.forget()
        for name in names_in(self._folder):
            path = self._folder / name
            if name == "lock":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _read_file(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
        return file.read()
