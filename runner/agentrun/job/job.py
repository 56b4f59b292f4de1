"""A job: what to run, where the items come from, which limits. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from agentrun.job.address import StoreAddress
from agentrun.job.engine import EngineSpec
from agentrun.job.notify import Notify
from agentrun.job.output import OutputTemplate
from agentrun.values.templates import escape, fill
from agentrun.values.units import NONE_ALLOWED, Allowance, ModelPrice, Rate
from agentrun.values.until import Until

ItemsKind = Literal["files", "jsonl", "csv", "lines", "python"]
Isolation = Literal["process", "thread"]
Parse = Literal["text", "json"]
Empty = Literal["warn", "fail", "allow"]
Structured = Literal["native", "prompt"]
STANDARD_INPUT = "-"


def default_report(name: str) -> str:
    """The template of a report's path where none is given."""
    return f"{escape(name)}.report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsSpec:
    """Where the items come from: a glob or a file's path, as written, with params filled in."""

    kind: ItemsKind
    pattern: str
    """`-` is standard input; empty for Python items."""
    key: str | None = None
    more: tuple[str, ...] = ()
    """Further patterns of files. A file is an item once, at the first pattern that matches it."""
    exclude: tuple[str, ...] = ()
    """Patterns of files that are left out."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.pattern}" if self.pattern else self.kind

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.pattern, *self.more)

    def identity(self) -> dict[str, Any]:
        """A single pattern has been text since the first version; several are a list."""
        several = [f"{self.kind}:{pattern}" for pattern in self.patterns]
        found: dict[str, Any] = {"items": several if self.more else str(self), "key": self.key}
        return {**found, "exclude": list(self.exclude)} if self.exclude else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A checked job. Paths are relative to `base`: the job file's folder, or the folder of the first start."""

    name: str
    base: Path
    file: Path | None = None
    items: ItemsSpec
    agent: str | None = None
    command: tuple[str, ...] | None = None
    prompt: str | None = None
    """A template, or `@` and the path of a file with one; `@@` stands for a literal `@`."""
    model: str | None = None
    """The prompt's model, `provider:name`; every prompt has one."""
    system: str | None = None
    """The prompt's system instructions: a template or a file, like `prompt`."""
    schema: str | None = None
    """The path of the JSON Schema of a prompt's output; without one, the output is text."""
    structured: Structured | None = None
    """How the schema is given to the model: to the server itself, or in the prompt; None: the first that works."""
    base_url: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    parse: Parse = "text"
    serve: bool = False
    """Run the command as one long-lived program per slot, one line per item."""
    version: str | None = None
    isolation: Isolation | None = None
    params: Mapping[str, Any]
    output: str
    """A template (`OutputTemplate`): `{date}`, `{run_id}`, `{key}` and `{index}` are still in it."""
    report: str | None = None
    """A template like `output`: where the report is written after every launch; None: nowhere."""
    env_file: str | None = None
    needs_env: tuple[str, ...] = ()
    carry: bool = False
    concurrency: int = 1
    timeout_seconds: float | None = 1800.0
    retries: int = 3
    rate: Rate | None = None
    """How many attempts may begin."""
    tokens: Rate | None = None
    """How many tokens may be used."""
    allow_failures: Allowance = NONE_ALLOWED
    stop_after_failures: int = 10
    """0: never."""
    crash_limit: int = 3
    """0: the crash-loop guard is off."""
    grace_seconds: float = 30.0
    max_wait_seconds: float = 12 * 3600.0
    """How long a launch may wait for a quota or a server, since an item was last done."""
    keep_changed: bool = False
    budget: float | None = None
    """US dollars for the whole run, over all its launches."""
    token_budget: int | None = None
    item_budget: float | None = None
    """US dollars for one item, over all its attempts and launches."""
    item_token_budget: int | None = None
    until: Until | None = None
    """No launch starts items after this time."""
    max_time_seconds: float | None = None
    """How long a launch starts items."""
    prices: Mapping[str, ModelPrice] = field(default_factory=dict)
    """By the name of a model: what its tokens cost, in place of the price list."""
    graph_output: str | None = None
    """Of an agent from LangGraph: the part of its state that is the output."""
    notify: Notify | None = None
    """Whom to tell how a launch ended."""
    empty: Empty = "warn"
    """What an empty output is: something to warn of, a failed attempt, or a result like any other."""
    adapt: bool = True
    """Whether the launch slows down when a server refuses requests."""
    keep_logs: int = 1000
    """Of how many done items what they printed is kept."""
    store: StoreAddress | None = None
    """The store that the job file names; None: the job's folder, or what the command line or the environment says."""
    store_patience_seconds: float = 60.0
    """How long a launch waits for a store that does not answer."""
    engine: EngineSpec | None = None
    """The cluster that the attempts run on; None: this machine."""
    max_age_seconds: float | None = None
    """Results of earlier runs that are older than this are run again by the next start; None: never."""

    @property
    def output_template(self) -> OutputTemplate:
        return OutputTemplate(self.output)

    def output_path(self, *, run_id: str, date: str) -> Path:
        """The file of the results, or the folder where each item has one."""
        return self.output_template.path(self.base, run_id=run_id, date=date)

    def partial_path(self, *, run_id: str, date: str) -> Path:
        """Where the results so far go. A folder has a file for each item that is done, so that is the folder itself."""
        output = self.output_path(run_id=run_id, date=date)
        if self.output_template.form == "folder":
            return output
        return output.with_name(f"{output.stem}.partial{output.suffix}")

    def report_path(self, *, run_id: str, date: str) -> Path:
        """Where the report goes; the same name beside the job where the job file says nothing."""
        return self.base / fill(self.report or default_report(self.name), {"run_id": run_id, "date": date})

    def identity(self) -> dict[str, Any]:
        """The values that may not change under one name while a run is unfinished."""
        # A prompt's file may be edited, like an agent's: its text and model are in the fingerprint.
        kind = "command" if self.command else "prompt" if self.prompt is not None else "agent"
        does = {"command": list(self.command or ()), "prompt": self.prompt, "agent": self.agent}[kind]
        return {**self.items.identity(), kind: does, "params": dict(self.params)}

    @property
    def params_digest(self) -> str:
        """The same for the same params; empty if there are none."""
        if not self.params:
            return ""
        return blake2b(json.dumps(self.params, sort_keys=True).encode(), digest_size=8).hexdigest()
