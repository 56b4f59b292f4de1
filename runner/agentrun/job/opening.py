"""Open a job: from a reference and flags to a checked job and the folder of its state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from agentrun.errors import JobError, UsageError
from agentrun.job.build import build_job, job_name, prompt_file
from agentrun.job.env import load_env_file
from agentrun.job.fields import FLAGS_LABEL, KEPT_LABEL, KINDS, Layer
from agentrun.job.file import default_name, read_job_file
from agentrun.job.home import Found, OpenPlace, find_job, read_kept_job, state_root
from agentrun.job.job import Job
from agentrun.job.kept import JOB_JSON, KeptJob, encode_job_json
from agentrun.system.trust import TRUST_VARIABLE


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A checked job, where its state is, and what to keep for the next launch."""

    job: Job
    root: Path
    """The state folder."""
    kept: Layer
    """The flags that later launches keep."""
    job_json: bytes


def open_job(
    ref: str | None,
    *,
    open_place: OpenPlace,
    found: Found | None = None,
    flags: Layer | None = None,
    cwd: Path | None = None,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> OpenJob:
    """The job that `ref` means (a job file, file.py:function, a known name; None: the flags alone).

    `found` is what `find_job` found for `ref`, if that was done already. `flags` override what
    was kept with an unfinished run, and that overrides the file.
    """
    cwd = (cwd or Path.cwd()).absolute()
    environ = os.environ if environ is None else environ
    flags = flags or Layer(FLAGS_LABEL)
    if found is None and ref is not None:
        found = find_job(ref, cwd, state_dir, environ, open_place=open_place)
    base_layers, base, file, default = _foundation(found, flags, cwd, state_dir, environ, open_place)
    if found is not None and found.root is not None:
        root, name = found.root, found.name
    else:
        root = state_root(base, state_dir, environ)
        name = job_name([*base_layers, flags], has_file=file is not None, default_name=default)
    kept = None if fresh else open_place(root).kept_flags(name)
    layers = [*base_layers, kept, flags] if kept is not None else [*base_layers, flags]
    job = build_job(layers, base=base, file=file, default_name=default)
    asked = (kept or Layer(KEPT_LABEL)).merge(flags)
    if file is not None:
        remembered = KeptJob(base=base, file=file, layer=asked)
    else:
        values = reduce(Layer.merge, [*layers, Layer(JOB_JSON, {"name": job.name})], Layer(JOB_JSON))
        remembered = KeptJob(base=base, layer=values)
    return OpenJob(job, root, asked, encode_job_json(remembered, root=root))


def _foundation(
    found: Found | None,
    flags: Layer,
    cwd: Path,
    state_dir: str | None,
    environ: Mapping[str, str],
    open_place: OpenPlace,
) -> tuple[list[Layer], Path, Path | None, str]:
    """The layers below the kept and the given flags; the base, the job file, and the default name."""
    if found is not None and found.kind == "file" and found.file is not None:
        return _from_file(found.file)
    if found is not None and found.kind == "known":
        if found.kept is None:
            raise UsageError(f"{found.name}: its job.json is gone; give the job file, or the flags, again")
        if found.kept.file is not None:
            return _from_file(found.kept.file, found.kept.layer)
        return [found.kept.layer], found.kept.base, None, found.name
    layers: list[Layer] = []
    name = flags.get("name")
    if found is not None and found.agent is not None:
        path, _, function = found.agent.rpartition(":")
        name = name or function.rpartition(".")[2] or Path(path).stem
        layers = [Layer(FLAGS_LABEL, {"agent": found.agent})]
    if name is None:
        name = _name_of_agent(flags)
    if not any(kind in flags.get("items", {}) for kind in KINDS):
        # Without items this can only mean the job of that name as it was asked for before.
        root = state_root(cwd, state_dir, environ)
        before = read_kept_job(open_place(root), str(name), root)
        if before is not None and before.file is None:
            layers = [before.layer, *layers]
    return layers, cwd, None, str(name)


def _name_of_agent(flags: Layer) -> str:
    """The name of a job given by flags alone: that of its program, or of its prompt's file."""
    if prompt := flags.get("prompt"):
        path = prompt_file(prompt)
        return (Path(path).stem if path else "") or "prompt"
    return Path((flags.get("command") or [""])[0]).stem or "job"


def _from_file(file: Path, *more: Layer) -> tuple[list[Layer], Path, Path | None, str]:
    return [read_job_file(file), *more], file.parent, file, default_name(file)


def agent_environment(job: Job, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that `env_file` adds to the environment; JobError if one the agent needs is missing."""
    added: dict[str, str] = {}
    if job.env_file is not None:
        read = load_env_file(job.base / job.env_file)
        if TRUST_VARIABLE in read:
            raise JobError(f"{job.env_file}: sets {TRUST_VARIABLE}, which only the environment itself can")
        # The environment overrides the file, as in every tool that reads such files.
        added = {name: value for name, value in read.items() if name not in environ}
    missing = [name for name in job.needs_env if not (environ.get(name) or added.get(name))]
    if missing:
        where = job.env_file or "the environment"
        raise JobError(f"{job.name}: the agent needs {', '.join(missing)}; set it in {where}")
    return added
