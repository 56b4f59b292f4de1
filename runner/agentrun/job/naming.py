"""The name of a job that was given none: made from what is asked. Does no I/O.

Another command, prompt or pattern is another job, and the same one finds its own results again, however it is written.
Names are on disk: a change of the rule here would leave everybody's jobs without their names.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentrun.job.job import STANDARD_INPUT, Job
from agentrun.job.prompt import prompt_file

HASH_DIGITS = 4
_STEM_LIMIT_BYTES = 32
_PROMPT_WORDS = 3


def digest_ask(job: Job, *, place: str = ".") -> str:
    """A hash of everything that decides an output, in hex digits.

    `place` is the job's folder as seen from its state: with one state folder for many places, each has jobs of its own.
    """
    base = job.base
    asked = {
        "place": place if place != "." else None,
        "agent": _same_agent(job.agent, base) if job.agent else None,
        "command": _same_command(job.command, base) if job.command else None,
        "prompt": _same_prompt(job.prompt, base) if job.prompt else None,
        "system": _same_prompt(job.system, base) if job.system else None,
        "model": job.model,
        "base_url": job.base_url,
        "schema": _same_path(job.schema, base) if job.schema else None,
        "structured": job.structured,
        "parse": job.parse if job.parse != "text" else None,
        "serve": job.serve or None,
        "temperature": job.temperature,
        "max_output_tokens": job.max_output_tokens,
        "params": dict(job.params) or None,
        "items": [job.items.kind, *(_same_path(pattern, base) for pattern in job.items.patterns)],
        "exclude": sorted(job.items.exclude) or None,
        "key": job.items.key,
    }
    # Only what is given: a value that a later version adds changes no name as long as it is left out.
    given = {name: value for name, value in asked.items() if value is not None}
    return sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()


def name_asked(job: Job, digest: str) -> str:
    """`summarise-3f2a`: readable, and another one for another ask. `digest` is that of `digest_ask`."""
    return f"{_stem(job)}-{digest[:HASH_DIGITS]}"


def former_name(job: Job) -> str:
    """The name that earlier versions gave the job, whatever else was asked."""
    if job.agent is not None:
        return _function(job.agent)
    if job.prompt is not None:
        path = prompt_file(job.prompt)
        return (Path(path).stem if path else "") or "prompt"
    return Path((job.command or ("",))[0]).stem or "job"


def same_value(name: str, value: Any, base: Path) -> Any:
    """A value of `Job.identity`, the same however it was written: with ./ in front, or as an absolute path."""
    if name == "items" and isinstance(value, list):
        return [same_value(name, one, base) for one in value]
    if name == "items" and isinstance(value, str):
        kind, colon, pattern = value.partition(":")
        return f"{kind}:{_same_path(pattern, base)}" if colon else value
    if name == "agent" and isinstance(value, str):
        return _same_agent(value, base)
    if name == "prompt" and isinstance(value, str):
        return _same_prompt(value, base)
    if name == "command" and isinstance(value, list):
        return _same_command(value, base)
    return value


def _stem(job: Job) -> str:
    """What people recognise the job by: its function, its program, its prompt's file, or the prompt's first words."""
    if job.agent is not None:
        text = _function(job.agent)
    elif job.prompt is not None:
        text = Path(prompt_file(job.prompt) or "").stem or _first_words(job.prompt)
    else:
        text = Path((job.command or ("",))[0]).stem
    safe = re.sub(r"[^\w.]+", "-", text).strip(".-")
    while len(safe.encode()) > _STEM_LIMIT_BYTES:
        # At a word, if there is one.
        safe = safe.rpartition("-")[0] or safe[:-1]
    return safe.strip(".-") or "job"


def _first_words(prompt: str) -> str:
    words = re.findall(r"[^\W_]+", prompt.partition("{")[0].lower())
    return "-".join(words[:_PROMPT_WORDS]) or "prompt"


def _function(agent: str) -> str:
    path, _, function = agent.rpartition(":")
    return function.rpartition(".")[2] or Path(path).stem


def _same_path(path: str, base: Path) -> str:
    if path in ("", STANDARD_INPUT):
        return path
    path = os.path.normpath(path)
    return path.removeprefix(_inside(base))


def _inside(base: Path) -> str:
    return f"{str(base).rstrip('/')}/"


def _same_agent(agent: str, base: Path) -> str:
    path, _, function = agent.rpartition(":")
    return f"{_same_path(path, base)}:{function}" if path.endswith(".py") else agent


def _same_prompt(prompt: str, base: Path) -> str:
    path = prompt_file(prompt)
    return f"@{_same_path(path, base)}" if path else prompt


def _same_command(command: Sequence[str], base: Path) -> list[str]:
    """Only what is clearly a path is one; `./a` is the same as `a` in an argument, but another program."""
    program, *arguments = command
    if "/" in program:
        program = os.path.join(".", _same_path(program, base))
    is_path = re.compile(rf"(\./|\.\./|{re.escape(_inside(base))})\S*")
    return [program, *(_same_path(one, base) if is_path.fullmatch(one) else one for one in arguments)]
