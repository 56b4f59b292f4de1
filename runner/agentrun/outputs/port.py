"""The output port: where a run's results go, in whichever form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from agentrun.checkpoint.summary import Summary, WrittenOutput
from agentrun.job.output import OutputForm
from agentrun.outputs.names import Keys
from agentrun.outputs.results import Results
from agentrun.system.disk import Disk


class Output(ABC):
    """The output of one run. `check`, where something is written, is called right before a file gets its name; what it
    raises leaves that file as it was. Errors of the disk are DiskErrors."""

    path: Path
    """The file; or the folder, if each item has a file."""
    partial: Path
    """Where the results so far go."""
    form: OutputForm
    side_files: Sequence[str] = ()
    """What the store keeps for it."""

    @abstractmethod
    def check(self, *, ended: Sequence[Summary], is_own: bool = False, is_first_launch: bool = False) -> None:
        """Before the first item runs: JobError if the results cannot be written here, or may not be.

        `is_own`: a launch of this run was about to put the results in place. Before a run's first launch it has no
        items' files of its own: existing ones must be an earlier run's.
        """

    def check_items(self, keys: Keys) -> list[str]:
        """The same for each item's own file; returns what people should know of the names."""
        return []

    @abstractmethod
    def is_missing(self) -> bool:
        """Whether something that a finished run wrote is no longer there."""

    @abstractmethod
    def sweep(self, disk: Disk) -> None:
        """Remove temporaries that launches left when they died."""

    @abstractmethod
    def write(self, results: Results, disk: Disk, check: Callable[[], None] = lambda: None) -> WrittenOutput:
        """Put the results in place, durably; return what was written, to recognise it later."""

    @abstractmethod
    def write_partial(self, results: Results, disk: Disk, check: Callable[[], None] = lambda: None) -> None:
        """Put the results so far in place."""

    @abstractmethod
    def restore(self, results: Results, disk: Disk, check: Callable[[], None] = lambda: None) -> None:
        """Write again what is missing."""

    @abstractmethod
    def drop_partial(self, disk: Disk) -> None:
        """The run is complete: remove its partial results."""
