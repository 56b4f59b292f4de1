"""Ray as an engine: a slot is an actor, which starts a host beside it.

What Ray is asked goes by a process of its own (`ray_driver.py`). A Ray that is started for the launch is in
`ray_local.py`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any

from agentrun.errors import LaterError, UsageError
from agentrun.executors.cluster.frames import Cutter, HostFrame, make_frame
from agentrun.executors.cluster.knock import knock
from agentrun.executors.cluster.port import Broken, HostSpec
from agentrun.executors.cluster.ray_local import SessionFolder, make_environ, make_options

if TYPE_CHECKING:
    from agentrun.job.engine import EngineSpec

if find_spec("ray") is None:
    raise ModuleNotFoundError("there is no package ray", name="ray")

CONNECT_SECONDS = 30.0
START_SECONDS = 120.0
"""How long a Ray of our own may take to start, or a process of it: some 6 s, and several times that on a busy
machine."""
CLOSE_SECONDS = 10.0
READ_BYTES = 1 << 20


class RayTube:
    """The bytes for and of the host of one slot."""

    slots = 1

    def __init__(self, engine: RayEngine, number: int, where: str) -> None:
        self._engine, self._number = engine, number
        self.where = where
        self.arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        """What the host sent, in order; None: the way to it is broken."""
        self._broken = ""

    async def send(self, data: bytes) -> None:
        if self._broken:
            raise Broken(self._broken)
        await self._engine.send("piece", {"piece": data}, slot=self._number)

    async def receive(self) -> bytes:
        found = await self.arrived.get()
        if found is None:
            raise Broken(self._broken)
        return found

    async def close(self) -> None:
        await self._engine.drop(self._number)

    def break_off(self, why: str) -> None:
        self._broken = why
        self.arrived.put_nowait(None)


class RayEngine:
    """A Ray cluster: one that is there, or one that is started for the launch."""

    def __init__(self, spec: EngineSpec, *, concurrency: int) -> None:
        self.name = spec.on
        self._spec = spec
        self._concurrency = concurrency
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None] | None = None
        self._said: IO[bytes] | None = None
        """What the driver writes to its standard error."""
        self._gone = ""
        """Why the driver cannot be asked any more."""
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._calls_made = 0
        self._tubes: dict[int, RayTube] = {}
        self._new: asyncio.Queue[RayTube | UsageError] = asyncio.Queue()
        self._nodes: list[str] = []
        self._folder = SessionFolder()
        self._environ, self._hidden = self._make_environ()

    # ---- the cluster

    async def connect(self) -> None:
        spec = self._spec
        if spec.address:
            await knock(self.name, "Ray", spec.address)
        options: dict[str, Any] = {}
        if not spec.address:
            options = make_options(spec.options, cpus=self._concurrency, folder=self._folder)
        await self._start_driver()
        try:
            # Something is there. A client server starts a process for each client first.
            is_started = not spec.address or spec.is_client
            async with asyncio.timeout(START_SECONDS if is_started else CONNECT_SECONDS):
                self._nodes = await self._call(
                    "connect", address=spec.address, is_client=spec.is_client, options=options
                )
        except (ConnectionError, TimeoutError) as error:
            why = str(error) or "TimeoutError"
            if spec.address:
                raise LaterError(f"{self.name}: no Ray answers there ({why}); start it, then resume") from error
            raise LaterError(f"{self.name}: Ray could not be started ({why})") from error

    async def _start_driver(self) -> None:
        ours, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            # `-P` and the folder: nothing of the job may be imported in the place of a library.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "agentrun.executors.cluster.ray_driver", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=self._environ,
                cwd="/",
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._reading = asyncio.ensure_future(self._read(reader))

    def _make_environ(self) -> tuple[dict[str, str], list[str]]:
        """The variables of the driver, and with a Ray of our own of all its processes; and those of them that are
        hidden from agents, because people have not set them."""
        environ = dict(os.environ) if self._spec.address else make_environ()
        # With `uv run`, Ray would send the whole current folder to the cluster, and with it whatever secrets are there.
        environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        of_ray = {"RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED"}
        return environ, [] if self._spec.address else sorted((of_ray | environ.keys()) - os.environ.keys())

    def caution(self, *, has_secrets: bool) -> str:
        has_tls = os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true")
        host = self._spec.address.rpartition(":")[0].strip("[]") or "127.0.0.1"
        stays_here = _is_loopback(host) and len(set(self._nodes)) <= 1
        if not has_secrets or has_tls or stays_here:
            return ""
        return (
            f"{self.name}: the values of env_file and needs_env go to the workers without TLS (RAY_USE_TLS is not "
            f"set); whoever can read the network can read them"
        )

    async def describe(self) -> str:
        return str(await self._call("describe"))

    async def close(self) -> None:
        if self._process is not None:
            # The end of the connection tells the driver to end.
            if self._reading is not None:
                self._reading.cancel()
                self._writer.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    while self._process.poll() is None:
                        await asyncio.sleep(0.02)
            with suppress(OSError):
                self._process.kill()
            self._process.wait()
        if self._said is not None:
            self._said.close()
        await asyncio.to_thread(self._folder.remove)

    # ---- nodes

    async def everywhere(self, function: Callable[..., Any], *args: Any) -> Mapping[str, Any]:
        found: Mapping[str, Mapping[str, Any]] = await self._call(
            "everywhere", module=function.__module__, name=function.__qualname__, args=list(args)
        )
        return {node: one["result"] if "result" in one else _error(one) for node, one in found.items()}

    async def tubes(self, wanted: int, spec: HostSpec, changed: Callable[[], None]) -> AsyncIterator[RayTube]:
        asked = {**spec.as_json(), "hidden": self._hidden}
        with suppress(Broken):
            await self.send("slots", wanted=wanted, spec=asked, resources=dict(self._spec.resources))
        try:
            while True:
                found = await self._new.get()
                if isinstance(found, UsageError):
                    raise found
                yield found
        finally:
            with suppress(Broken):
                await self.send("enough")

    async def drop(self, number: int) -> None:
        """Give a slot back."""
        if self._tubes.pop(number, None) is not None:
            with suppress(Broken):
                await self.send("drop", slot=number)

    # ---- the driver

    async def send(self, kind: str, parts: Mapping[str, bytes] | None = None, /, **fields: Any) -> None:
        if self._gone:
            raise Broken(self._gone)
        try:
            self._writer.write(make_frame(kind, parts, **fields))
            await self._writer.drain()
        except OSError as error:
            raise Broken(self._gone or f"its driver has ended ({_words(error)})") from None

    async def _call(self, name: str, /, **arguments: Any) -> Any:
        """ConnectionError if it cannot be asked, or has no answer; UsageError if what was asked is wrong."""
        self._calls_made += 1
        no = self._calls_made
        future = self._calls[no] = asyncio.get_running_loop().create_future()
        try:
            await self.send("call", no=no, name=name, arguments=arguments)
            return await future
        except Broken as error:
            raise ConnectionError(str(error)) from None
        finally:
            del self._calls[no]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        cutter = Cutter()
        with suppress(OSError):
            while piece := await reader.read(READ_BYTES):
                for frame in cutter.feed(piece):
                    self._receive(frame)
        self._gone = f"its driver has ended{self._last_words()}"
        for call in self._calls.values():
            if not call.done():
                call.set_exception(ConnectionError(self._gone))
        for tube in self._tubes.values():
            tube.break_off(self._gone)

    def _receive(self, frame: HostFrame) -> None:
        value = frame.value
        call, tube = self._calls.get(value.get("no", 0)), self._tubes.get(value.get("slot", 0))
        match frame.type:
            case "result" if call is not None and not call.done():
                call.set_result(value["result"])
            case "error" if call is not None and not call.done():
                message = f"{self.name}: {value['message']}"
                call.set_exception(UsageError(message) if value["is_refused"] else ConnectionError(value["message"]))
            case "slot":
                tube = self._tubes[value["slot"]] = RayTube(self, value["slot"], value["where"])
                self._new.put_nowait(tube)
            case "refused":
                self._new.put_nowait(UsageError(f"{self.name}: {value['message']}"))
            case "piece" if tube is not None:
                tube.arrived.put_nowait(frame.parts["piece"])
            case "ended" if tube is not None:
                tube.arrived.put_nowait(b"")
            case "broken" if tube is not None:
                tube.break_off(value["why"])

    def _last_words(self) -> str:
        """The last line that the driver wrote to its standard error."""
        if self._said is None or self._said.closed:
            return ""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f" ({last[:300]})" if last else ""


def _error(found: Mapping[str, Any]) -> Exception:
    return ModuleNotFoundError(found["error"]) if found["is_import"] else ConnectionError(found["error"])


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
