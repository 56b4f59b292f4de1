"""Dask as an engine: a slot is a long task, which starts a host beside its worker or joins the one that is there.

With `dask:module:Class` any of Dask's own deployers serves: Slurm, Kubernetes, SSH.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask

# Before `distributed` is imported, which reads it then: what it logs would be drawn into the launch's own lines.
SILENT = dict.fromkeys(("distributed", "distributed.client", "tornado.application"), "critical")
dask.config.set({"logging": {**SILENT, **(dask.config.get("logging", None) or {})}})

from distributed import Client, Security  # noqa: E402
from distributed.comm import CommClosedError, connect, get_address_host  # noqa: E402

from agentrun.errors import LaterError  # noqa: E402
from agentrun.executors.cluster.dask_clusters import CLOSE_SECONDS, OwnCluster, words  # noqa: E402
from agentrun.executors.cluster.dask_slot import OPERATION, hold_slot  # noqa: E402
from agentrun.executors.cluster.knock import knock  # noqa: E402
from agentrun.executors.cluster.port import Broken, HostSpec  # noqa: E402

if TYPE_CHECKING:
    from agentrun.job.engine import EngineSpec

CONNECT_SECONDS = 30.0
FENCE_SECONDS = 10.0
SHORT_SLOT_SECONDS, AGAIN_SECONDS = 5.0, 2.0
"""A slot that ended sooner than this is asked for again only after a pause."""


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
            raise Broken(_why(error)) from None

    async def send(self, data: bytes) -> None:
        try:
            await self._comm.write({"piece": data})
        except Exception as error:
            raise Broken(_why(error)) from None

    async def receive(self) -> bytes:
        try:
            found = await self._comm.read()
        except Exception as error:
            raise Broken(_why(error)) from None
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
        self._own: OwnCluster | None = None
        self._client: Any = None
        self._unreached: dict[str, str] = {}
        """Workers to which there is no connection, and why."""

    # ---- the cluster

    async def connect(self) -> None:
        spec = self._spec
        if spec.address:
            await knock(spec.on, "Dask scheduler", spec.address)
            where: Any = {"address": f"{'tls' if Security().tls_ca_file else 'tcp'}://{spec.address}"}
        elif spec.file:
            address = self._address_in(Path(spec.file))
            if address.startswith(("tcp:", "tls:")):
                await knock(spec.on, "Dask scheduler", address.rpartition("/")[2])
            where = {"address": address}
        else:
            self._own = OwnCluster(spec, concurrency=self._concurrency)
            where = {"address": await self._own.start()}
        try:
            self._client = await Client(
                **where, asynchronous=True, set_as_default=False, timeout=CONNECT_SECONDS, name="agentrun"
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise LaterError(
                f"{spec.on}: no Dask scheduler answers there ({words(error)}); start it, or correct --on, then resume"
            ) from error

    def _address_in(self, file: Path) -> str:
        """The scheduler's. Dask itself would wait for the file, and for its end, for ever."""
        on = self._spec.on
        try:
            return str(json.loads(file.read_text())["address"])
        except FileNotFoundError:
            why = f"there is no file {file}"
        except (OSError, ValueError, TypeError, LookupError):
            why = f"{file} is not the file of a scheduler"
        raise LaterError(f"{on}: {why}; start the scheduler with --scheduler-file {file}, then resume")

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
        said = f"it has {_counted(len(workers), 'worker')} with {_counted(threads, 'thread')}"
        if self._spec.resources:
            offered = sorted({name for one in workers.values() for name in one.get("resources", {})})
            said += f" and {', '.join(offered) or 'no resources'}"
        for worker, why in self._unreached.items():
            said += f"; {worker} cannot be reached from here: {why}"
        return said

    async def close(self) -> None:
        if self._client is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._client.close()
        if self._own is not None:
            await self._own.close()

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
        known: dict[str, DaskTube] = {}
        opened: asyncio.Queue[DaskTube] = asyncio.Queue()
        opening: set[asyncio.Task[None]] = set()

        async def open_tube(tube: DaskTube) -> None:
            try:
                await tube.open()
            except Broken as error:
                # A host that nobody speaks to ends by its lease, and its slots with it.
                self._unreached[tube.where] = str(error)
            else:
                self._unreached.pop(tube.where, None)
                opened.put_nowait(tube)

        def hear(event: tuple[float, Mapping[str, Any]]) -> None:
            said = event[1]
            if (tube := known.get(said["instance"])) is not None:
                tube.slots = said["slots"]
                changed()
                return
            tube = known[said["instance"]] = DaskTube(self._client, said["worker"], said["instance"], said["slots"])
            opening.add(task := asyncio.ensure_future(open_tube(tube)))
            task.add_done_callback(opening.discard)

        keepers = [asyncio.ensure_future(self._keep_slot(number, spec, hear)) for number in range(wanted)]
        try:
            while True:
                yield await opened.get()
        finally:
            for task in (*keepers, *opening):
                task.cancel()

    async def _keep_slot(self, number: int, spec: HostSpec, hear: Callable[[Any], None]) -> None:
        """One task at any time. Where its worker dies, the scheduler runs it again elsewhere: an empty slot."""
        loop = asyncio.get_running_loop()
        while True:
            key = f"{self._topic}-slot-{number}-{uuid.uuid4().hex[:8]}"
            began = loop.time()
            try:
                # Each time: a scheduler that was started again knows of no subscription.
                self._client.subscribe_topic(self._topic, hear)
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


def _why(error: Exception) -> str:
    """Dask's own words are about sockets."""
    return "the connection was lost" if isinstance(error, CommClosedError) else words(error)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
