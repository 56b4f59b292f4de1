"""One attempt in a host: what it needs is put in place there, and what it leaves goes back."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrun.agents.attempt import Attempt, Ended, Outcome
from agentrun.agents.failure import HOST_LOST, Failure
from agentrun.agents.messages import EntryAdd, Message, Refused, Reply, StepPut, Stray, read_reply
from agentrun.errors import AgentrunError
from agentrun.executors.cluster.archive import WORK_LIMIT_BYTES, Stamp, TooLarge, pack_folder, stamp_of, unpack_folder
from agentrun.executors.cluster.frames import HostFrame
from agentrun.executors.port import Executor
from agentrun.executors.prints import empty_log
from agentrun.system.disk import open_to_read

LOG_BYTES = 1024 * 1024
MOST_LOG_BYTES = 8 * LOG_BYTES
Send = Callable[..., None]


@dataclass(eq=False)
class HostedAttempt:
    """An attempt that the runner has sent."""

    attempt: Attempt
    send: Send
    own: Path
    """The folder for the item's file, where that was sent."""
    is_blind: bool
    """Whether the host does not see the runner's folders."""
    task: asyncio.Task[None] | None = None
    """None until it begins."""
    began: float = 0.0
    slot: int = -1
    """The host's slot that it runs in, once it begins."""
    log: Path | None = None
    """Where its prints go, if the runner must be sent them."""
    _waiting: dict[int, asyncio.Future[Reply]] = field(default_factory=dict)
    _stamp: Stamp = frozenset()
    _logged: int = 0

    @classmethod
    def receive(cls, frame: HostFrame, send: Send, scratch: Path, *, is_blind: bool) -> HostedAttempt:
        """Put in place what the host does not see: the item's file, and of a blind host its folders, too."""
        given: dict[str, Any] = dict(frame.value["attempt"])
        item, own = given["item"], scratch / "items" / frame.value["id"]
        if item["path"] is not None and (is_blind or "item" in frame.parts):
            own.mkdir(parents=True)
            path = own / Path(item["path"]).name
            path.write_bytes(frame.parts.get("item", b""))
            given["item"] = {**item, "path": str(path)}
        if not is_blind:
            return cls(Attempt.from_json(given), send, own, is_blind)
        given["folder"] = str(scratch / "work")
        one = cls(Attempt.from_json(given), send, own, is_blind)
        if "work" in frame.parts:
            unpack_folder(frame.parts["work"], Path(one.attempt.work))
        one._stamp = stamp_of(one.attempt.work)
        return one

    @property
    def id(self) -> str:
        return self.attempt.id

    def start(self, executor: Executor, ended: Callable[[HostedAttempt], None], *, slot: int, log: Path | None) -> None:
        """Begin it in a slot of the host; `log` is that slot's, for prints that the runner must be sent."""
        self.slot = slot
        self.began = time.monotonic()
        self.task = asyncio.ensure_future(self._run(executor, log))
        self.task.add_done_callback(lambda _: ended(self))

    def end(self) -> None:
        """End it; also one that has not begun."""
        if self.task is not None:
            self.task.cancel()
        else:
            self.report(Outcome("cancelled"))

    def answer(self, given: Mapping[str, Any]) -> None:
        """A reply of the runner."""
        waiting = self._waiting.pop(given["no"], None)
        if waiting is not None and not waiting.done():
            reply = read_reply(given["reply"])
            waiting.set_result(Stray(given["reply"]["error"]) if given["is_stray"] else reply)

    async def channel(self, message: Message) -> Reply:
        """What the attempt says goes to the runner, and with a finished step what that left in the item's folders."""
        parts = {}
        if isinstance(message, StepPut | EntryAdd):
            try:
                # Not in a thread: the next message would overtake this one.
                parts = self._changed_work()
            except TooLarge as error:
                return Refused(f"the files of the item: {error.message}")
            except OSError as error:
                return Refused(f"the files of the item cannot be sent: {error}")
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[message.no] = waiting
        try:
            self.send("say", parts, id=self.id, message=message.as_json())
            return await waiting
        finally:
            self._waiting.pop(message.no, None)

    def report_log(self) -> None:
        """Send what it has printed since the last time."""
        if text := self._new_log():
            self.send("log", {"log": text}, id=self.id)

    async def _run(self, executor: Executor, log: Path | None) -> None:
        try:
            if log is not None:
                empty_log(log)  # of what ran in the slot before
                self.attempt.log_path = self.log = log
            outcome = await executor.run(self.attempt, self.channel)
        except asyncio.CancelledError:
            outcome = Outcome("cancelled")
        except (AgentrunError, OSError) as error:  # of this machine, such as a full disk; not of the agent
            outcome = lost_by_machine(f"{type(error).__name__}: {error}")
        self.report(outcome)

    def report(self, outcome: Outcome) -> None:
        """The last word on the attempt."""
        parts: dict[str, bytes] = {"log": self._new_log()}
        if self.is_blind:
            try:
                parts |= self._changed_work()
            except TooLarge as error:
                outcome = Outcome("failed", failure=Failure("output", f"the files of the item: {error.message}"))
            except OSError as error:
                outcome = Outcome("failed", failure=Failure("output", f"the files of the item cannot be sent: {error}"))
        ended = Ended.of(outcome, attempt_id=self.id, no=0, ends=False)
        seconds = time.monotonic() - self.began if self.task is not None else None
        parts["output"] = outcome.output
        shutil.rmtree(self.own, ignore_errors=True)
        if self.is_blind:
            shutil.rmtree(self.attempt.work, ignore_errors=True)
        self.send("outcome", parts, id=self.id, ended=ended.as_json(), seconds=seconds)

    def _changed_work(self) -> dict[str, bytes]:
        if not self.is_blind or (stamp := stamp_of(self.attempt.work)) == self._stamp:
            return {}
        work = pack_folder(Path(self.attempt.work), limit=WORK_LIMIT_BYTES)
        self._stamp = stamp
        return {"work": work}

    def _new_log(self) -> bytes:
        """What it has printed since the last time, if the runner must be sent it."""
        if self.log is None:
            return b""
        try:
            with open_to_read(self.log) as file:
                size = file.seek(0, os.SEEK_END)
                # Emptied by the executor when it begins, or trimmed.
                at = self._logged if self._logged <= size else 0
                file.seek(max(at, size - LOG_BYTES))
                text = file.read(LOG_BYTES)
                self._logged = file.tell()
            if size > MOST_LOG_BYTES:
                # Writers append: they continue at the new end.
                os.truncate(self.log, 0)
                self._logged = 0
            return text
        except OSError:
            return b""


def lost_by_machine(why: str) -> Outcome:
    """An attempt that this machine cannot run, or cannot end in order. The item is run on another."""
    return Outcome("lost", failure=Failure("lost", why, code=HOST_LOST))
