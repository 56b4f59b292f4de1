"""Job files and env files, read."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from agentrun.errors import JobError

FILE_NAME = "job.toml"
_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)\"""")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read_job_file(path: Path) -> dict[str, Any]:
    """The values of a job file, or of the job.toml in a folder; JobError where it cannot be read."""
    if path.is_dir():
        path = path / FILE_NAME
    text = _read_text(path, "job file")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        match = _POSITION.search(message)
        if match is None:
            raise JobError(f"{path}: {message}", file=str(path)) from None
        line, column = (match[1], match[2]) if match[1] else _end_of(text)
        why = message[: match.start()]
        raise JobError(f"{path}: line {line}, column {column}: {why}", file=str(path), line=int(line)) from None
    except RecursionError:
        raise JobError(f"{path}: is nested too deep to be read; flatten it", file=str(path)) from None


def _end_of(text: str) -> tuple[str, str]:
    lines = text.split("\n")
    return str(len(lines)), str(len(lines[-1]) + 1)


def load_env_file(path: Path) -> dict[str, str]:
    """The variables of an env file: `KEY=VALUE`, `export`, quotes, comments. Errors never show a value."""
    values: dict[str, str] = {}
    for number, line in enumerate(_read_text(path, "env_file").split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _ASSIGNMENT.fullmatch(line)
        if match is None:
            raise _env_error(path, number, "is not of the form KEY=VALUE")
        name, rest = match.groups()
        if "\0" in rest:
            raise _env_error(path, number, f"has a NUL character in the value of {name}")
        if not rest.startswith(("'", '"')):
            values[name] = re.split(r"(?:^|\s)#", rest, maxsplit=1)[0].rstrip()
            continue
        quoted = _QUOTED.match(rest)
        if quoted is None:
            raise _env_error(path, number, f"has a quote in the value of {name} that does not end on this line")
        after = rest[quoted.end() :].strip()
        if after and not after.startswith("#"):
            raise _env_error(path, number, f"has something behind the quoted value of {name}")
        if quoted[1] is not None:
            values[name] = quoted[1]
        else:
            values[name] = re.sub(r"\\(.)", lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), quoted[2])
    return values


def _env_error(path: Path, number: int, what: str) -> JobError:
    return JobError(f"{path}: line {number} {what}; write KEY=VALUE", file=str(path), line=number)


def default_name(ref: str | os.PathLike[str]) -> str:
    """The name of a job that does not say one: the file's stem, job.toml's folder, or the function."""
    text = os.fspath(ref)
    source, colon, function = text.rpartition(":")
    if colon and function.isidentifier() and not source.endswith("/"):
        return function
    path = Path(text).absolute()
    if path.is_dir():
        path = path / FILE_NAME
    return path.resolve().parent.name if path.name == FILE_NAME else path.stem


def _read_text(path: Path, what: str) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise JobError(f"{path}: there is no such {what}", file=str(path)) from None
    except OSError as error:
        raise JobError(f"{path}: the {what} cannot be read: {error.strerror}", file=str(path)) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise JobError(
            f"{path}: line {line}, column {column}: is not UTF-8; save the file as UTF-8",
            file=str(path),
            line=line,
        ) from None
