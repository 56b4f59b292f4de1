"""The choice of a source: `open_source` opens the one that a job names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from agentrun.errors import ItemsError
from agentrun.items.lines import LinesSource
from agentrun.items.patterns import open_files
from agentrun.items.port import Identity, Raw, Source
from agentrun.items.spool import SpoolSource, encode_python_items
from agentrun.items.tables import CsvSource, JsonlSource
from agentrun.items.textfile import TextFile
from agentrun.job.job import STANDARD_INPUT, ItemsSpec

__all__ = ["Identity", "Raw", "Source", "encode_python_items", "open_source"]


TEXT_SOURCES: Mapping[str, Callable[[TextFile, ItemsSpec], Source]] = {
    "jsonl": lambda file, spec: JsonlSource(file, key=spec.key),
    "csv": lambda file, spec: CsvSource(file, key=spec.key),
    "lines": lambda file, spec: LinesSource(file),
}
"""Sources that read one text file, or standard input, by the kind of the job's items."""


def open_source(spec: ItemsSpec, base: Path, *, exclude: Collection[Path] = (), spool: Path | None = None) -> Source:
    """The source of a job's items.

    `spool` is the file that standard input or Python items were written to. `exclude` holds files and folders
    that are never items: the job's own output and state.
    """
    if spec.kind == "files":
        return open_files(base, spec.patterns, left_out=spec.exclude, exclude=exclude)
    if spec.kind == "python" or spec.pattern == STANDARD_INPUT:
        if spool is None:
            given = "standard input" if spec.pattern else "Python"
            raise ItemsError(f"the items came from {given} and are not kept with the job; give them again")
        if spec.kind == "python":
            return SpoolSource(spool, base, key=spec.key)
        file = TextFile(spool, "standard input")
    else:
        file = TextFile(base / spec.pattern, spec.pattern)
    return TEXT_SOURCES[spec.kind](file, spec)
