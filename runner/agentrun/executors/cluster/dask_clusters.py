"""Dask clusters that are started for a launch, and end with it: on this machine, or by one of Dask's own deployers."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import math
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import dask
from distributed import LocalCluster, Nanny, Worker

from agentrun.errors import LaterError, UsageError

if TYPE_CHECKING:
    from agentrun.job.engine import EngineSpec

CLOSE_SECONDS = 10.0
REPLACE_SECONDS = 5.0
IDLE_TIMEOUT = "30 minutes"
"""When a scheduler on another machine ends, and its workers, after the death of the runner: longer than any lease."""
PRELOAD = "agentrun.executors.cluster.dask_worker"


class OwnCluster:
    """One cluster. It is there before it is up: of one that fails to start, `close` ends what has been started."""

    def __init__(self, spec: EngineSpec, *, concurrency: int) -> None:
        self._spec, self._concurrency = spec, concurrency
        self._cluster: Any = None
        self._replacing: asyncio.Task[None] | None = None

    async def start(self) -> Any:
        """The cluster, as a client takes it. UsageError if it is asked for wrongly, LaterError if it does not start."""
        spec = self._spec
        self._cluster = self._make()
        if spec.adapt is not None and not _can_grow(self._cluster):
            raise UsageError(f"{spec.on}: [engine.options] name all workers, so they cannot adapt; remove adapt")
        elsewhere: dict[str, Any] = {}
        if not isinstance(self._cluster, LocalCluster):
            # SSHCluster hands our configuration on, and waits until what it has started logs that it is up.
            idle = dask.config.get("distributed.scheduler.idle-timeout", None) or IDLE_TIMEOUT
            elsewhere = {"logging": {"distributed": "info"}, "distributed.scheduler.idle-timeout": idle}
        try:
            with dask.config.set(elsewhere):
                await self._cluster
            await self._size()
        except Exception as error:
            raise self._explained(error) from error
        return self._cluster

    async def close(self) -> None:
        if self._replacing is not None:
            self._replacing.cancel()
        if self._cluster is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._cluster.close()

    def _make(self) -> Any:
        spec = self._spec
        if not spec.deployer:
            return self._made(LocalCluster, {**self._local_options(), **spec.options})
        module, _, name = spec.deployer.partition(":")
        try:
            with _signals_kept():
                deployer = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise UsageError(f'{spec.on}: there is no package "{error.name}" here; install it') from error
        except AttributeError:
            raise UsageError(f"{spec.on}: {module} has no {name}; write dask:MODULE:CLASS") from None
        # SSHCluster is a function.
        if inspect.isclass(deployer) and not hasattr(deployer, "scale"):
            raise UsageError(
                f"{spec.on}: {name} is not a cluster class of Dask; write one, such as dask:distributed:LocalCluster"
            )
        return self._made(deployer, dict(spec.options))

    def _made(self, deployer: Any, options: dict[str, Any]) -> Any:
        if deployer is LocalCluster and (unknown := options.keys() - _known_options()):
            # It hands them on to processes, which die of it loudly.
            raise UsageError(self._rejected("LocalCluster", f"it has no option {min(unknown)!r}"))
        try:
            with warnings.catch_warnings():
                # KubeCluster makes a coroutine that nobody awaits, beside the one that starts it.
                warnings.simplefilter("ignore", RuntimeWarning)
                return deployer(**options, asynchronous=True)
        except (TypeError, ValueError) as error:
            raise UsageError(self._rejected(deployer.__name__, error)) from error

    def _local_options(self) -> dict[str, Any]:
        workers = max(1, min(self._concurrency, os.cpu_count() or 1))
        return {
            "n_workers": workers,
            "threads_per_worker": math.ceil(self._concurrency / workers),
            "processes": True,
            "host": "127.0.0.1",
            # None would still serve it, on all interfaces.
            "dashboard_address": "127.0.0.1:0",
            "silence_logs": logging.CRITICAL,
            "preload": PRELOAD,
        }

    def _rejected(self, name: str, error: object) -> str:
        return f"{self._spec.on}: {name} rejected [engine.options]: {error}; correct them in the job file"

    def _explained(self, error: Exception) -> UsageError | LaterError:
        """What an error at the start means. The cause of the cause says it best."""
        on, cause = self._spec.on, innermost(error)
        if isinstance(cause, TypeError) and "unexpected keyword" in str(cause):
            return UsageError(self._rejected(type(self._cluster).__name__, cause))
        if isinstance(cause, FileNotFoundError) and cause.filename:
            return UsageError(
                f'{on}: there is no command "{cause.filename}" on this machine; start the job where it works, such as '
                f"on a login node"
            )
        if isinstance(error.__cause__, ImportError):
            return UsageError(f"{on}: the cluster could not be started ({words(error)}); install what it needs")
        hint = "check [engine.options], then resume"
        if not self._spec.deployer and not _is_guarded():
            hint = 'a script that calls agentrun.run needs: if __name__ == "__main__":'
        return LaterError(f"{on}: the cluster could not be started ({words(error)}); {hint}")

    async def _size(self) -> None:
        """Ask for workers. What asks for them is a coroutine with some deployers, and with others done on return."""
        spec, cluster = self._spec, self._cluster
        if "n_workers" not in spec.options and _can_grow(cluster) and not _has_workers(cluster):
            # Such as a cluster of Slurm jobs, which has none at first.
            if spec.adapt is not None:
                wanted = {"n": max(1, spec.adapt.get("minimum", 0))}
            else:
                knows_cores = "cores" in inspect.signature(cluster.scale).parameters
                wanted = {"cores" if knows_cores else "n": self._concurrency}
            await _finish(cluster.scale(**wanted))
            # Here a job that is refused is an error. Once the cluster adapts, it would be one that nobody sees.
            await cluster
        if spec.adapt is not None:
            await _finish(cluster.adapt(**spec.adapt))
        elif spec.deployer and _can_grow(cluster):
            self._replacing = asyncio.ensure_future(self._replace_lost())

    async def _replace_lost(self) -> None:
        """Workers for those that are gone, such as Slurm jobs at their walltime. A cluster that adapts sees to it."""
        while True:
            await asyncio.sleep(REPLACE_SECONDS)
            with suppress(Exception):
                # Not cut off in the middle of a submission, or nobody would know of the job.
                await asyncio.shield(_finish(self._cluster))


def _known_options() -> set[str]:
    """The options of a LocalCluster: its own, and those of the processes that it starts."""
    classes = {one for kind in (LocalCluster, Nanny, Worker) for one in kind.__mro__}
    return {name for one in classes for name in inspect.signature(one.__init__).parameters}


def innermost(error: BaseException) -> BaseException:
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__ or error
    return error


def words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")


def _is_guarded() -> bool:
    """Whether the program may be started again for each worker process, as multiprocessing does: ours may."""
    return os.path.basename(getattr(sys.modules["__main__"], "__file__", None) or "agentrun") == "agentrun"


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Importing dask_jobqueue 0.9.0 makes Ctrl-C end the process at once; in a thread, as of a notebook, it fails."""
    take = signal.signal
    signal.signal = lambda number, _: signal.getsignal(number)  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = take


def _can_grow(cluster: Any) -> bool:
    """Not with SSHCluster, which does not know of what kind another worker would be."""
    return getattr(cluster, "new_spec", ...) is not None


def _has_workers(cluster: Any) -> bool:
    """Also if they are still on the way, where the deployer has such a plan."""
    return bool(getattr(cluster, "plan", None) or cluster.scheduler_info["workers"])


async def _finish(found: Any) -> None:
    if inspect.isawaitable(found):
        await found
