"""The lease on a job in a shared place: it runs out unless it is renewed, and then anybody may take the job.

Whoever takes it raises the epoch, and every write names the epoch it belongs to. So a runner that was cut off, or was
asleep, cannot change anything any more; and it knows by its own clock when it has to assume that.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agentrun.errors import AgentrunError, LostError
from agentrun.store.holder import Holder
from agentrun.store.keyed.home import Head, Home
from agentrun.store.port import Lease
from agentrun.system.process import has_open, is_alive

LEASE_SECONDS = 30.0
_RETRY_SECONDS = 1.0


class KeyedLease(Lease):
    """Renewed by each commit, and by a thread of its own when there is none for a third of its time."""

    def __init__(
        self,
        home: Home,
        epoch: int,
        local: Lease,
        *,
        taken_at: float,
        ttl_seconds: float,
        left_mark: str,
        on_release: Callable[[], None],
        beats: bool = True,
    ) -> None:
        self._home = home
        self._local: Lease | None = local
        self._ttl_seconds = ttl_seconds
        self._on_release = on_release
        self._renewed_at = taken_at
        self._released = threading.Event()
        self._beating = threading.Lock()
        self._stops = 0
        self.epoch = epoch
        self.mark = local.mark
        self.left_mark = left_mark or local.left_mark
        self.lost: LostError | None = None
        """Set once it is known that another runner has the job."""
        if beats:
            threading.Thread(target=self._beat, name="agentrun-lease", daemon=True).start()

    @property
    def fd(self) -> int | None:
        return self._local.fd if self._local is not None else None

    @property
    def is_lost(self) -> bool:
        return self.lost is not None or lease_clock() >= self._renewed_at + self._ttl_seconds

    @property
    def expires(self) -> bool:
        return True

    @property
    def stops_asked(self) -> int:
        return self._stops

    def ask_to_stop(self, times: int) -> None:
        """Somebody has asked, so many times by now."""
        self._stops = max(self._stops, times)

    def renewed(self, sent_at: float) -> None:
        """It was renewed, by something that was sent at this time of the lease's clock."""
        self._renewed_at = max(self._renewed_at, sent_at)

    def _beat(self) -> None:
        wait = 0.0
        while not self._released.wait(wait):
            sent_at = lease_clock()
            wait = self._renewed_at + self._ttl_seconds / 3 - sent_at
            if wait > 0:
                continue
            try:
                with self._beating:
                    # Never after the lease was given back: the home may be closed by then.
                    if self._released.is_set():
                        return
                    self._home.beat(self.epoch, self._ttl_seconds)
                self.renewed(sent_at)
                wait = self._ttl_seconds / 3
            except LostError as error:
                self.lost = error
                return
            except AgentrunError:
                # The place does not answer: the next commit says so, if this lasts.
                wait = min(_RETRY_SECONDS, self._ttl_seconds / 10)

    def release(self) -> None:
        local, self._local = self._local, None
        if local is None:
            return
        self._released.set()
        try:
            with self._beating:
                if self.lost is None:
                    self._home.give(self.epoch)
        except AgentrunError:
            pass  # it runs out by itself
        finally:
            self._on_release()
            local.release()


def lease_clock() -> float:
    """Seconds of a clock that nobody sets and that runs while the machine is asleep, as the place's own does."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    # On macOS, too, it does not stop; `time.monotonic` would.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def holder_of(head: Head, folder: Path) -> Holder | None:
    """Who is at work, according to the head: not one whose process here is gone, or whose lease has run out.

    `folder` is the job's on this machine: whoever has the lock there has the job, also if it was paused past its lease.
    """
    found = last_holder(head)
    if found is None or is_dead(found) or not (head.fresh or has_lock(found, folder)):
        return None
    return found


def has_lock(holder: Holder, folder: Path) -> bool:
    """Whether it is a process of this machine that has the lock in the job's folder."""
    try:
        return holder.place == "here" and has_open(holder.pid, (folder / "lock").lstat())
    except OSError:
        return False


def last_holder(head: Head) -> Holder | None:
    """Who has taken the job last and has not given it back."""
    try:
        return msgspec.json.decode(head.holder, type=Holder) if head.holder is not None else None
    except ValueError:
        return None


def is_dead(holder: Holder) -> bool:
    """Whether it was a process of this machine, in this container, and is gone."""
    return holder.place == "here" and not is_alive(holder.pid, holder.started)
