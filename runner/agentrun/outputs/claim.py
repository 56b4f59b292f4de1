"""A run's claim on its output: two jobs never write the same results, partial results or items' files.

A hidden file beside the output, `.<stem>.claim`, names the job, its state folder and the run. It has the output's stem
because that is what is shared: `a.jsonl` and `a.csv` have the same `a.files`. The launch holds an flock on it; the file
stays until the run is complete, so that an unfinished run keeps its claim between launches. In force is a claim whose
launch is alive, or whose run is still unfinished in its state folder; any other is taken over.

The claim is checked at the start and, with the output itself, again before the results are renamed into their place.
It need not survive a power cut: without it that second look is what keeps somebody else's results.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from pathlib import Path
from shlex import quote

import msgspec

from agentrun.errors import AgentrunError, JobError, LaterError
from agentrun.store.jobs import Jobs
from agentrun.store.port import Store
from agentrun.system.disk import Held, disk_error, first_moved, open_file

_BEGINNING = b'{"agentrun":'
WAIT_SECONDS = 5.0
_MOST_BYTES = 64 * 1024
_NO_FLOCK = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_Identity = tuple[int, int, int, int]


class OutputTakenError(Exception):
    """Somebody else has written the output, or is about to: it is not replaced."""


class _Note(msgspec.Struct):
    """What a claim says. Anyone who can write beside the output may have written it."""

    agentrun: int
    job: str
    state: str
    """The state folder as seen from the claim's, so that both can be moved; empty if there is none."""
    run_id: str
    output: str
    """The name of the output."""


def claim_path(output: Path) -> Path:
    """The claim of an output, which is also that of its partial results and its items' files."""
    return output.with_name(f".{output.stem.removesuffix('.partial')}.claim")


class Claim:
    """One launch's claim. `close` lets go of it, `release` removes it."""

    def __init__(self, job: str, state: Path | None) -> None:
        self._job = job
        self._state = state
        self._held: Held | None = None
        self._text = b""
        self._output = Path()
        self._run_id = ""
        self._found: _Identity | None = None
        """The output when the launch began."""
        self._is_folder = False

    def take(self, output: Path, run_id: str, *, is_folder: bool = False) -> None:
        """Claim the output for this run. JobError, which names the other job, if somebody else has it; LaterError if
        that is another runner of the same job.

        Of a folder with a file an item only the claim is checked later: whose each file is, the folder knows.
        """
        self.close()
        self._output, self._run_id, self._is_folder = output, run_id, is_folder
        self._found = _identity(output)
        try:
            self._claim()
        except OSError as error:
            raise disk_error(claim_path(output), error) from error

    def look(self, output: Path) -> None:
        """JobError if `take` would be refused, as far as that can be seen without taking it."""
        path = claim_path(output)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if os.fstat(fd).st_uid == os.geteuid() and (note := _read(fd)) is not None:
                self._refuse_others(note, output, is_running=False)
        finally:
            os.close(fd)

    def check(self) -> None:
        """Right before something is put in place: OutputTakenError unless the output is still ours to write."""
        held = self._held
        if held is None or first_moved(held) is not None or os.pread(held.fd, _MOST_BYTES, 0) != self._text:
            # Removed by hand, or its descriptor closed by the agent; or another job has it by now.
            self.close()
            try:
                self._claim()
            except (JobError, LaterError) as error:
                raise OutputTakenError(error.message) from None
            except OSError as error:
                raise disk_error(claim_path(self._output), error) from error
        if not self._is_folder and _identity(self._output) != self._found:
            raise OutputTakenError(f"{self._output}: was written by another program while this run was at work")

    def release(self) -> None:
        """The run is complete: the output is anyone's again."""
        if self._held is not None and first_moved(self._held) is None:
            _unlink(self._held.path)
        self.close()

    def close(self) -> None:
        """The launch is over. The claim of an unfinished run stays; without a state folder nobody could look it up."""
        if self._held is not None:
            if self._state is None and first_moved(self._held) is None:
                _unlink(self._held.path)
            self._held.close()
            self._held = None

    def _claim(self) -> None:
        path = claim_path(self._output)
        deadline = time.monotonic() + WAIT_SECONDS
        while self._held is None:
            held = Held(_open(path, _seen_from(path, self._state)), str(path))
            try:
                is_ours = self._lock(held)
                if is_ours and first_moved(held) is None:
                    self._text = msgspec.json.encode(
                        _Note(1, self._job, _seen_from(path, self._state), self._run_id, self._output.name)
                    )
                    os.ftruncate(held.fd, 0)
                    os.pwrite(held.fd, self._text, 0)
                    self._held = held
            finally:
                if self._held is None:
                    held.close()
            if self._held is None:
                # Its owner is about to sign or remove it.
                if time.monotonic() > deadline:
                    raise JobError(f"{self._output}: another program holds {path}; choose another output with -o")
                time.sleep(0.01)

    def _lock(self, held: Held) -> bool:
        """True once we have it; False to look again."""
        is_running = False
        try:
            fcntl.flock(held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_running = True
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
        note = _read(held.fd)
        if note is not None:
            self._refuse_others(note, self._output, is_running=is_running)
        elif not _is_blank(held.fd):
            raise JobError(f"{held.path}: is in the way, and not agentrun's; move it away")
        return not is_running

    def _refuse_others(self, note: _Note, output: Path, *, is_running: bool) -> None:
        path = claim_path(output)
        if note.state and note.state == _seen_from(path, self._state):
            if is_running:
                raise LaterError(
                    f"{self._job}: another runner has this job, although its lock was removed (it holds {path}); "
                    f"wait until it has stopped"
                )
            return
        if not is_running and not _is_unfinished(note, path.parent):
            return
        job, name = _clean(note.job), _clean(note.output)
        state = _clean(_state_of(note, path.parent)) if note.state else ""
        where = f" (its state is in {state})" if state else ""
        shared = "" if name == output.name else f" by its output {name}, which has the same folder for files,"
        if is_running:
            what, then = "is running now", "wait until that is finished"
        else:
            what = "has an unfinished run"
            means = f"{quote(job)} --state-dir {quote(os.path.dirname(state))}" if state else quote(job)
            then = f"finish that first with: agentrun resume {means}, or remove it with: agentrun clear {means}"
        who = f"the job {job}{where}, which {what}"
        raise JobError(f"{output}: is taken{shared} by {who}; choose another output with -o, or {then}")


def drop_claim(output: str, state: Path | None) -> None:
    """Remove the claim that a run of the job with this state has on `output`, if it has one."""
    if not output or state is None:
        return
    path = claim_path(Path(output))
    try:
        held = Held(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), str(path))
    except OSError:
        return
    note = _read(held.fd)
    if note is not None and note.state == _seen_from(path, state) and first_moved(held) is None:
        _unlink(held.path)
    held.close()


