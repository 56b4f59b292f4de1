"""The runner's end of one host: what it is sent, what comes back, and how long it may be alive."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrun.agents.attempt import Attempt, Channel, Ended, Outcome, call_json
from agentrun.agents.failure import HOST_LOST, Failure
from agentrun.agents.messages import Stray
from agentrun.errors import DiskError
from agentrun.executors.cluster.archive import WORK_LIMIT_BYTES, TooLarge, pack_folder, unpack_folder
from agentrun.executors.cluster.frames import HostFrame, make_frame
from agentrun.executors.cluster.lanes import URGENT, Incoming, Outgoing
from agentrun.executors.cluster.lease import LeaseView
from agentrun.executors.cluster.port import Broken, Tube
from agentrun.executors.prints import empty_log
from agentrun.system.child import uncancelled
from agentrun.system.disk import disk_errors, open_file

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@dataclass(eq=False)
class Sent:
    """An attempt that a host has."""

    attempt: Attempt
    channel: Channel
    frames: asyncio.Queue[HostFrame] = field(default_factory=asyncio.Queue)
    """What the host said about it, in order."""
    outcome: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    answering: set[asyncio.Task[None]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Welcome:
    """What a new host is told, and who is told of it.

    `ready` is called when the host can be given attempts, `refuse` with the reason if it never can.
    """

    hello: Mapping[str, Any]
    base: Path
    """The job's folder."""
    folder: Callable[[], Awaitable[bytes]]
    """An archive of the job's folder, for a host that does not see it."""
    check: Callable[[Mapping[str, Any]], str]
    """Why a host with these facts cannot be used; empty if it can."""
    ready: Callable[[HostLink], None]
    refuse: Callable[[HostLink, str, str], None]
    """Given the link, the reason, and the traceback of the user's own code."""
    took: Callable[[float | None], None]
    """Told how long an attempt took there; None if it did not begin."""
    broke: Callable[[HostLink, str], None]
    """Told why nothing is heard of the host any more, while it may still be alive."""
    failed: Callable[[HostLink, str], None]
    """Told that an attempt could not be run there because of the machine, such as a full disk."""


