"""The flags that commands share, and how they become a layer in the shape of a job file."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agentrun.job.fields import Layer
    from agentrun.job.home import Found

JobRef = Annotated[str | None, typer.Argument(metavar="JOB", help="A job file, file.py:function, or a job's name.")]
KnownJob = Annotated[str, typer.Argument(metavar="JOB", help="A job's name, or its job file.")]
Rest = Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND...]", hidden=True)]

Items = Annotated[
    list[str] | None,
    typer.Option(
        "--items", metavar="WHERE", help="A pattern such as 'docs/*.txt' (quoted), a file, or - (standard input)."
    ),
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="Files to leave out; can be repeated.")
]
Kind = Annotated[str | None, typer.Option("--as", metavar="KIND", help="What --items is: files, jsonl, csv or lines.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="FIELD", help="jsonl, csv: the field that identifies an item.")
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="K=V", help="A parameter; can be repeated.")]

Concurrency = Annotated[int | None, typer.Option("-j", "--concurrency", metavar="N", help="Items in flight at a time.")]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Time limit of an attempt, such as 90s or 5m.")
]
Retries = Annotated[int | None, typer.Option("--retries", metavar="N", help="Retries after the first attempt.")]
Rate = Annotated[str | None, typer.Option("--rate", metavar="RATE", help="Limit on attempts started, such as 60/min.")]
AllowFailures = Annotated[
    str | None, typer.Option("--allow-failures", metavar="N", help="How many items may fail: N or N%.")
]
StopAfter = Annotated[
    int | None, typer.Option("--stop-after-failures", metavar="N", help="Stop after N failures in a row; 0: never.")
]
Grace = Annotated[
    str | None, typer.Option("--grace", metavar="TIME", help="Time for items in flight to finish at a stop.")
]
CrashLimit = Annotated[
    int | None, typer.Option("--crash-limit", metavar="N", help="Crashes before an item is set aside; 0: never.")
]
Isolation = Annotated[
    str | None, typer.Option("--isolation", metavar="HOW", help="How to run a sync function: process or thread.")
]
Prompt = Annotated[
    str | None, typer.Option("--prompt", metavar="TEXT|@FILE", help="A prompt with {text}, {field} or {file} in it.")
]
Model = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="The prompt's model, such as openai:gpt-5-mini.")
]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT|@FILE", help="The prompt's system instructions.")]
Schema = Annotated[str | None, typer.Option("--schema", metavar="FILE", help="The JSON Schema of the prompt's output.")]
BaseUrl = Annotated[
    str | None, typer.Option("--base-url", metavar="URL", help="The prompt's server, if it speaks the OpenAI API.")
]
MaxOutputTokens = Annotated[
    int | None, typer.Option("--max-output-tokens", metavar="N", help="Limit on the prompt's output in one response.")
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", metavar="T", help="The prompt's temperature, 0 to 2.")
]
Serve = Annotated[bool, typer.Option("--serve", help="Run the command as one long-lived program per slot.")]
Budget = Annotated[
    float | None, typer.Option("--budget", metavar="USD", help="Budget of the whole run, in US dollars.")
]
TokenBudget = Annotated[
    int | None, typer.Option("--token-budget", metavar="N", help="Budget of the whole run, in tokens.")
]
Parse = Annotated[
    str | None, typer.Option("--parse", metavar="AS", help="How to read a command's output: text or json.")
]
AgentVersion = Annotated[
    str | None, typer.Option("--agent-version", metavar="TEXT", help="Replaces the agent's fingerprint.")
]
EnvFile = Annotated[
    str | None, typer.Option("--env-file", metavar="PATH", help="A file of environment variables for the agent.")
]
NeedsEnv = Annotated[
    list[str] | None,
    typer.Option("--needs-env", metavar="NAME", help="An environment variable the agent needs; can be repeated."),
]
Carry = Annotated[bool, typer.Option("--carry", help="Pass ctx.carry from item to item (one at a time).")]
Output = Annotated[str | None, typer.Option("-o", "--output", metavar="PATH", help="Where to write the results.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The job's name.")]
StateDir = Annotated[
    str | None, typer.Option("--state-dir", metavar="PATH", help="Where the state is, if not in .agentrun.")
]

Limit = Annotated[int | None, typer.Option("--limit", metavar="K", min=1, help="Start at most K items in this launch.")]
Plan = Annotated[bool, typer.Option("--plan", help="Show what would be done, and do nothing.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over; an unfinished run is filed as abandoned.")]
Rerun = Annotated[
    str | None,
    typer.Option("--rerun", metavar="WHICH", help="Run finished items again: those of an old-agent, or all."),
]
KeepChanged = Annotated[bool, typer.Option("--keep-changed", help="Keep the results of items that changed.")]
AllowGone = Annotated[bool, typer.Option("--allow-gone", help="Continue even if many finished items are gone.")]
AcceptEdits = Annotated[bool, typer.Option("--accept-edits", help="Accept a state that was edited by hand.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that no run of this job wrote.")]
Failed = Annotated[bool, typer.Option("--failed", help="Also retry items that failed in three launches.")]
ForgetSteps = Annotated[bool, typer.Option("--forget-steps", help="Run remembered steps again.")]
IfFree = Annotated[bool, typer.Option("--if-free", help="Exit 0 silently if another runner has the job.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing on exit 0, otherwise only the reason.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]

_WORD = r"('[^']*'|[^\s';]+)"
_REPAIR = re.compile(f"agentrun repair {_WORD} --state-dir {_WORD}")
_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_TOP = ["name", "model", "base_url", "max_output_tokens", "temperature", "parse", "serve", "isolation", "needs_env"]
_TOP += ["carry"]


@dataclass(frozen=True)
class Given:
    """The parameters of a command as typer parsed them."""

    params: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """The value of a parameter; None if the command has no such parameter."""
        return self.params.get(name)

    def of(self, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """The flags among `names` that were given, each with its value."""
        return ((name, self.params[name]) for name in names if _is_given(self.params.get(name)))


@dataclass(frozen=True)
class Asked:
    """The job that a command line asks for."""

    ref: str | None
    layer: Layer | None = None
    """The flags that are values of a job."""
    state_dir: str | None = None
    given: Given = field(default_factory=Given)
    found: Found | None = None
    """What `ref` means."""


def asked_job(given: Given, command: Sequence[str] | None = None) -> Asked:
    """The flags as a layer over the job file, with paths relative to the job's folder."""
    from agentrun.job.fields import FLAGS_LABEL, RUN, Layer
    from agentrun.views.finding import find_job
    from agentrun_cli.terminal import HERE

    ref, state_dir = given.get("job"), given.get("state_dir")
    _check_rest(given, command)
    has_job = bool(ref or command or given.get("prompt") or given.get("name"))
    if not has_job and (HERE / "job.toml").is_file():
        ref, has_job = "job.toml", True
    if not has_job:
        from agentrun.errors import UsageError

        raise UsageError(
            "which job? Give a job file, file.py:function, a job's name, a --prompt, or a command after --"
        )
    found = find_job(ref, HERE, state_dir) if ref is not None else None
    base = _base_of(found, HERE)
    layer = dict(given.of(_TOP))
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
    if command:
        layer["command"] = [_program(command[0], HERE, base), *command[1:]]
    if given.get("settings"):
        layer["params"] = _params(given.get("settings"))
    if items := _items(given, HERE, base):
        layer["items"] = items
    if run := dict(given.of(RUN)):
        layer["run"] = run
    return Asked(ref, Layer(FLAGS_LABEL, layer), state_dir, given, found)


