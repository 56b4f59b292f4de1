"""Dask as an engine: a slot is a long task, which starts a host beside its worker or joins the one that is there.

With `dask:module:Class` any of Dask's own deployers serves: Slurm, Kubernetes, SSH.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import logging
import math
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import dask

# Before `distributed` is imported, which reads it then: what it logs would be drawn into the launch's own lines.
dask.config.set({"logging": {"distributed": "critical", **(dask.config.get("logging", None) or {})}})

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
SHORT_SLOT_SECONDS, AGAIN_SECONDS = 5.0, 2.0
"""A slot that ended sooner than this is asked for again only after a pause."""
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

    # ---- the cluster

    async def connect(self) -> None:
        spec = self._spec
        try:
            if spec.address:
                where: Any = {"address": f"{'tls' if Security().tls_ca_file else 'tcp'}://{spec.address}"}
            elif spec.file:
                where = {"scheduler_file": spec.file}
            else:
                self._cluster = await self._start_cluster()
                where = {"address": self._cluster}
            self._client = await Client(
                **where, asynchronous=True, set_as_default=False, timeout=CONNECT_SECONDS, name="agentrun"
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise LaterError(
                f"{self.name}: no Dask scheduler answers there ({_words(error)}); start it, then resume"
            ) from error

    async def _start_cluster(self) -> Any:
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
            cluster = await LocalCluster(**{**options, **spec.options}, asynchronous=True)
        else:
            cluster = await self._deploy()
        if spec.adapt is not None:
            cluster.adapt(**spec.adapt)
        elif spec.deployer and "n_workers" not in spec.options and not cluster.scheduler_info["workers"]:
            # Such as a cluster of Slurm jobs, which has none at first.
            cluster.scale(cores=self._concurrency)
        return cluster

    async def _deploy(self) -> Any:
        module, _, name = self._spec.deployer.partition(":")
        try:
            deployer = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise UsageError(f'{self.name}: there is no package "{error.name}" here; install it') from error
        except AttributeError:
            raise UsageError(f"{self.name}: {module} has no {name}; write dask:MODULE:CLASS") from None
        try:
            return await deployer(**self._spec.options, asynchronous=True)
        except TypeError as error:
            raise UsageError(f"{self.name}: {name} does not take [engine.options] as they are: {error}") from error

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
    return f"{type(error).__name__}: {error}".rstrip(": ")
