"""What a host needs to know of a job and its agent: the first frame that it is sent."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.agents.agent import Agent, hosted_agent
from agentrun.agents.loading import is_held_by_script
from agentrun.errors import UsageError
from agentrun.job.job import ItemsSpec, Job

if TYPE_CHECKING:
    from agentrun.job.engine import EngineSpec

_OF_JOB = (
    "name", "agent", "command", "prompt", "model", "system", "schema", "structured", "base_url", "max_output_tokens",
    "temperature", "parse", "serve", "isolation", "params", "carry", "graph_output",
)  # fmt: skip
"""What of a job decides how an attempt runs."""


def check_can_travel(agent: Agent, engine: EngineSpec) -> None:
    """UsageError if another machine cannot run this agent."""
    if agent.kind == "command" or agent.reference == "prompt":
        return
    name = agent.reference or getattr(agent.target, "__qualname__", "the agent")
    if agent.isolation == "thread":
        raise UsageError(
            f'{name}: isolation = "thread" shares the memory of the runner, so it cannot run on {engine.on}; leave '
            f"isolation out"
        )
    if agent.reference is None or is_held_by_script(agent.reference):
        raise UsageError(
            f"{name}: a worker on {engine.on} cannot import it (a lambda, a closure, a notebook's function); define it "
            f"at the top of a file"
        )


def make_hello(job: Job, agent: Agent, *, environ: Mapping[str, str], nonce: tuple[Path, str]) -> dict[str, Any]:
    """The fields of the frame. It holds secrets: it crosses by the tube alone, and is logged nowhere."""
    needed = {name: os.environ[name] for name in job.needs_env if name in os.environ}
    path, word = nonce
    return {
        "job": {name: _plain(getattr(job, name)) for name in _OF_JOB},
        "items": job.items.kind,
        "base": str(job.base),
        "agent": {
            "kind": agent.kind,
            "is_async": agent.is_async,
            "wants_ctx": agent.wants_ctx,
            "reference": agent.reference,
            "isolation": agent.isolation,
            "is_main": agent.is_main,
        },
        "sys_path": sys.path,
        "environ": {**needed, **environ},
        "concurrency": job.concurrency,
        "nonce_path": str(path),
        "nonce": word,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def sees_folder(hello: Mapping[str, Any]) -> bool:
    """Whether this process sees the runner's folders under the same paths."""
    try:
        return Path(hello["nonce_path"]).read_text() == hello["nonce"] and Path(hello["base"]).is_dir()
    except (OSError, ValueError):
        return False


def read_hello(hello: Mapping[str, Any], base: Path) -> tuple[Job, Agent]:
    """The job and its agent, in a host; AgentError if the agent cannot be loaded there. `base` is the job's folder."""
    given = dict(hello["job"])
    if given["command"] is not None:
        given["command"] = tuple(given["command"])
    job = Job(
        base=base,
        items=ItemsSpec(kind=hello["items"], pattern=""),
        output="",
        # More than the slots that the host has now: there may be more later, and the host counts them itself.
        concurrency=hello["concurrency"],
        # The fingerprint is the runner's; here it would only take time.
        version="hosted",
        **given,
    )
    return job, hosted_agent(replace(job, concurrency=1), **hello["agent"])
