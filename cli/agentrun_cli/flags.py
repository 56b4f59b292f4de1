"""The flags that commands share, and the headings under which a long help shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

JobRef = Annotated[str | None, typer.Argument(metavar="JOB", help="A job file, file.py:function, or a job's name.")]
KnownJob = Annotated[str, typer.Argument(metavar="JOB", help="A job's name, its job file, or file.py:function.")]
OnlyJob = Annotated[str | None, typer.Argument(metavar="JOB", help="A job's name, its job file, or file.py:function.")]
Rest = Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND…]", hidden=True)]

Items = Annotated[
    list[str] | None,
    typer.Option("--items", metavar="WHERE", help="A quoted pattern, 'docs/*.txt'; a file; - for stdin."),
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
On = Annotated[
    str | None,
    typer.Option("--on", metavar="CLUSTER", help="Run items on a cluster: dask, dask://…, slurm, ray; or here."),
]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Time limit of an attempt, such as 90s or 5m.")
]
Retries = Annotated[int | None, typer.Option("--retries", metavar="N", help="Retries after the first attempt.")]
Rate = Annotated[str | None, typer.Option("--rate", metavar="RATE", help="Limit on attempts started, such as 60/min.")]
Tokens = Annotated[
    str | None, typer.Option("--tokens", metavar="RATE", help="Limit on tokens in and out, such as 100k/min.")
]
NoAdapt = Annotated[bool, typer.Option("--no-adapt", help="Do not slow down when a server refuses requests.")]
MaxWait = Annotated[
    str | None, typer.Option("--max-wait", metavar="TIME", help="How long to wait for a quota, 12h; 0: not at all.")
]
Now = Annotated[bool, typer.Option("--now", help="Try at once, even if a quota is not renewed yet.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for a quota: exit 75 at once.")]
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
Structured = Annotated[
    str | None, typer.Option("--structured", metavar="HOW", help="How to give the schema: native or prompt.")
]
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
    str | None, typer.Option("--budget", metavar="USD", help="Budget of the whole run, in US dollars; none removes it.")
]
TokenBudget = Annotated[
    str | None, typer.Option("--token-budget", metavar="N", help="Budget of the whole run, in tokens; none removes it.")
]
ItemBudget = Annotated[
    str | None, typer.Option("--item-budget", metavar="USD", help="Budget of one item, in US dollars; none removes it.")
]
ItemTokenBudget = Annotated[
    str | None, typer.Option("--item-token-budget", metavar="N", help="Budget of one item, in tokens; none removes it.")
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Start no items after this time: 07:00, or 2026-11-17T07:00."),
]
MaxTime = Annotated[
    str | None, typer.Option("--max-time", metavar="TIME", help="Start items for so long in this launch, such as 6h.")
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
    typer.Option("--needs-env", metavar="NAME", help="A variable that the agent needs; can be repeated."),
]
Carry = Annotated[bool, typer.Option("--carry", help="Pass ctx.carry from item to item (one at a time).")]
Output = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="PATH", help="Where to write the results: .jsonl, .csv or 'out/{key}.md'."),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The job's name; default: made from what is asked.")
]
StateDir = Annotated[
    str | None, typer.Option("--state-dir", metavar="PATH", help="Where the state is, if not in .agentrun.")
]

Store = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="Where the state is: postgres://…, s3://…, sqlite:///…"),
]
Adopt = Annotated[bool, typer.Option("--adopt", help="Continue a job that another machine or folder started.")]

Limit = Annotated[int | None, typer.Option("--limit", metavar="K", min=1, help="Start at most K items in this launch.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="PATTERN", help="Run only items whose keys match, in this launch; can be repeated."),
]
Pilot = Annotated[
    int | None,
    typer.Option("--pilot", metavar="[20]", help="Run a sample first, and estimate time and cost of the rest."),
]
Plan = Annotated[bool, typer.Option("--plan", help="Show what would be done, and do nothing.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over; an unfinished run is filed as abandoned.")]
Yes = Annotated[
    bool, typer.Option("-y", "--yes", help="Do not ask: with --fresh, give up people's work; with --pilot, continue.")
]
Rerun = Annotated[
    str | None,
    typer.Option("--rerun", metavar="WHICH", help="Run finished items again: old-agent, or all."),
]
KeepChanged = Annotated[bool, typer.Option("--keep-changed", help="Keep the results of items that changed.")]
AllowGone = Annotated[bool, typer.Option("--allow-gone", help="Continue even if many finished items are gone.")]
AcceptEdits = Annotated[bool, typer.Option("--accept-edits", help="Accept a state that was edited by hand.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that no run of this job wrote.")]
Failed = Annotated[bool, typer.Option("--failed", help="Also retry items that failed in three launches.")]
ForgetSteps = Annotated[bool, typer.Option("--forget-steps", help="Run remembered steps again.")]
IfFree = Annotated[bool, typer.Option("--if-free", help="Exit 0 silently if another runner has the job.")]
Detach = Annotated[
    bool, typer.Option("--detach", help="Return once the first checkpoint is on disk; the launch continues.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing on exit 0, otherwise only the reason.")]
Plain = Annotated[bool, typer.Option("--plain", help="Print plain lines on a terminal, too: no bar, no colours.")]
ProgressEvery = Annotated[
    str | None,
    typer.Option("--progress-every", metavar="TIME", help="Time between plain lines of progress (30s); 0: none."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]

GROUPS: dict[str, tuple[str, ...]] = {
    "Items": ("items", "kind", "key", "settings", "only", "exclude", "index", "count", "sample", "seed"),
    "Agent": (
        "prompt", "model", "system", "schema", "structured", "base_url", "max_output_tokens", "temperature", "parse",
        "serve", "agent_version", "env_file", "needs_env", "isolation", "carry", "shell",
    ),
    "Limits": (
        "concurrency", "on", "limit", "pilot", "until", "max_time", "budget", "token_budget", "item_budget",
        "item_token_budget", "timeout", "retries", "rate", "tokens", "no_adapt", "max_wait", "no_wait", "now",
        "allow_failures", "stop_after_failures", "grace", "crash_limit",
    ),
    "Output": ("output", "overwrite", "name", "state_dir", "store", "adopt", "empty", "keep_logs"),
    "When things change": (
        "fresh", "rerun", "failed", "keep_changed", "allow_gone", "accept_edits", "forget_steps", "max_age", "yes",
    ),
    "Display": ("plan", "quiet", "as_json", "plain", "progress_every", "if_free", "detach"),
}  # fmt: skip
"""The headings of a long help, each with the parameters below it."""
OTHER = "Other"
"""The heading of a flag that stands nowhere in `GROUPS`."""


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


def _is_given(value: Any) -> bool:
    """Whether a flag was given. One that was not is None, False or an empty list or tuple; 0 is a value."""
    return value is not None and value is not False and value not in ([], ())
