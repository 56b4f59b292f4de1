"""What a job says about the cluster it runs on: `--on`, and the table [engine] of a job file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agentrun.job.fields import Value, Values
from agentrun.values.units import parse_duration

EngineKind = Literal["dask", "ray"]
HERE = "here"
"""The word for no cluster at all, where a job file or an earlier launch has one."""
LEASE_SECONDS = 30.0
LEAST_LEASE_SECONDS = 2.0
WORDS = (
    "dask, dask://HOST:8786, dask:/path/of/scheduler.json, dask:MODULE:CLASS, ssh, slurm, kubernetes, ray, "
    "ray:HOST:6379, ray://HOST:10001, or here"
)
_ALIASES = {
    "slurm": "dask:dask_jobqueue:SLURMCluster",
    "kubernetes": "dask:dask_kubernetes.operator:KubeCluster",
    "ssh": "dask:distributed:SSHCluster",
}
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^\s/:@\[\]]+):[0-9]{1,5}/?")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Which cluster, and what is asked of it."""

    on: str
    """As it was written, for messages."""
    kind: EngineKind
    address: str = ""
    """Host and port of a cluster that is there already."""
    file: str = ""
    """The path of a Dask scheduler file."""
    deployer: str = ""
    """`module:Class` of a Dask cluster that is started for the launch."""
    is_client: bool = False
    """Whether the address is of Ray's client server."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the cluster is made with."""
    adapt: Mapping[str, int] | None = None
    """`minimum` and `maximum` workers of a cluster that grows and shrinks."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """What each slot needs."""
    send: tuple[str, ...] = ()
    """The files and folders of the job that workers need; empty: all of them."""
    lease_seconds: float = LEASE_SECONDS


def read_engine(values: Values) -> EngineSpec | None:
    """None if the job runs on this machine alone."""
    below = values.below("engine")
    text = values.text("engine.on", f"write {WORDS}")
    if text is None:
        if below:
            raise next(iter(below.values())).refuse('needs a cluster: add one to [engine], such as on = "dask"')
        return None
    value = values.get("engine.on")
    assert value is not None
    found = _where(value, text.strip()) if text.strip() != HERE else {"kind": "dask"}
    spec = EngineSpec(
        on=text.strip(),
        options=_options(values, found),
        adapt=_adapt(values, found),
        resources=_numbers(values, "engine.resources", "such as { gpu = 1 }"),
        send=values.text_or_texts("engine.send", 'write a list of files and folders, such as ["agent.py", "prompts"]'),
        lease_seconds=_lease(values),
        **found,
    )
    return spec if spec.on != HERE else None


def _where(value: Value, text: str) -> dict[str, Any]:
    text = _ALIASES.get(text, text)
    kind, _, rest = text.partition(":")
    if kind == "dask":
        if not rest:
            return {"kind": "dask"}
        if rest.startswith("//") and _ADDRESS.fullmatch(rest[2:]):
            return {"kind": "dask", "address": rest[2:].rstrip("/")}
        if rest.endswith(".json"):
            return {"kind": "dask", "file": rest}
        if _CLASS.fullmatch(rest):
            return {"kind": "dask", "deployer": rest}
        raise value.wants("write dask://HOST:PORT, dask:/path/of/scheduler.json or dask:MODULE:CLASS")
    if kind == "ray":
        if not rest:
            return {"kind": "ray"}
        if rest.startswith("//") and _ADDRESS.fullmatch(rest[2:]):
            return {"kind": "ray", "address": rest[2:].rstrip("/"), "is_client": True}
        if _ADDRESS.fullmatch(rest):
            return {"kind": "ray", "address": rest}
        raise value.wants("write ray:HOST:6379, or ray://HOST:10001 for a client server")
    raise value.wants(f"write {WORDS}")


def _options(values: Values, where: Mapping[str, Any]) -> Mapping[str, Any]:
    if (value := values.get("engine.options")) is None:
        return {}
    if not isinstance(value.found, Mapping):
        raise value.wants("write a table: [engine.options] on a line of its own, its values below it")
    if where.get("address") or where.get("file"):
        raise value.refuse("works only with a cluster that the launch starts; remove it")
    return dict(value.found)


def _adapt(values: Values, where: Mapping[str, Any]) -> Mapping[str, int] | None:
    if (value := values.get("engine.adapt")) is None:
        return None
    what = "write { minimum = 0, maximum = 20 }"
    found = value.found
    if not isinstance(found, Mapping) or not found or set(found) - {"minimum", "maximum"}:
        raise value.wants(what)
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in found.values()):
        raise value.wants(what)
    if where["kind"] != "dask" or where.get("address") or where.get("file"):
        raise value.refuse("works only with a Dask cluster that the launch starts; remove it")
    if found.get("minimum", 0) > found.get("maximum", found.get("minimum", 0)):
        raise value.wants("write a minimum that is no more than the maximum")
    return dict(found)


def _numbers(values: Values, key: str, example: str) -> Mapping[str, float]:
    if (value := values.get(key)) is None:
        return {}
    found = value.found
    is_table = isinstance(found, Mapping)
    if not is_table or any(isinstance(n, bool) or not isinstance(n, int | float) or n <= 0 for n in found.values()):
        raise value.wants(f"write a table of numbers over 0, {example}")
    return {str(name): float(number) for name, number in found.items()}


def _lease(values: Values) -> float:
    seconds = values.parsed("engine.lease", parse_duration, LEASE_SECONDS)
    if seconds < LEAST_LEASE_SECONDS:
        value = values.get("engine.lease")
        assert value is not None
        raise value.wants(f'write {LEAST_LEASE_SECONDS:g} seconds or more, such as "30s"')
    return seconds
