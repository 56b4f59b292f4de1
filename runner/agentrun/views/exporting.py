"""Results written to a place of one's own, in the form that its name asks for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from agentrun.errors import UsageError
from agentrun.job.output import ITEM_NAMES, RUN_NAMES, OutputTemplate
from agentrun.outputs.claim import Claim, OutputTakenError
from agentrun.outputs.folder import FolderOutput
from agentrun.outputs.output import FileOutput, Output
from agentrun.outputs.results import Result
from agentrun.outputs.table import csv_lines
from agentrun.outputs.written import WrittenList
from agentrun.system.disk import Disk, disk_errors
from agentrun.values.templates import fill
from agentrun.values.text import quoted
from agentrun.views.listing import Listing


def export_results(listing: Listing, text: str, *, here: Path, overwrite: bool = False) -> Path:
    """Write the results of the run that is listed; return the file, or the folder with a file for each item.

    `text` is a path as after -o, relative to `here`. What is there already is replaced only with `overwrite`, and in a
    folder nothing is ever removed.
    """
    run_id, date = _run_of(listing)
    output = _open(_parse(text, here), here, run_id=run_id, date=date, overwrite=overwrite)
    checkpoint = listing.reader.checkpoint
    if checkpoint is not None and str(output.path) == checkpoint.context.output:
        raise UsageError(f"{output.path}: the unfinished run will write its results there; write these elsewhere")
    Claim("", None).look(output.path)
    if output.form != "folder" and not overwrite and output.path.exists():
        raise UsageError(f"{output.path}: already exists; choose another path, or add --overwrite")
    with disk_errors(output.path.parent):
        output.path.parent.mkdir(parents=True, exist_ok=True)

    try:
        output.write_partial(partial(_results, listing), Disk())
    except OutputTakenError as error:
        raise UsageError(f"{error}; choose another folder, or add --overwrite") from None
    return output.path


def csv_pieces(listing: Listing) -> Iterator[bytes]:
    """The results of the run that is listed as CSV, piece by piece."""
    return csv_lines(partial(_results, listing))


def _results(listing: Listing) -> Iterator[Result]:
    for item in listing.items({"done"}):
        assert item.record is not None
        yield Result(item.index, item.record)


def _parse(text: str, here: Path) -> OutputTemplate:
    try:
        template = OutputTemplate(fill(text, {}, keep=(*RUN_NAMES, *ITEM_NAMES)))
    except ValueError as error:
        raise UsageError(f"-o {error}") from None
    if remedy := template.remedy(here):
        raise UsageError(f"-o is {quoted(text)}; {remedy}")
    return template


def _open(template: OutputTemplate, here: Path, *, run_id: str, date: str, overwrite: bool) -> Output:
    path = template.path(here, run_id=run_id, date=date)
    if path.is_dir() and template.form != "folder":
        raise UsageError(
            f'{path}: is a folder; write a file\'s name, or "{template.text}/{{key}}.md" for one file an item'
        )
    if template.form == "folder":
        names = template.names(run_id=run_id, date=date)
        return FolderOutput(path, names, WrittenList(None, path), overwrite=overwrite)
    return FileOutput(path, path, template.form, overwrite=overwrite)


def _run_of(listing: Listing) -> tuple[str, str]:
    checkpoint, summary = listing.reader.checkpoint, listing.reader.summary
    if checkpoint is not None:
        return checkpoint.run_id, checkpoint.context.date
    return (summary.run_id, summary.date) if summary is not None else ("", "")
