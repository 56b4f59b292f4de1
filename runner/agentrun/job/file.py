"""Read job files."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from agentrun.errors import JobError
from agentrun.job.fields import Layer
from agentrun.job.tomltext import Fault, explain

FILE_NAME = "job.toml"
_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_job_file(path: Path) -> Layer:
    """The values of a job file, or of the job.toml in a folder; JobError if it cannot be read."""
    if path.is_dir():
        path = path / FILE_NAME
    text = read_text(path, "job file")
    try:
        return Layer(_label(path), tomllib.loads(text), text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        match = _POSITION.search(message)
        if match is None:
            raise JobError(f"{path}: {message}", where=str(path)) from None
        line, column = (int(match[1]), int(match[2])) if match[1] else _end_of(text)
        fault = explain(text, Fault(line, column, message[: match.start()]))
        place = f"{path}: line {fault.line}, column {fault.column}"
        raise JobError(f"{place}: {fault.why}", where=str(path), line=fault.line) from None
    except RecursionError:
        raise JobError(f"{path}: is nested too deep to be read; flatten it", where=str(path)) from None


def _label(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _end_of(text: str) -> tuple[int, int]:
    lines = text.split("\n")
    return len(lines), len(lines[-1]) + 1


def default_name(ref: str | os.PathLike[str]) -> str:
    """The name of a job without one: the file's stem, job.toml's folder, or the function."""
    text = os.fspath(ref)
    source, colon, function = text.rpartition(":")
    if colon and function.isidentifier() and not source.endswith("/"):
        return function
    path = Path(text).absolute()
    if path.is_dir():
        path = path / FILE_NAME
    return path.resolve().parent.name if path.name == FILE_NAME else path.stem


def read_text(path: Path, what: str) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise JobError(f"{path}: there is no such {what}", where=str(path)) from None
    except OSError as error:
        raise JobError(f"{path}: the {what} cannot be read: {error.strerror}", where=str(path)) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise JobError(
            f"{path}: line {line}, column {column}: is not UTF-8; save the file as UTF-8",
            where=str(path),
            line=line,
        ) from None
