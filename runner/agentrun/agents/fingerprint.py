"""The fingerprint of an agent: what tells one version of it from another."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from agentrun.agents.loading import module_file

if TYPE_CHECKING:
    from agentrun.job.job import Job


_NOT_OURS = frozenset({"site-packages", "dist-packages", ".venv"})


def fingerprint_of(job: Job, parts: Any) -> str:
    """12 hex digits that change when the agent does. Each part goes in with its length."""
    digest = hashlib.sha256()
    for part in parts() if job.version is None else (b"version", job.version.encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


def python_parts(target: Any, base: Path) -> Iterator[bytes]:
    files = set(_files_under(base))
    function = inspect.unwrap(target) if inspect.isroutine(target) else target
    own = module_file(sys.modules.get(getattr(function, "__module__", None) or ""))
    if own is None:  # a notebook's: only its code is known
        code = getattr(function, "__code__", None)
        yield from _code_parts(code) if code is not None else (repr(type(function)).encode(),)
    else:
        files.add(own)
    yield getattr(function, "__qualname__", "").encode()
    yield from _file_parts(files, base)


def adapted_parts(target: Any, job: Job, reference: str | None) -> Iterator[bytes]:
    """Of an object of a framework: it has no code of its own, so its file counts, with those of the job's folder."""
    base = job.base
    yield (job.graph_output or "").encode()
    if inspect.isroutine(target):
        yield from python_parts(target, base)
        return
    source, _, name = (reference or "").rpartition(":")
    own = os.path.realpath(base / source) if source.endswith(".py") else module_file(sys.modules.get(source))
    yield name.encode()
    yield from _file_parts({*_files_under(base), *([own] if own else [])}, base)


def _file_parts(files: set[str], base: Path) -> Iterator[bytes]:
    for file in sorted(files, key=lambda f: os.path.relpath(f, os.path.realpath(base))):
        yield os.path.relpath(file, os.path.realpath(base)).encode("utf-8", "surrogateescape")
        yield _content(file)


def _files_under(base: Path) -> Iterable[str]:
    """The files of all loaded modules that belong to the job: in its folder, but installed by nobody."""
    prefix = os.path.realpath(base).rstrip(os.sep) + os.sep
    installed = [os.path.realpath(p) + os.sep for p in (sys.prefix, sys.base_prefix)]
    excluded = tuple(p for p in installed if p.startswith(prefix))
    folders: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("agentrun", "agentrun_cli"):
            continue
        file = module_file(module, folders)
        if file is None or not file.startswith(prefix) or file.startswith(excluded or "\0"):
            continue
        if not _NOT_OURS.intersection(Path(file[len(prefix) :]).parts):
            yield file


def _code_parts(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(code.co_names).encode("utf-8", "backslashreplace")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        else:
            yield repr(constant).encode("utf-8", "backslashreplace")


def command_parts(argv: tuple[str, ...], job: Job) -> Iterator[bytes]:
    base = Path(os.path.realpath(job.base))
    yield job.parse.encode()
    for element in argv:
        yield element.encode("utf-8", "surrogateescape")
        path = Path(os.path.realpath(job.base / element)) if "\0" not in element else base
        if path.is_relative_to(base) and os.path.isfile(path):  # a script of -c is no name at all
            yield _content(str(path))


def _content(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return hashlib.file_digest(opened, "sha256").digest()
    except OSError:
        return b"unreadable"
