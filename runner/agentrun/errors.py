"""The errors of agentrun, as one tree.

    AgentrunError
    ├── UsageError          2   the command line is wrong
    │   ├── JobError            a job file or its values
    │   ├── ScriptError         a program was given where a job was expected
    │   ├── ItemsError          where the items come from
    │   ├── AgentError          the agent cannot be loaded; carries the user's traceback
    │   ├── PlanError           the plan needs a person's decision: another job, too many items gone
    │   └── TrustError          a folder that others could tamper with
    ├── CheckpointError    65   damaged, edited, or from a newer version
    ├── DiskError          74   the disk failed or is full
    │   └── StoreError          a store elsewhere does not answer
    │       └── BrokenStoreError    it failed for good: its disk, or its file is gone
    ├── LaterError         75   try again later
    │   ├── BusyError           another runner has the job
    │   ├── LostError           another runner took the job from this one
    │   └── SourceChangedError  an item changed while the launch was reading
    └── RunError                a run did not complete (`Summary.check`); the summary's exit code

Exceptions that an agent raises to say how its item ends are a tree of their own: `Retry`, `Fail`, `Skip`, `Stop`.
`Parked`, which `ctx.ask` raises, is a BaseException. `StaleResults` is a warning.
"""

from __future__ import annotations

from typing import Any, Protocol


class AgentrunError(Exception):
    """Base class of all errors. `str(error)` says where, what, and what to do."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.resume_with = ""
        """The command that resumes the run, if it can be resumed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message,), self.__dict__)


class UsageError(AgentrunError):
    """The command line is wrong; nothing was run."""

    exit_code = 2


class JobError(UsageError):
    """A job file or one of its values is wrong.

    `where` is the file, or what else holds the value; `key` the value's dotted name, and `line` its line, if known.
    """

    def __init__(self, message: str, *, where: str = "", key: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.where, self.key, self.line = where, key, line


class ScriptError(UsageError):
    """A program, `ref`, was given where a job was expected; `argv` runs it."""

    def __init__(self, message: str, *, ref: str = "", argv: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ref, self.argv = ref, argv


class ItemsError(UsageError):
    """The items cannot be read. `position` is the index of the faulty item, where it is known."""

    def __init__(self, message: str, *, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class AgentError(UsageError):
    """The agent cannot be loaded. `traceback` holds the user's own frames, or is empty."""

    def __init__(self, message: str, *, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class PlanError(UsageError):
    """The plan needs a person's word."""


class TrustError(UsageError):
    """A folder that others could tamper with. `setting` allows it: `NAME=value` in the environment."""

    def __init__(self, message: str, *, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


class CheckpointError(AgentrunError):
    """The checkpoint is damaged, edited, or from a newer version."""

    exit_code = 65


class DiskError(AgentrunError):
    """The disk failed or is full. `errno` is the system's number for it, if known."""

    exit_code = 74

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class StoreError(DiskError):
    """A store that is not on this machine's disk does not answer; what it was told last may be there or not."""


class BrokenStoreError(StoreError):
    """A write failed for good, as by an fsync: neither asking the store nor trying again tells what is durable."""


class LaterError(AgentrunError):
    """Try again later."""

    exit_code = 75


class BusyError(LaterError):
    """Another runner has the job; `holder` says who, such as `pid 4312 on larch, since 22:03`."""

    def __init__(self, message: str, *, holder: str = "") -> None:
        super().__init__(message)
        self.holder = holder


class LostError(LaterError):
    """Another runner has taken the job from this one; nothing that came after that was kept."""


class SourceChangedError(LaterError):
    """An item changed while the launch was reading."""


class HowItEnded(Protocol):
    """What RunError needs of a summary (`agentrun.Summary`)."""

    @property
    def exit_code(self) -> int: ...


class StaleResults(UserWarning):
    """Results of an older version of the agent were kept; `rerun="old-agent"` runs them again."""


class RunError(AgentrunError):
    """A run did not complete. `summary` says how it ended, and has the exit code."""

    def __init__(self, message: str, *, summary: HowItEnded | None = None) -> None:
        super().__init__(message)
        self.summary = summary
        if summary is not None:
            self.exit_code = summary.exit_code


class AgentSignal(Exception):
    """Raised by an agent to say how its item ends."""


class Retry(AgentSignal):
    """Retry this item, after `after` seconds if given."""

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Fail(AgentSignal):
    """This item fails for good; it is not retried in this launch."""


class Skip(AgentSignal):
    """This item is settled on purpose, without an output."""


class Stop(AgentSignal):
    """Stop the run: this would fail every item. With `resume_at` (a time), the cause is temporary."""

    def __init__(self, reason: str = "", *, resume_at: Any = None) -> None:
        super().__init__(reason)
        self.resume_at = resume_at


class Parked(BaseException):
    """Raised by `ctx.ask` if there is no answer yet. A BaseException, so that `except Exception` does not catch it."""
