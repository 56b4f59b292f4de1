"""What a host needs to know of a job and its agent: the first frame that it is sent."""

from __future__ import annotations

import os
import secrets
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


def check_can_travel(agent: Agent, engine: EngineSpec, base: Path) -> None:
    """UsageError if another machine cannot run this agent, or if something in `send` is not in the job's folder."""
    if missing := [name for name in engine.send if not (base / name).exists()]:
        raise UsageError(f"engine.send: there is no {missing[0]} in {base}; list files and folders of the job's folder")
    if agent.kind == "command" or agent.reference == "prompt":
        return
    name = agent.reference or getattr(agent.target, "__qualname__", "the agent")
    if agent.reference is None or is_held_by_script(agent.reference):
        raise UsageError(
            f"{name}: workers on {engine.on} cannot import a lambda, a closure or a notebook's function; define it at "
            f"the top level of a file"
        )
    if agent.isolation == "thread":
        raise UsageError(
            f'{name}: isolation = "thread" shares the memory of the runner, so it cannot run on {engine.on}; leave '
            f"isolation out"
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
        "landmark": None if os.path.realpath(path).startswith(f"{os.path.realpath(job.base)}/") else landmark(job.base),
        "nonce_path": str(path),
        "nonce": word,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def sees_folder(hello: Mapping[str, Any]) -> bool:
    """Whether this process sees the runner's folders under the same paths: the job's, and that of its state."""
    try:
        if Path(hello["nonce_path"]).read_text() != hello["nonce"]:
            return False
        return hello["landmark"] is None or landmark(Path(hello["base"])) == hello["landmark"]
    except (OSError, ValueError):
        return False


def landmark(base: Path) -> list[Any]:
    """What identifies the job's folder where its state is elsewhere: the first file in it. Another copy of the folder
    has the same names, but never this file's number and times."""
    for path in sorted(one for one in base.iterdir() if one.is_file() and not one.is_symlink()):
        stat = path.stat()
        return [path.name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    return ["nothing", secrets.token_hex(8)]  # like nothing else: without files there is little to send


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
