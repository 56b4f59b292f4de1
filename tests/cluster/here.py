"""An engine for tests: its hosts are real processes, beside this one, and everything between can be made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from agentrun.executors.cluster.frames import make_frame
from agentrun.executors.cluster.lanes import URGENT, Incoming, Outgoing
from agentrun.executors.cluster.port import Broken, HostSpec
from agentrun.executors.cluster.relay import Relay


def on_lanes(kind: str, parts: Mapping[str, bytes] | None = None, /, **fields: Any) -> bytes:
    """A frame, as it crosses a tube; not a large one."""
    outgoing = Outgoing()
    outgoing.put(make_frame(kind, parts, **fields), is_urgent=kind in URGENT)
    return b"".join(iter(outgoing.take, b""))


class HereTube:
    """The way to one host. `cut` breaks it; `hold` keeps what the runner sends on its way.

    A slow one takes what it is given at once, as Dask does, and brings it at so many bytes a second, each way.
    """

    def __init__(self, relay: Relay, where: str, slots: int, *, bytes_per_second: float = 0.0) -> None:
        self.relay = relay
        self.where = where
        self.slots = slots
        self.is_cut = asyncio.Event()
        self.passes = asyncio.Event()
        self.passes.set()
        self.has_ended = asyncio.Event()
        self.sent: list[str] = []
        """The types of the frames that the runner has sent."""
        self._incoming = Incoming()
        self._bytes_per_second = bytes_per_second
        self._down_at = 0.0
        """When the slow line has brought what it was given so far."""

    @property
    def pid(self) -> int:
        return self.relay._process.pid

    def cut(self) -> None:
        """From now on nothing passes, and nobody hears of it: the host is alive, and cut off."""
        self.is_cut.set()

    def hold(self) -> None:
        self.passes.clear()

    def release(self) -> None:
        self.passes.set()

    async def send(self, data: bytes) -> None:
        await self.passes.wait()
        self.sent += [frame.type for frame in self._incoming.feed(data)]
        if not self.is_cut.is_set():
            await self._bring(data)

    async def _bring(self, data: bytes) -> None:
        if not self._bytes_per_second:
            await self.relay.send(data)
            return
        loop = asyncio.get_running_loop()
        self._down_at = max(loop.time(), self._down_at) + len(data) / self._bytes_per_second
        # In order: tasks that are due at the same moment begin in the order in which they were made.
        loop.call_at(self._down_at, lambda: asyncio.ensure_future(self.relay.send(data)))

    async def receive(self) -> bytes:
        receiving = asyncio.ensure_future(self.relay.receive())
        cutting = asyncio.ensure_future(self.is_cut.wait())
        try:
            await asyncio.wait({receiving, cutting}, return_when=asyncio.FIRST_COMPLETED)
            if self.is_cut.is_set():
                raise Broken("the cable is cut")
            piece = receiving.result()
        finally:
            cutting.cancel()
            if not receiving.done():
                receiving.cancel()
        if not piece:
            self.has_ended.set()
        elif self._bytes_per_second:
            await asyncio.sleep(len(piece) / self._bytes_per_second)
        return piece

    async def close(self) -> None:
        self.has_ended.set()


class HereEngine:
    """Gives `hosts` hosts at a time, each with as many slots as `slots` says."""

    name = "here"

    def __init__(self, *, hosts: int = 1, slots: int = 1, bytes_per_second: float = 0.0) -> None:
        self._hosts, self.slots, self._bytes_per_second = hosts, slots, bytes_per_second
        self.tubes_so_far: list[HereTube] = []
        self.is_alive = True
        self.is_silent = False
        """Whether its workers do not answer, though hosts can still be started."""
        self.given = asyncio.Event()
        """Whether slots are given."""
        self.given.set()
        self.answers: dict[str, Any] = {}
        """What workers answer, in place of what the function returns."""
        self.fenced = 0

    async def connect(self) -> None:
        pass

    def caution(self, *, has_secrets: bool) -> str:
        return ""

    async def everywhere(self, function: Callable[..., Any], *args: Any) -> Mapping[str, Any]:
        if self.is_silent:
            return {"worker-0": TimeoutError()}
        found = await asyncio.to_thread(function, *args)
        self.fenced += 1
        return {"worker-0": found, **self.answers}

    async def tubes(self, wanted: int, spec: HostSpec, changed: Callable[[], None]) -> AsyncIterator[HereTube]:
        queue: asyncio.Queue[HereTube] = asyncio.Queue()
        keepers = [asyncio.ensure_future(self._keep(queue, spec)) for _ in range(self._hosts)]
        try:
            while True:
                yield await queue.get()
        finally:
            for keeper in keepers:
                keeper.cancel()

    async def _keep(self, queue: asyncio.Queue[HereTube], spec: HostSpec) -> None:
        while True:
            await self.given.wait()
            relay = Relay(spec.as_json())
            await relay.open()
            where = f"worker-{len(self.tubes_so_far)}"
            tube = HereTube(relay, where, self.slots, bytes_per_second=self._bytes_per_second)
            self.tubes_so_far.append(tube)
            queue.put_nowait(tube)
            await tube.has_ended.wait()

    async def describe(self) -> str:
        if not self.is_alive:
            raise ConnectionRefusedError("nobody is there")
        return "it has 0 workers"

    async def close(self) -> None:
        for tube in self.tubes_so_far:
            # Those that were asked to close have ended by now.
            if tube.relay._process.poll() is None:
                tube.relay._process.kill()
        await asyncio.gather(*(tube.relay.end() for tube in self.tubes_so_far))
