"""A job: what to run, where the items come from, which limits. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from agentrun.values.templates import fill
from agentrun.values.units import NONE_ALLOWED, Allowance, Rate

ItemsKind = Literal["files", "jsonl", "csv", "lines", "python"]
Isolation = Literal["process", "thread"]
Parse = Literal["text", "json"]
Empty = Literal["warn", "fail", "allow"]
STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsSpec:
    """Where the items come from: a glob or a file's path, as written, with params filled in."""

    kind: ItemsKind
    pattern: str
    """`-` is standard input; empty for Python items."""
    key: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.pattern}" if self.pattern else self.kind


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
    """A template: `{date}` and `{run_id}` are still in it."""
    env_file: str | None = None
    needs_env: tuple[str, ...] = ()
    carry: bool = False
    concurrency: int = 1
    timeout_seconds: float | None = 1800.0
    retries: int = 3
    rate: Rate | None = None
    allow_failures: Allowance = NONE_ALLOWED
    stop_after_failures: int = 10
    """0: never."""
    crash_limit: int = 3
    """0: the crash-loop guard is off."""
    grace_seconds: float = 30.0
    keep_changed: bool = False
    budget: float | None = None
    """US dollars for the whole run, over all its launches."""
    token_budget: int | None = None
    empty: Empty = "warn"
    """What an empty output is: something to warn of, a failed attempt, or a result like any other."""
    keep_logs: int = 1000
    """Of how many done items what they printed is kept."""
    max_age_seconds: float | None = None
    """Results of earlier runs that are older than this are run again by the next start; None: never."""

    def output_path(self, *, run_id: str, date: str) -> Path:
        return self.base / fill(self.output, {"run_id": run_id, "date": date})

    def partial_path(self, *, run_id: str, date: str) -> Path:
        output = self.output_path(run_id=run_id, date=date)
        return output.with_name(f"{output.stem}.partial{output.suffix}")

    def identity(self) -> dict[str, Any]:
        """The values that may not change under one name while a run is unfinished."""
        # A prompt's file may be edited, like an agent's: its text and model are in the fingerprint.
        kind = "command" if self.command else "prompt" if self.prompt is not None else "agent"
        does = {"command": list(self.command or ()), "prompt": self.prompt, "agent": self.agent}[kind]
        return {"items": str(self.items), "key": self.items.key, kind: does, "params": dict(self.params)}

    @property
    def params_digest(self) -> str:
        """The same for the same params; empty if there are none."""
        if not self.params:
            return ""
        return blake2b(json.dumps(self.params, sort_keys=True).encode(), digest_size=8).hexdigest()
