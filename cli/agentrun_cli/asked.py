"""The job that a command line asks for: its flags as a layer in the shape of a job file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun_cli.flags import Given

if TYPE_CHECKING:
    from agentrun.job.fields import Layer
    from agentrun.job.known import Found

_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_TOP = ["name", "model", "structured", "base_url", "max_output_tokens", "temperature", "parse", "serve", "isolation"]
_TOP += ["needs_env", "carry"]


@dataclass(frozen=True)
class Asked:
    """The job that a command line asks for."""

    ref: str | None
    layer: Layer | None = None
    """The flags that are values of a job."""
    state_dir: str | None = None
    store: str | None = None
    """The store on the command line."""
    given: Given = field(default_factory=Given)
    found: Found | None = None
    """What `ref` means."""


def asked_job(given: Given, command: Sequence[str] | None = None, *, resumes: bool = False) -> Asked:
    """The flags as a layer over the job file, with paths relative to the job's folder."""
    from agentrun.views.finding import find_asked, find_job, only_job, root_above
    from agentrun_cli.terminal import HERE

    ref, state_dir, store = given.get("job"), given.get("state_dir"), given.get("store")
    _check_rest(given, command)
    has_job = bool(ref or command or given.get("prompt") or given.get("name"))
    if not has_job and (HERE / "job.toml").is_file():
        ref, has_job = "job.toml", True
    if not has_job and not resumes:
        from agentrun.errors import UsageError

        raise UsageError(
            "which job? Give a job file, file.py:function, a job's name, a --prompt, or a command after --"
        )
    found = None
    if ref is not None:
        found = find_job(ref, HERE, state_dir, store=store, is_new=bool(given.get("items") or given.get("name")))
    elif not has_job:
        found = only_job(HERE, state_dir, store=store)
    layer = _layer(given, command, _base_of(found, HERE))
    is_unnamed = (found is None or found.agent is not None) and not given.get("name")
    if is_unnamed and (root := root_above(HERE, state_dir)) is not None:
        # The same as was asked in a folder above, where paths are written in another way.
        above = _layer(given, command, root.parent, agent=found.agent if found is not None else None)
        if (same := find_asked(above, root)) is not None:
            found, layer = same, above
    return Asked(ref, layer, state_dir, store, given, found)


def _layer(given: Given, command: Sequence[str] | None, base: Path, *, agent: str | None = None) -> Layer:
    """The flags as a job in `base` would write them."""
    from agentrun.job.fields import FLAGS_LABEL, ONE_LAUNCH, RUN, Layer
    from agentrun.job.money import BUDGETS
    from agentrun.values.units import number_or_text
    from agentrun_cli.terminal import HERE

    layer = dict(given.of(_TOP))
    if agent is not None:
        layer["agent"] = os.path.relpath(HERE / agent, base)
    if given.get("agent_version"):
        layer["version"] = given.get("agent_version")
    if given.get("output"):
        layer["output"] = _from_base(given.get("output"), HERE, base)
    for name in ("env_file", "schema"):
        if given.get(name):
            # Not a template: nothing in it is to be escaped.
            layer[name] = os.path.relpath(HERE / given.get(name), base)
    for name in ("prompt", "system"):
        if given.get(name) is not None:
            layer[name] = _text_or_file(given.get(name), HERE, base)
    if given.get("on"):
        layer["engine"] = {"on": given.get("on")}
    if command:
        layer["command"] = [_program(command[0], HERE, base), *(_argument(one, HERE, base) for one in command[1:])]
    if given.get("settings"):
        layer["params"] = _params(given.get("settings"))
    if items := _items(given, HERE, base):
        layer["items"] = items
    run = dict(given.of(name for name in RUN if name not in ONE_LAUNCH))
    if given.get("no_adapt"):
        run["adapt"] = False
    if run:
        # Numbers, or "none".
        numbers = {name: number_or_text(run[name]) for name in BUDGETS if name in run}
        layer["run"] = run | numbers
    return Layer(FLAGS_LABEL, layer)


def _text_or_file(given: str, here: Path, base: Path) -> str:
    """The prompt as typed; the path after an `@` is made relative to the job's folder."""
    from agentrun.job.prompt import prompt_file

    path = prompt_file(given)
    return f"@{os.path.relpath(here / path, base)}" if path else given


