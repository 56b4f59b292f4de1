"""A file that is a program, not a job: how to run it."""

from __future__ import annotations

import os
from pathlib import Path

_INTERPRETERS = {
    ".sh": "sh", ".bash": "bash", ".zsh": "zsh", ".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "node",
    ".rb": "ruby", ".pl": "perl", ".php": "php", ".r": "Rscript",
}  # fmt: skip


def script_argv(ref: str, path: Path) -> tuple[str, ...] | None:
    """The command that runs the script at `path`, which the user wrote as `ref`; None if it is not a script."""
    first = _first_line(path)
    by_suffix = _INTERPRETERS.get(path.suffix.lower())
    if not first.startswith("#!") and by_suffix is None:
        return None
    if os.access(path, os.X_OK) and first.startswith("#!"):
        return program_argv(ref)
    return (*(_interpreter(first) or (by_suffix or "sh",)), ref)


def program_argv(ref: str) -> tuple[str, ...]:
    """The command that runs an executable file; without a slash it would be searched for in PATH."""
    return (ref if "/" in ref else f"./{ref}",)


def _interpreter(first: str) -> tuple[str, ...]:
    """`#!/usr/bin/env bash` → bash; `#!/bin/sh -e` → /bin/sh -e."""
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if word != "-S"]
    return tuple(words)


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.readline(256).decode("utf-8", "replace").strip()
    except OSError:
        return ""
