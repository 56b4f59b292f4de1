"""The errors of agentrun, as one tree.

    AgentrunError
    ├── UsageError          2   the command line is wrong
    │   ├── JobError            a job file or its values
    │   ├── ItemsError          where the items come from
    │   ├── AgentError          the agent cannot be loaded; carries the user's traceback
    │   └── PlanError           the plan needs a person's decision: another job, too many items gone
    ├── CheckpointError    65   damaged, edited, or from a newer version
    ├── DiskError          74   the disk failed or is full
    ├── LaterError         75   try again later
    │   ├── BusyError           another runner has the job
    │   └── SourceChangedError  an item changed while the launch was reading
    └── RunError                a run did not complete (`Summary.check`); the summary's exit code

Exceptions that an agent raises to say how its item ends are a tree of their own: `Retry`, `Fail`, `Skip`, `Stop`.
`Parked`, which `ctx.ask` raises, is a BaseException.
"""

from __future__ import annotations

from typing import Any


class AgentrunError(Exception):
    """Base class of all errors. `str(error)` says where, what, and what to do."""

    exit_code = 1

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.__dict__.update(details)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message,), self.__dict__)


class UsageError(AgentrunError):
    exit_code = 2


class JobError(UsageError):
    pass


class ItemsError(UsageError):
    pass


class AgentError(UsageError):
    """`traceback` holds the frames of the user's code, or is empty."""

    traceback: str = ""


class PlanError(UsageError):
    pass


class CheckpointError(AgentrunError):
    exit_code = 65


class DiskError(AgentrunError):
    exit_code = 74


class LaterError(AgentrunError):
    exit_code = 75


class BusyError(LaterError):
    pass


class SourceChangedError(LaterError):
    pass


class RunError(AgentrunError):
    """`summary` is the run's summary."""


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
