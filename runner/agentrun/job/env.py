"""Env files: variables for the agent, written nowhere else."""

from __future__ import annotations

import io
import re
from pathlib import Path

from agentrun.errors import JobError
from agentrun.job.file import read_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r"""(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*['"]""")
_SPACE = re.compile(r"\s*")


def load_env_file(path: Path) -> dict[str, str]:
    """The variables of an env file, as python-dotenv reads them, without `${…}`. Errors never show a value."""
    # Not dotenv_values: it drops a line that it cannot read, and only logs a warning.
    from dotenv.parser import parse_stream

    values: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(read_text(path, "env_file"), newline=None)):
        text = binding.original.string
        # A binding begins with the blank lines before it.
        blank = _SPACE.match(text)
        assert blank is not None
        line = binding.original.line + blank[0].count("\n")
        if binding.error:
            quoted = _QUOTED.match(text, blank.end())
            if quoted is None:
                raise _env_error(path, line, "is not of the form KEY=VALUE; write KEY=VALUE")
            fault = f"has a quoted value of {quoted[1]} that does not end, or something after its end"
            raise _env_error(path, line, f'{fault}; write {quoted[1]}="…"')
        if binding.key is None:
            continue
        if binding.value is None or not _NAME.fullmatch(binding.key):
            raise _env_error(path, line, "is not of the form KEY=VALUE; write KEY=VALUE")
        if "\0" in binding.value:
            raise _env_error(path, line, f"has a NUL character in the value of {binding.key}; remove it")
        values[binding.key] = binding.value
    return values


def _env_error(path: Path, line: int, what: str) -> JobError:
    return JobError(f"{path}: line {line} {what}", where=str(path), line=line)