def drop_claims(store: Store) -> None:
    """Before a job's state is cleared: its unfinished run no longer has a claim."""
    try:
        with store.reader(accept_edits=True) as reader:
            output = reader.checkpoint.context.output if reader.checkpoint is not None else ""
    except AgentrunError:
        return
    drop_claim(output, store.folder)


def _open(path: Path, state: str) -> int:
    """The claim's file, made if need be; JobError unless it is a file of our own, or a claim for the same `state`: that
    may be another user's, whom we trust."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        try:
            return open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            pass
        try:
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode):
                raise JobError(f"{path}: is in the way, and not agentrun's; move it away")
            fd = os.open(path, flags)
        except FileNotFoundError:
            continue
        except PermissionError:
            raise _others(path, found.st_uid) from None
        if found.st_uid != os.geteuid() and not (state and (note := _read(fd)) is not None and note.state == state):
            os.close(fd)
            raise _others(path, found.st_uid)
        return fd


def _others(path: Path, uid: int) -> JobError:
    return JobError(
        f"{path}: another user (uid {uid}) has claimed this output; "
        f"choose another output with -o, or remove that file if no run of theirs needs it"
    )


def _read(fd: int) -> _Note | None:
    try:
        return msgspec.json.decode(os.pread(fd, _MOST_BYTES, 0), type=_Note)
    except (OSError, ValueError, RecursionError):
        return None


def _is_blank(fd: int) -> bool:
    """Whether it may be a claim of ours that was cut off by a crash."""
    text = os.pread(fd, _MOST_BYTES, 0).rstrip(b"\0")
    return text.startswith(_BEGINNING) or _BEGINNING.startswith(text)


def _is_unfinished(note: _Note, folder: Path) -> bool:
    """Whether the run still is the unfinished one of its job. One that cannot be read may be."""
    state = _state_of(note, folder)
    if not note.state or not os.path.isdir(state):
        return False
    try:
        with Jobs(Path(state).parent).store(os.path.basename(state)).reader() as reader:
            found = reader.checkpoint
            if found is None or found.run_id != note.run_id:
                return False
            # A launch that went on with another output, and died before it removed this claim.
            return Path(found.context.output).name in ("", note.output)
    except (AgentrunError, OSError):
        return True


def _state_of(note: _Note, folder: Path) -> str:
    return os.path.normpath(os.path.join(os.path.realpath(folder), note.state.replace("\0", "")))


def _seen_from(path: Path, state: Path | None) -> str:
    return os.path.relpath(os.path.realpath(state), os.path.realpath(path.parent)) if state is not None else ""


def _identity(output: Path) -> _Identity | None:
    try:
        found = os.lstat(output)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _clean(text: str) -> str:
    """Data that goes into a message: on one line, and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text[:300])


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # nobody needs it: its run is no longer unfinished
