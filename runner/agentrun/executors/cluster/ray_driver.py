"""A process of the runner that speaks with Ray: it asks for slots, and carries bytes between them and the runner.

Ray is used in a process of its own, because it does as it likes with the one that it is in: it takes signals, writes to
the terminal, blocks in calls while the cluster is gone, and ends the process with code 1 when it comes to the
conclusion that the cluster is not coming back. Here all that is no more than the end of a connection.

    runner → call       connect, everywhere or describe; driver → result or error, with the number of the call
    runner → slots      ask for slots from here on; enough: no longer
    driver → slot       a host is up: its number, and where it is; refused: there will never be one
    both   ↔ piece      bytes of or for a host
    driver → ended      nothing of the host is alive; broken: whether that is so is not known
    runner → drop       give the slot back

The end of the connection is the end of the process, and with it of everything that it asked the cluster for. A cluster
that it started itself ends with it, too: the kernel sees to that.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray.exceptions import AuthenticationError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from agentrun.executors.cluster.frames import Cutter, HostFrame, make_frame
from agentrun.executors.cluster.ray_slot import PIECE_BYTES, Slot

FENCE_SECONDS = 30.0
"""How long a node may take to answer: Ray may have to start a process there first."""
SHORT_SLOT_SECONDS, AGAIN_SECONDS = 5.0, 2.0
"""A slot that ended sooner than this is asked for again only after a pause."""
MOST_AT_A_TIME = 8
"""Calls of an actor that may be under way: the long one that waits for bytes, and those that bring some."""
READ_BYTES = 1 << 20
OF_RAY = {"cpu": "num_cpus", "gpu": "num_gpus", "memory": "memory"}
"""The resources that Ray itself knows. All others are names that somebody gave to nodes."""


class Refused(Exception):
    """What was asked for is wrong, and stays wrong."""


def call(module: str, name: str, args: list[Any]) -> Any:
    """A task of the engine. This module runs as a program, so Ray sends this function by value: it can also tell that
    there is no agentrun where it runs."""
    from importlib import import_module

    return getattr(import_module(module), name)(*args)


class Driver:
    """The driver's end of the connection. All but what blocks is on one event loop."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._is_client = False
        self._is_local = False
        self._node = ""
        self._is_wanted = False
        self._keepers: list[asyncio.Task[None]] = []
        self._held: dict[int, HeldSlot] = {}
        self._number = 0
        self._answering: set[asyncio.Task[None]] = set()

    def tell(self, kind: str, parts: Mapping[str, bytes] | None = None, /, **fields: Any) -> None:
        self._writer.write(make_frame(kind, parts, **fields))

    def receive(self, frame: HostFrame) -> None:
        value = frame.value
        match frame.type:
            case "call":
                task = asyncio.ensure_future(self._answer(value["no"], value["name"], value["arguments"]))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case "slots":
                self._is_wanted = True
                keep = partial(self._keep_slot, value["spec"], value["resources"])
                self._keepers = [asyncio.ensure_future(keep()) for _ in range(value["wanted"])]
            case "enough":
                self._is_wanted = False
                for keeper in self._keepers:
                    keeper.cancel()
            case "piece" if value["slot"] in self._held:
                self._held[value["slot"]].down.put_nowait(frame.parts["piece"])
            case "drop" if value["slot"] in self._held:
                self._held.pop(value["slot"]).task.cancel()

    async def _answer(self, no: int, name: str, arguments: Mapping[str, Any]) -> None:
        ways: Mapping[str, Callable[..., Any]] = {
            "connect": self.connect,
            "everywhere": self.everywhere,
            "describe": self.describe,
        }
        try:
            self.tell("result", no=no, result=await ways[name](**arguments))
        except Exception as error:
            self.tell("error", no=no, message=words(error), is_refused=isinstance(error, Refused))

    # ---- the cluster

    async def connect(self, address: str, is_client: bool, options: Mapping[str, Any]) -> list[str]:
        """The addresses of its nodes. In the main thread: a cluster of our own ends with the thread that started it."""
        self._is_client, self._is_local = is_client, not address
        try:
            if not address:
                ray.init(address="local", **options)
            elif is_client:
                ray.init(address=f"ray://{address}")
            else:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            if self._is_local and (isinstance(error, TypeError | ValueError) or "nknown keyword" in str(error)):
                raise Refused(f"it does not take [engine.options] as they are: {error}") from error
            raise explained(error) from error
        if not is_client:
            self._node = ray.get_runtime_context().get_node_id()
        return [str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]]

    async def describe(self) -> str:
        return await asyncio.to_thread(self._describe)

    def _describe(self) -> str:
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        if not alive or (self._node and self._node not in alive):
            raise ConnectionError("the node that the runner is connected to is dead")
        all_of_them = sum(node["Resources"].get("CPU", 0.0) for node in alive.values())
        free = ray.available_resources().get("CPU", 0.0)
        return f"it has {len(alive)} nodes with {all_of_them:g} CPUs, of which {free:g} are free"

    def end(self) -> None:
        """Take back what was asked for; a cluster of our own ends."""
        with suppress(Exception):
            ray.shutdown(**({"wait_for_processes": True} if self._is_local else {}))

    # ---- nodes

    async def everywhere(self, module: str, name: str, args: list[Any]) -> dict[str, dict[str, Any]]:
        nodes = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
        found = await asyncio.gather(*(self._on(node["NodeID"], module, name, args) for node in nodes))
        return {
            f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})": one for node, one in zip(nodes, found, strict=True)
        }

    async def _on(self, node: str, module: str, name: str, args: list[Any]) -> dict[str, Any]:
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        task = ray.remote(call).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
        try:
            async with asyncio.timeout(FENCE_SECONDS):
                return {"result": await awaited(task.remote(module, name, args))}
        except Exception as error:
            cause = error.cause if isinstance(error, RayTaskError) else error
            return {"error": str(cause) or type(cause).__name__, "is_import": isinstance(cause, ModuleNotFoundError)}

    # ---- slots

    async def _keep_slot(self, spec: Mapping[str, Any], resources: Mapping[str, float]) -> None:
        """One actor at any time."""
        loop = asyncio.get_running_loop()
        while self._is_wanted:
            began = loop.time()
            try:
                # May block while the cluster is gone.
                actor = await asyncio.to_thread(make_actor, resources)
            except (TypeError, ValueError) as error:
                self.tell("refused", message=f"it does not take the resources as they are: {error}")
                return
            try:
                where = await awaited(actor.open.remote(spec))
            except asyncio.CancelledError:
                in_background(ray.kill, actor)
                raise
            except Exception:
                # The process could not be started, or died: asked again, until somebody gives up.
                in_background(ray.kill, actor)
            else:
                self._number += 1
                held = self._held[self._number] = HeldSlot(self, self._number, actor)
                self.tell("slot", slot=self._number, where=where)
                # Not ended by `enough`: what runs there may come to its end.
                await asyncio.wait([held.task])
            if loop.time() - began < SHORT_SLOT_SECONDS:
                await asyncio.sleep(AGAIN_SECONDS)