class HostLink:
    """One host. `gone` is done when nothing of it is alive; its result says how that is known."""

    def __init__(
        self, tube: Tube, welcome: Welcome, *, lease_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tube = tube
        self._welcome = welcome
        self._clock = clock
        self._lease = LeaseView(lease_seconds)
        self._lease_seconds = lease_seconds
        self._sent: dict[str, Sent] = {}
        self._outgoing = Outgoing()
        self._may_send = asyncio.Event()
        self._is_open = False
        self._is_broken = False
        self.rests = False
        """Whether nothing is to be begun there for the time being."""
        self._why = ""
        """Why it was given up, if it was."""
        self._broke: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sees_folder = False
        self.place = self.sight = self.mark = self.scratch = ""
        """Where it is, whose processes it sees, what all that it starts carries, and its own folder there."""
        self._swept: dict[str, asyncio.Future[None]] = {}
        self.load = 0
        """How many attempts it has, begun or not."""
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.ensure_future(one) for one in (self._write(), self._read(), self._watch())]

    @property
    def is_broken(self) -> bool:
        """Whether it was given up: something of it may be alive until it is gone."""
        return self._is_broken

    @property
    def is_usable(self) -> bool:
        """Whether it can be given an attempt: never before the first pong, which bounds its lease."""
        is_up = self._is_open and self._lease.is_known and not self._is_broken and not self.gone.done()
        return is_up and not self.rests

    def send(self, kind: str, parts: Mapping[str, bytes] | None = None, /, **fields: Any) -> None:
        self._put(make_frame(kind, parts, **fields), is_urgent=kind in URGENT)

    def _put(self, frame: bytes, *, is_urgent: bool) -> None:
        self._outgoing.put(frame, is_urgent=is_urgent)
        self._may_send.set()

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        """The attempt, there. `lost` with the code `HOST_LOST` when nothing of the host is alive any more.

        Cancelled, it ends the attempt; on a host that was given up it may be alive until that is `gone`.
        """
        sent = Sent(attempt, channel)
        # Of whatever attempt had the same file before, perhaps on another host.
        empty_log(attempt.log_path)
        try:
            seen = self._welcome.base if self.sees_folder else None
            parts = {}
            if seen is None or (attempt.item.path is not None and not _is_below(attempt.item.path, seen)):
                parts = await asyncio.to_thread(_parts_of, attempt, with_work=seen is None)
        except TooLarge as error:
            return Outcome("failed", failure=Failure("output", f"{error.message}, which is too much for a worker"))
        except OSError as error:
            return Outcome("failed", failure=Failure("output", f"the item's files cannot be sent: {error}"))
        if self._is_broken or not self._is_open:
            return self._lost(await asyncio.shield(self.gone))
        self._sent[attempt.id] = sent
        handling = asyncio.ensure_future(self._handle(sent))
        try:
            self.send("attempt", parts, id=attempt.id, attempt=attempt.as_json(), slots=self.tube.slots)
            ends: set[asyncio.Future[Any]] = {sent.outcome, self.gone}
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                if not self._is_broken:
                    self.send("end", id=attempt.id)
                    ends.add(self._broke)
                    await uncancelled(asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED))
                raise
            return sent.outcome.result() if sent.outcome.done() else self._lost(self.gone.result())
        finally:
            del self._sent[attempt.id]
            handling.cancel()

    def close(self) -> None:
        """Ask it to end; `gone` tells when it has."""
        self._is_open = False
        self.send("close")

    def _lost(self, why: str) -> Outcome:
        return Outcome("lost", failure=Failure("lost", f"lost with {self.tube.where}: {why}", code=HOST_LOST))

    # ---- the way there

    async def _write(self) -> None:
        try:
            while True:
                while data := self._outgoing.take():
                    await self.tube.send(data)
                self._may_send.clear()
                await self._may_send.wait()
        except Broken as error:
            self._break(str(error))

    async def _read(self) -> None:
        incoming = Incoming()
        try:
            while piece := await self.tube.receive():
                if self._is_broken:
                    continue  # nothing that it says counts, and no pong is sent; only its end
                try:
                    for frame in incoming.feed(piece):
                        self._receive(frame)
                except Exception as error:
                    self._give_up(error)
                if acknowledgement := incoming.acknowledgement():
                    self._put(acknowledgement, is_urgent=True)
        except Broken as error:
            self._break(str(error))
        else:
            self._end("its host ended")

    # ---- whether it is alive

    async def _watch(self) -> None:
        """Silence: no error comes from a process that is stopped, or over a cable that is cut."""
        await asyncio.sleep(self._lease_seconds)
        while (left := self._lease.seconds_left(self._clock())) > 0:
            await asyncio.sleep(left)
        self._end(f"nothing was heard of it for {self._lease_seconds:g} s")

    def _give_up(self, error: Exception) -> None:
        """What it sent cannot be used. Nothing is lost yet: what it runs is alive until it has ended."""
        self._break(f"what it sent cannot be used ({type(error).__name__}: {error})")
        self.close()

    def _break(self, why: str) -> None:
        """Nothing that it says counts any more. No pong is sent from here on, so the last one bounds its lease."""
        if not self._is_broken:
            self._is_broken, self._why = True, f"{why}; "
            self._broke.set_result(None)
            self._welcome.broke(self, why)
            self._tasks.append(asyncio.ensure_future(self._await_lease()))

    async def _await_lease(self) -> None:
        while (left := self._lease.seconds_left(self._clock())) > 0:
            await asyncio.sleep(left)
        self._end("its lease has ended")

    def _end(self, why: str) -> None:
        self._is_broken = True
        if not self.gone.done():
            self.gone.set_result(f"{self._why}{why}")
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def confirm(self) -> None:
        """Somebody who sees its processes has ended what was left of it."""
        self._end("its host was ended")

    async def sweep(self, other: HostLink) -> bool:
        """Have another host of the same machine ended; False if it is not known whether it was."""
        mark = other.mark
        swept = self._swept[mark] = asyncio.get_running_loop().create_future()
        self.send("sweep", mark=mark, scratch=other.scratch)
        await asyncio.wait({swept, self.gone}, return_when=asyncio.FIRST_COMPLETED)
        del self._swept[mark]
        return swept.done()

    # ---- what it says

    def _receive(self, frame: HostFrame) -> None:
        value = frame.value
        match frame.type:
            case "ping":
                was_usable = self.is_usable
                # Before the pong is sent: the host's lease then ends no later than this.
                self._lease.note_ping(self._clock())
                self.send("pong", n=value["n"])
                if self.is_usable and not was_usable:
                    self._welcome.ready(self)
            case "taken":
                self._outgoing.acknowledge(value["size"])
                self._may_send.set()
            case "up":
                self.place, self.sight, self.mark = value["facts"]["place"], value["sight"], value["mark"]
                self.scratch = value["scratch"]
                if why := self._welcome.check(value["facts"]):
                    self._welcome.refuse(self, why, "")
                else:
                    self.send("hello", **self._welcome.hello)
            case "wants":
                self._tasks.append(asyncio.ensure_future(self._send_folder()))
            case "ready":
                self.sees_folder, self._is_open = value["sees_folder"], True
                if self.is_usable:
                    self._welcome.ready(self)
            case "swept":
                if (swept := self._swept.get(value["mark"])) is not None and not swept.done():
                    swept.set_result(None)
            case "refused":
                self._welcome.refuse(self, value["message"], value["traceback"])
            case "say" | "log" | "outcome":
                if (sent := self._sent.get(value["id"])) is not None:
                    sent.frames.put_nowait(frame)

    async def _send_folder(self) -> None:
        self.send("folder", {"folder": await self._welcome.folder()})

    async def _handle(self, sent: Sent) -> None:
        """What the host says about one attempt, in order. The answers to messages may overlap, as those of a local
        attempt do: tasks begin in the order in which they are made."""
        try:
            while True:
                frame = await sent.frames.get()
                if "work" in frame.parts:
                    # Before the commit of the step that it comes with.
                    await asyncio.to_thread(_put_in_place, frame.parts["work"], Path(sent.attempt.work))
                if "log" in frame.parts:
                    _append(sent.attempt.log_path, frame.parts["log"])
                if frame.type == "say":
                    message = frame.value["message"]
                    if not isinstance(message, Mapping) or "no" not in message:
                        raise ValueError("it is no message")
                    task = asyncio.ensure_future(self._answer(sent, message))
                    sent.answering.add(task)
                    task.add_done_callback(sent.answering.discard)
                elif frame.type == "outcome":
                    while sent.answering:
                        await asyncio.wait(sent.answering)
                    outcome = Ended.from_json(frame.value["ended"]).outcome(frame.parts.get("output", b"null"))
                    if outcome.failure is not None and outcome.failure.code == HOST_LOST:
                        self._welcome.failed(self, outcome.failure.message)
                    self._welcome.took(frame.value["seconds"])
                    if not sent.outcome.done():
                        sent.outcome.set_result(outcome)
        except DiskError as error:  # of this machine: the launch ends
            if not sent.outcome.done():
                sent.outcome.set_exception(error)
        except Exception as error:
            self._give_up(error)

    async def _answer(self, sent: Sent, message: Mapping[str, Any]) -> None:
        try:
            reply = await call_json(sent.channel, message)
        except Exception as error:  # the store failed: the launch ends
            if not sent.outcome.done():
                sent.outcome.set_exception(error)
            return
        self.send(
            "answer",
            id=sent.attempt.id,
            no=message["no"],
            reply=reply.as_json(),
            is_stray=isinstance(reply, Stray),
        )


def _is_below(path: Path, base: Path) -> bool:
    """Whether who sees the folder sees the file, too: it may be elsewhere, also by way of a link."""
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(base), ""))


def _parts_of(attempt: Attempt, *, with_work: bool) -> dict[str, bytes]:
    """What a host does not see and needs for this attempt."""
    parts = {}
    if attempt.item.path is not None:
        if (size := os.stat(attempt.item.path).st_size) > WORK_LIMIT_BYTES:
            raise TooLarge(f"{attempt.item.path}: has {size >> 20} MiB")
        parts["item"] = attempt.item.path.read_bytes()
    if with_work and (work := pack_folder(Path(attempt.work), limit=WORK_LIMIT_BYTES)):
        parts["work"] = work
    return parts


def _put_in_place(archive: bytes, folder: Path) -> None:
    with disk_errors(folder):
        unpack_folder(archive, folder)


def _append(path: Path, text: bytes) -> None:
    with disk_errors(path):
        fd = open_file(path, _APPEND)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)
