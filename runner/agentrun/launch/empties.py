"""Empty outputs in a row: nearly always an agent that forgot to return its result."""

from __future__ import annotations

from agentrun.events import Warned, Watcher
from agentrun.job.job import Job

WARNED_AFTER = 3


class EmptyOutputs:
    """Warns once a launch, after the first few in a row, in order of finishing."""

    def __init__(self, job: Job, watcher: Watcher) -> None:
        self._job = job
        self._watcher = watcher
        self._in_a_row = 0
        self._is_over = job.empty != "warn"

    def note(self, key: str, *, is_empty: bool) -> None:
        """An item is done, and that is on disk."""
        self._in_a_row = self._in_a_row + 1 if is_empty else 0
        if self._in_a_row == WARNED_AFTER and not self._is_over:
            self._is_over = True
            self._watcher(Warned(self._warning(key)))

    def _warning(self, key: str) -> str:
        if self._job.command is not None:
            check = "check that the command prints its result on standard output"
        elif self._job.prompt is not None:
            check = "check the prompt: the model answered with nothing"
        else:
            check = "check that the agent returns its result"
        otherwise = 'empty = "fail" under [run] retries them and then fails them, "allow" accepts them'
        return f"{WARNED_AFTER} outputs in a row are empty, the last of {key}; {check} ({otherwise})"
