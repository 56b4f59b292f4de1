"""The engines by their names. Each imports its library only when it is used."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentrun.errors import UsageError
from agentrun.executors.cluster.port import Engine

if TYPE_CHECKING:
    from agentrun.job.job import Job


def open_engine(job: Job) -> Engine:
    """The engine of a job, not connected yet; UsageError if its library is not installed."""
    spec = job.engine
    assert spec is not None
    try:
        if spec.kind == "dask":
            from agentrun.executors.cluster.dask_engine import DaskEngine

            if spec.file:
                spec = replace(spec, file=str(job.base / spec.file))
            return DaskEngine(spec, concurrency=job.concurrency)
        from agentrun.executors.cluster.ray_engine import RayEngine

        return RayEngine(spec, concurrency=job.concurrency)
    except ModuleNotFoundError as error:
        raise UsageError(
            f'{spec.on}: the package "{error.name}" is not installed; install the extra: pip install '
            f"'agentrun-batch[{spec.kind}]'"
        ) from error