class HeldSlot:
    """A slot that is up, and the bytes for and of its host. Its task ends with it."""

    def __init__(self, driver: Driver, number: int, actor: Any) -> None:
        self._driver, self._number, self._actor = driver, number, actor
        self.down: asyncio.Queue[bytes] = asyncio.Queue()
        self.task = asyncio.ensure_future(self._hold())

    async def _hold(self) -> None:
        ways = [asyncio.ensure_future(one) for one in (self._carry_down(), self._carry_up())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            error = next((error for way in ways if way.done() and (error := way.exception())), None)
            if error is None:
                self._driver.tell("ended", slot=self._number)
            else:
                self._driver.tell("broken", slot=self._number, why=words(error))
        finally:
            for way in ways:
                way.cancel()
            in_background(ray.kill, self._actor)

    async def _carry_down(self) -> None:
        while True:
            data = await self.down.get()
            # One after the other: Ray may begin calls that overlap in any order.
            for at in range(0, len(data), PIECE_BYTES):
                await awaited(self._actor.send.remote(data[at : at + PIECE_BYTES]))

    async def _carry_up(self) -> None:
        while piece := await awaited(self._actor.receive.remote()):
            self._driver.tell("piece", {"piece": piece}, slot=self._number)


def make_actor(resources: Mapping[str, float]) -> Any:
    others = {name: number for name, number in resources.items() if name.lower() not in OF_RAY}
    asked = {OF_RAY[name.lower()]: number for name, number in resources.items() if name not in others}
    return (
        ray.remote(Slot)
        .options(
            **{"num_cpus": 1, **asked},
            resources=others or None,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=MOST_AT_A_TIME,
        )
        .remote()
    )


async def awaited(ref: Any) -> Any:
    """A coroutine, which references are not."""
    return await ref


def in_background(function: Callable[..., Any], *args: Any) -> None:
    """Whatever it comes to, and however long it takes."""

    def quietly() -> None:
        with suppress(Exception):
            function(*args)

    asyncio.get_running_loop().run_in_executor(None, quietly)


def explained(error: BaseException) -> Exception:
    """What an error of `ray.init` means."""
    chain: list[BaseException] = []
    while error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__ or error
    text = " ".join(str(one) for one in chain)
    if any(isinstance(one, AuthenticationError) for one in chain) or "AuthenticationError" in text:
        return Refused("it asks for another token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH")
    if "ray[client]" in text:
        return Refused("the client of Ray is not installed; get it with: pip install 'ray[client]'")
    if "ersion mismatch" in text:
        return Refused(" ".join(text.split()))
    if "No node info found" in text:
        return Refused("this machine is not a node of it; give the address of its client server: ray://HOST:10001")
    return ConnectionError(words(chain[0]))


def words(error: BaseException) -> str:
    """One line, of what may be a page."""
    if isinstance(error, Refused | ConnectionError) and error.args:
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".rstrip(": ")


async def serve(connection: socket.socket) -> None:
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)
    driver, cutter = Driver(writer), Cutter()
    with suppress(OSError):
        while piece := await reader.read(READ_BYTES):
            for frame in cutter.feed(piece):
                driver.receive(frame)
    driver.end()
    # At once: threads may be held up in calls of Ray for ever.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
