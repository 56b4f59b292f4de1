"""The choice of a form: results as JSON lines, as CSV, or as a folder with one file an item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from agentrun.checkpoint.summary import Summary, WrittenOutput
from agentrun.job.job import Job
from agentrun.job.output import OutputForm
from agentrun.outputs.folder import FolderOutput
from agentrun.outputs.port import Output as Output
from agentrun.outputs.results import Results, check_output, json_lines, write_results
from agentrun.outputs.table import csv_lines
from agentrun.outputs.written import WrittenList
from agentrun.store.port import Store
from agentrun.system.disk import Disk, discard, discard_temporaries

LINES: Mapping[OutputForm, Callable[[Results], Iterator[bytes]]] = {"jsonl": json_lines, "csv": csv_lines}
"""The forms that are one file, which is replaced whole."""


class FileOutput(Output):
    """One file with all results."""

    def __init__(self, path: Path, partial: Path, form: OutputForm, *, overwrite: bool = False) -> None:
        self.path = path
        self.partial = partial
        self.form = form
        self._lines = LINES[form]
        self._overwrite = overwrite

    def check(self, *, ended: Sequence[Summary], is_own: bool = False, is_first_launch: bool = False) -> None:
        check_output(self.path, ended=ended, overwrite=self._overwrite or is_own, is_first_launch=is_first_launch)

    def is_missing(self) -> bool:
        return not self.path.exists()

    def sweep(self, disk: Disk) -> None:
        for path in (self.path, self.partial):
            discard_temporaries(disk, path)

    def write(self, results: Results, disk: Disk, check: Callable[[], None] = lambda: None) -> WrittenOutput:
        written = write_results(self._lines(results), self.path, disk, check)
        written.form = self.form
        return written

    def write_partial(self, results: Results, disk: Disk, check: Callable[[], None] = lambda: None) -> None:
        write_results(self._lines(results), self.partial, disk, check)

    def restore(self, results: Results, disk: Disk, check: Callable[[], None] = lambda: None) -> None:
        self.write(results, disk, check)

    def drop_partial(self, disk: Disk) -> None:
        if self.partial.exists():
            discard(disk, str(self.partial))


def open_output(job: Job, store: Store, *, run_id: str, date: str, overwrite: bool = False) -> Output:
    """Where a run of the job puts its results, in the form that the job's output asks for."""
    template, path = job.output_template, job.output_path(run_id=run_id, date=date)
    if template.form == "folder":
        names = template.names(run_id=run_id, date=date)
        return FolderOutput(path, names, WrittenList(store, path), overwrite=overwrite)
    return FileOutput(path, job.partial_path(run_id=run_id, date=date), template.form, overwrite=overwrite)
