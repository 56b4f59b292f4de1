"""Want of descriptors, processes or memory: the machine's fault, never an item's."""

from __future__ import annotations

import errno

SHORTAGE = "agentrun-shortage"
"""The code of a failure that is nobody's fault: what the attempt needed could not be had."""
_FILES = "too many open files; raise the limit (ulimit -n), or lower the concurrency"
_PROCESSES = (
    "no more processes or threads can be started; raise the limit (ulimit -u, or the container's), "
    "or lower the concurrency"
)
_MEMORY = "the machine is out of memory; free some, or lower the concurrency"
_LACKING = {
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EAGAIN: _PROCESSES,
    errno.ENOMEM: _MEMORY,
    errno.ENOBUFS: _MEMORY,
}
_DEEPEST_CAUSE = 10


def lacking(error: BaseException) -> str | None:
    """What could not be had when a process, a thread or a file was asked for, and what to do; None if that is not
    why."""
    if isinstance(error, OSError):
        return _LACKING.get(error.errno or 0)
    # Raised by `threading`, which has no class for it.
    return _PROCESSES if type(error) is RuntimeError and "start new thread" in str(error) else None


def lacking_in_process(error: BaseException) -> str | None:
    """The same for an exception of an agent, or one that it was raised from, as far as it cannot mean anything else.

    EAGAIN may also be a socket's, and a lack of memory the item's own.
    """
    cause: BaseException | None = error
    for _ in range(_DEEPEST_CAUSE):
        if cause is None:
            break
        is_plain = not isinstance(cause, OSError) or cause.errno in (errno.EMFILE, errno.ENFILE)
        if is_plain and (what := lacking(cause)) is not None:
            return what
        cause = cause.__cause__
    return None
