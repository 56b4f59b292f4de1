"""Dask as an engine: a slot is a long task, which starts a host beside its worker or joins the one that is there.

With `dask:module:Class` any of Dask's own deployers serves: Slurm, Kubernetes, SSH.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import ipaddress
import logging
import math
import os
import signal
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import dask

# Before `distributed` is imported, which reads it then: what it logs would be drawn into the launch's own lines.
SILENT = {"distributed": "critical", "tornado.application": "critical"}
dask.config.set({"logging": {**SILENT, **(dask.config.get("logging", None) or {})}})

from distributed import Client, LocalCluster, Security  # noqa: E402
from distributed.comm import connect, get_address_host  # noqa: E402

from agentrun.errors import LaterError, UsageError  # noqa: E402
from agentrun.executors.cluster.dask_slot import OPERATION, hold_slot  # noqa: E402
from agentrun.executors.cluster.port import Broken, HostSpec  # noqa: E402

if TYPE_CHECKING:
    from agentrun.job.engine import EngineSpec

CONNECT_SECONDS = 30.0
FENCE_SECONDS = 10.0
CLOSE_SECONDS = 10.0
REPLACE_SECONDS = 5.0
SHORT_SLOT_SECONDS, AGAIN_SECONDS = 5.0, 2.0
"""A slot that ended sooner than this is asked for again only after a pause."""
IDLE_TIMEOUT = "30 minutes"
"""When a scheduler on another machine ends, and its workers, after the death of the runner: longer than any lease."""
PRELOAD = "agentrun.executors.cluster.dask_worker"


class DaskTube:
    """The stream to the host beside one worker."""

    def __init__(self, client: Any, worker: str, instance: str, slots: int) -> None:
        self._client, self._instance = client, instance
        self.where = worker
        self.slots = slots
        self._comm: Any = None

    async def open(self) -> None:
        try:
            arguments = self._client.security.get_connection_args("client")
            self._comm = await connect(self.where, timeout=CONNECT_SECONDS, **arguments)
            await self._comm.write({"op": OPERATION, "instance": self._instance, "reply": False})
        except Exception as error:
            raise Broken(_words(error)) from None

    async def send(self, data: bytes) -> None:
        try:
            await self._comm.write({"piece": data})
        except Exception as error:
            raise Broken(_words(error)) from None

    async def receive(self) -> bytes:
        try:
            found = await self._comm.read()
        except Exception as error:
            raise Broken(_words(error)) from None
        if "unknown" in found:
            raise Broken("the worker does not know this host")
        return bytes(found["piece"])

    async def close(self) -> None:
        self._comm.abort()


class DaskEngine:
    """A Dask cluster: one that is there, or one that is started for the launch."""

    def __init__(self, spec: EngineSpec, *, concurrency: int) -> None:
        self.name = spec.on
        self._spec = spec
        self._concurrency = concurrency
        self._topic = f"agentrun-{uuid.uuid4().hex[:12]}"
        self._cluster: Any = None
        self._client: Any = None
        self._replacing: asyncio.Task[None] | None = None

    # ---- the cluster

    async def connect(self) -> None:
        spec = self._spec
        try:
            if spec.address:
                where: Any = {"address": f"{'tls' if Security().tls_ca_file else 'tcp'}://{spec.address}"}
            elif spec.file:
                where = {"scheduler_file": spec.file}
            else:
                await self._start_cluster()
                where = {"address": self._cluster}
            self._client = await Client(
                **where, asynchronous=True, set_as_default=False, timeout=CONNECT_SECONDS, name="agentrun"
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise LaterError(
                f"{self.name}: no Dask scheduler answers there ({_words(error)}); start it, then resume"
            ) from error

    async def _start_cluster(self) -> None:
        """The cluster is there before it is up: of one that fails to start, `close` ends what has been started."""
        spec = self._spec
        if not spec.deployer:
            workers = max(1, min(self._concurrency, os.cpu_count() or 1))
            options: dict[str, Any] = {
                "n_workers": workers,
                "threads_per_worker": math.ceil(self._concurrency / workers),
                "processes": True,
                "host": "127.0.0.1",
                # None would still serve it, on all interfaces.
                "dashboard_address": "127.0.0.1:0",
                "silence_logs": logging.CRITICAL,
                "preload": PRELOAD,
            }
            self._cluster = LocalCluster(**{**options, **spec.options}, asynchronous=True)
            await self._cluster
            await self._size()
            return
        self._cluster = self._deploy()
        if spec.adapt is not None and not _can_grow(self._cluster):
            raise UsageError(f"{self.name}: [engine.options] name all workers, so they cannot adapt; leave adapt out")
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
            why = UsageError if isinstance(error.__cause__, ImportError) else LaterError
            raise why(
                f"{self.name}: the cluster could not be started ({_words(error)}); check [engine.options], then resume"
            ) from error

    def _deploy(self) -> Any:
        module, _, name = self._spec.deployer.partition(":")
        try:
            with _signals_kept():
                deployer = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise UsageError(f'{self.name}: there is no package "{error.name}" here; install it') from error
        except AttributeError:
            raise UsageError(f"{self.name}: {module} has no {name}; write dask:MODULE:CLASS") from None
        try:
            with warnings.catch_warnings():
                # KubeCluster makes a coroutine that nobody awaits, beside the one that starts it.
                warnings.simplefilter("ignore", RuntimeWarning)
                return deployer(**self._spec.options, asynchronous=True)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{self.name}: {name} does not take [engine.options] as they are: {error}") from error

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

    def caution(self, *, has_secrets: bool) -> str:
        address = str(self._client.scheduler.address)
        if not has_secrets or not address.startswith("tcp://") or _is_loopback(address):
            return ""
        return (
            f"{self.name}: the values of env_file and needs_env go to the workers without TLS; whoever can read the "
            f"network can read them"
        )

    async def describe(self) -> str:
        found = await self._client.scheduler.identity()
        workers: Mapping[str, Mapping[str, Any]] = found["workers"]
        threads = sum(int(one["nthreads"]) for one in workers.values())
        return f"it has {len(workers)} workers with {threads} threads"

    async def close(self) -> None:
        if self._replacing is not None:
            self._replacing.cancel()
        for one in (self._client, self._cluster):
            if one is not None:
                with suppress(Exception):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await one.close()

    # ---- workers

    async def everywhere(self, function: Callable[..., Any], *args: Any) -> Mapping[str, Any]:
        found = await self._client.scheduler.identity()
        workers = list(found["workers"])
        results = await asyncio.gather(*(self._on(worker, function, args) for worker in workers))
        return dict(zip(workers, results, strict=True))

    async def _on(self, worker: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        try:
            # A worker that is stopped would never answer.
            async with asyncio.timeout(FENCE_SECONDS):
                found = await self._client.run(function, *args, workers=[worker], on_error="return")
            return _restored(found.get(worker, LookupError(worker)))
        except Exception as error:
            return error

    async def tubes(self, wanted: int, spec: HostSpec, changed: Callable[[], None]) -> AsyncIterator[DaskTube]:
        said: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._client.subscribe_topic(self._topic, lambda event: said.put_nowait(event[1]))
        keepers = [asyncio.ensure_future(self._keep_slot(number, spec)) for number in range(wanted)]
        known: dict[str, DaskTube] = {}
        try:
            while True:
                event = await said.get()
                tube = known.get(event["instance"])
                if tube is not None:
                    tube.slots = event["slots"]
                    changed()
                    continue
                tube = DaskTube(self._client, event["worker"], event["instance"], event["slots"])
                known[event["instance"]] = tube
                # A host that nobody speaks to ends by its lease, and its slots with it.
                with suppress(Broken):
                    await tube.open()
                    yield tube
        finally:
            for keeper in keepers:
                keeper.cancel()

    async def _keep_slot(self, number: int, spec: HostSpec) -> None:
        """One task at any time. Where its worker dies, the scheduler runs it again elsewhere: an empty slot."""
        loop = asyncio.get_running_loop()
        while True:
            key = f"{self._topic}-slot-{number}-{uuid.uuid4().hex[:8]}"
            began = loop.time()
            try:
                future = self._client.submit(
                    hold_slot,
                    {**spec.as_json(), "topic": self._topic},
                    key=key,
                    pure=False,
                    retries=0,
                    resources=dict(self._spec.resources) or None,
                )
                await future.result()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
            except Exception as error:
                # Its workers died too often, or the scheduler is gone: asked again, until somebody gives up.
                logging.getLogger("agentrun").debug("slot %s: %r", key, error)
            if loop.time() - began < SHORT_SLOT_SECONDS:
                await asyncio.sleep(AGAIN_SECONDS)


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


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(get_address_host(address)).is_loopback
    except ValueError:
        return False


def _restored(result: Any) -> Any:
    """Dask sends an exception that it cannot pickle there, such as a failed import, as `Exception(repr(exception))`."""
    name = f"{ModuleNotFoundError.__name__}("
    if type(result) is Exception and str(result).startswith(name):
        return ModuleNotFoundError(str(result).removeprefix(name).rstrip(",)").strip('"'))
    return result


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