def _base_of(found: Found | None, here: Path) -> Path:
    """The folder that a job's paths are relative to."""
    if found is not None and found.file is not None:
        return found.file.parent
    return found.kept.base if found is not None and found.kept is not None else here


def _from_base(given: str, here: Path, base: Path) -> str:
    """A path or pattern typed here, as a job in `base` would write it. Placeholders stay placeholders."""
    from agentrun.values.templates import escape

    if given == "-" or os.path.isabs(given) or here == base:
        return given
    whole, start = os.path.normpath(os.path.join(escape(str(here)), given)), escape(str(base))
    return os.path.relpath(whole, start) if whole.startswith(start.rstrip("/") + "/") else whole


def _program(program: str, here: Path, base: Path) -> str:
    """The path of a program, relative to the job's folder if it is a file here; otherwise unchanged."""
    if here == base or "/" not in program or os.path.isabs(program) or not (here / program).is_file():
        return program
    path = os.path.normpath(here / program)
    inside = os.path.relpath(path, base)
    return path if inside.startswith("..") else f"./{inside}"


def _argument(argument: str, here: Path, base: Path) -> str:
    """An argument of a program, relative to the job's folder if it is a file here; otherwise unchanged."""
    if here == base or os.path.isabs(argument) or not os.path.isfile(here / argument):
        return argument
    return os.path.relpath(here / argument, base)


def _params(settings: Sequence[str]) -> dict[str, str]:
    from agentrun.errors import UsageError

    params: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set {setting}: write a name and a value, such as --set customer=acme")
        params[name.strip()] = value
    return params


def _items(given: Given, here: Path, base: Path) -> dict[str, Any]:
    from agentrun.errors import UsageError

    patterns, kind, key = given.get("items") or [], given.get("kind"), given.get("key")
    items: dict[str, Any] = {"key": key} if key else {}
    if excluded := given.get("exclude"):
        # Without a / it is a name, in whatever folder.
        items["exclude"] = [_from_base(one, here, base) if "/" in one.rstrip("/") else one for one in excluded]
    if kind is not None and kind not in ("files", "jsonl", "csv", "lines"):
        raise UsageError(f"--as is {kind}; write files, jsonl, csv or lines")
    if not patterns:
        if kind is not None:
            raise UsageError("--as says what --items is; add --items")
        return items
    kinds = [kind or _kind_of(pattern, here) for pattern in patterns]
    if len(patterns) == 1:
        return {kinds[0]: _from_base(patterns[0], here, base), **items}
    for pattern, found in zip(patterns, kinds, strict=True):
        if found != "files":
            raise UsageError(
                f"--items {pattern}: is {found}, and only patterns of files can be given together; give it alone, "
                f"or add --as files if the file itself is the item"
            )
    return {"files": [_from_base(pattern, here, base) for pattern in patterns], **items}


def _kind_of(pattern: str, here: Path) -> str:
    if any(sign in pattern for sign in "*?[") and not (here / pattern).is_file():
        return "files"
    return "lines" if pattern == "-" else _KINDS.get(Path(pattern).suffix.lower(), "files")


def _check_rest(given: Given, command: Sequence[str] | None) -> None:
    """Refuse extra words: nearly always a pattern that the shell has expanded."""
    from agentrun.errors import UsageError

    ref, rest, items = given.get("job"), given.get("rest") or [], given.get("items") or []
    if ref is not None and Path(ref.rpartition(":")[0]).suffix == ".py":
        other = "a command after --" if command else "a --prompt" if given.get("prompt") else ""
        if other:
            raise UsageError(f"{ref}: an agent and {other} are both given; give one of them")
    stray = [*rest]
    if command and items and ref is not None and Path(ref).suffix == Path(items[0]).suffix != ".toml":
        stray.insert(0, ref)
    if not stray:
        return
    if items:
        folder, suffix = os.path.split(items[0])[0], Path(items[0]).suffix
        pattern = os.path.join(folder, f"*{suffix}")
        raise UsageError(
            f"--items got {items[0]} and {len(stray)} more: the shell expanded the pattern; "
            f"quote it, such as --items {shlex.quote(pattern)}"
        )
    raise UsageError(f"{stray[0]}: one job at a time; a command to run goes after --")
