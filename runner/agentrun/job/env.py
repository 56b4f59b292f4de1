"""Env files: variables for the agent, written nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

from agentrun.errors import JobError
from agentrun.job.file import read_text

_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)\"""")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def load_env_file(path: Path) -> dict[str, str]:
    """The variables of an env file: `KEY=VALUE`, `export`, quotes, comments. Errors never show a value."""
    values: dict[str, str] = {}
    for number, line in enumerate(read_text(path, "env_file").split("\n"), 1):
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
    return JobError(f"{path}: line {number} {what}; write KEY=VALUE", where=str(path), line=number)