def _is_given(value: Any) -> bool:
    """Whether a flag was given. One that was not is None, False or an empty list or tuple; 0 is a value."""
    return value is not None and value is not False and value not in ([], ())


def _text_or_file(given: str, here: Path, base: Path) -> str:
    """The prompt as typed; the path after an `@` is made relative to the job's folder."""
    from agentrun.job.build import prompt_file

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


def how_to_resume(name: str, agent: str | None) -> str:
    """The command that continues a run; `name` names the job in a command, `agent` is the reference of its agent."""
    from agentrun.agents.loading import is_held_by_script

    if agent and is_held_by_script(agent):
        return "run the script or notebook that started it again"
    return f"agentrun resume {name}"


def how_to_name(name: str, folder: Path | None, asked: Asked | None = None) -> str:
    """How to name the job in a command that is typed where the user stands, as a shell reads it."""
    from agentrun_cli.terminal import HERE

    ref, state_dir, layer = (asked.ref, asked.state_dir, asked.layer) if asked is not None else (None, None, None)
    was_found_by_name = asked is not None and asked.found is not None and ref == name and state_dir is None
    if folder is None or was_found_by_name or _means(name, folder):
        return shlex.quote(name)
    is_other = layer is not None and (layer.get("params") or layer.get("name"))
    is_plain_file = ref is not None and ref.endswith(".toml") and not is_other
    if state_dir is None and ref is not None and is_plain_file:
        return shlex.quote(ref)
    return shlex.join([name, "--state-dir", state_dir or os.path.relpath(folder.parent, HERE)])


def shorten_hints(message: str) -> str:
    """The message with its `agentrun repair` command in the shortest form that works where the user stands."""

    def shorten(found: re.Match[str]) -> str:
        (name, root) = shlex.split(found[1]) + shlex.split(found[2])
        return f"agentrun repair {how_to_name(name, Path(root) / name)}"

    return _REPAIR.sub(shorten, message)


def _means(name: str, folder: Path) -> bool:
    """Whether the plain name means the job in this folder to somebody here."""
    from agentrun.errors import UsageError
    from agentrun.views.finding import find_job
    from agentrun_cli.terminal import HERE

    try:
        return find_job(name, HERE).root == folder.parent
    except UsageError:
        return False
