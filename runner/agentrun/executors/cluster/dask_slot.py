"""In a Dask worker: the tasks that hold its slots, and the stream between the runner and the host beside it.

One host for each worker process, however many of its threads hold slots. It is told apart from the hosts of other
launches by the topic under which it announces itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import get_worker
from distributed.comm import CommClosedError

from agentrun.executors.cluster.relay import Relay

OPERATION = "agentrun"
LOOK_SECONDS = 0.2
LINGER_SECONDS = 30.0
"""How long the end of a host can still be heard of."""


@dataclass(eq=False)
class Beside:
    """The host beside a worker."""

    relay: Relay
    opening: asyncio.Future[None]
    slots: int = 0
    is_taken: bool = False
    """Whether a runner has its stream: there is only one."""


def hold_slot(spec: Mapping[str, Any]) -> None:
    """A task of the engine: the slot is there as long as it runs."""
    worker: Any = get_worker()
    loop = worker.loop.asyncio_loop
    key = worker.get_current_task()
    beside = asyncio.run_coroutine_threadsafe(_join(worker, spec), loop).result()
    try:
        while not beside.relay.ended.is_set():
            time.sleep(LOOK_SECONDS)
            task = worker.state.tasks.get(key)
            if task is None or task.state != "executing":
                return  # the runner is gone, or has given the slot back
    finally:
        asyncio.run_coroutine_threadsafe(_leave(worker, spec, beside), loop).result()


async def _join(worker: Any, spec: Mapping[str, Any]) -> Beside:
    hosts: dict[str, Beside] = worker.__dict__.setdefault("_agentrun_hosts", {})
    streams: dict[str, Beside] = worker.__dict__.setdefault("_agentrun_streams", {})
    worker.handlers.setdefault(OPERATION, _stream_of(streams))
    beside = hosts.get(spec["topic"])
    if beside is None:
        relay = Relay(spec)
        beside = hosts[spec["topic"]] = Beside(relay, asyncio.ensure_future(relay.open()))
        streams[relay.instance] = beside
    beside.slots += 1
    try:
        await asyncio.shield(beside.opening)
    except BaseException:
        hosts.pop(spec["topic"], None)
        streams.pop(beside.relay.instance, None)
        raise
    _announce(worker, spec, beside)
    return beside


async def _leave(worker: Any, spec: Mapping[str, Any], beside: Beside) -> None:
    hosts, streams = worker._agentrun_hosts, worker._agentrun_streams
    beside.slots -= 1
    if beside.slots == 0 or beside.relay.ended.is_set():
        if hosts.get(spec["topic"]) is beside:
            del hosts[spec["topic"]]
            asyncio.get_running_loop().call_later(LINGER_SECONDS, streams.pop, beside.relay.instance, None)
        await beside.relay.end()
    else:
        _announce(worker, spec, beside)


def _announce(worker: Any, spec: Mapping[str, Any], beside: Beside) -> None:
    said = {"instance": beside.relay.instance, "worker": worker.address, "slots": beside.slots}
    worker.log_event(spec["topic"], said)


def _stream_of(streams: Mapping[str, Beside]) -> Callable[..., Awaitable[None]]:
    """The handler of a connection of the runner. One stream for a host, and not a call for each message: Dask logs the
    content of calls at the level debug; and the end of the stream tells at once that the runner is gone."""

    async def stream(comm: Any, instance: str) -> None:
        beside = streams.get(instance)
        if beside is None or beside.is_taken:
            await comm.write({"unknown": True})
            return
        beside.is_taken = True
        down = asyncio.ensure_future(_carry_down(comm, beside.relay))
        try:
            while True:
                piece = await beside.relay.receive()
                await comm.write({"piece": piece})
                if not piece:
                    return
        except (CommClosedError, OSError):
            await beside.relay.end()
        finally:
            down.cancel()
            await asyncio.gather(down, return_exceptions=True)
            with suppress(CommClosedError, OSError):
                await comm.close()

    return stream


async def _carry_down(comm: Any, relay: Relay) -> None:
    try:
        while True:
            await relay.send((await comm.read())["piece"])
    except (CommClosedError, OSError):
        await relay.end()
