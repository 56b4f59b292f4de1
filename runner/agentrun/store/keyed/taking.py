"""Taking the lease on a job in a shared place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from agentrun.errors import BusyError, LostError, StoreError
from agentrun.store.holder import Holder
from agentrun.store.keyed.home import Head, Home
from agentrun.store.keyed.lease import LEASE_SECONDS, KeyedLease, is_dead, last_holder, lease_clock
from agentrun.store.keyed.patience import Patience
from agentrun.store.port import Lease

_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a lease lasts that nobody renews, and how long a place that does not answer is waited for."""

    lease_seconds: float = LEASE_SECONDS
    patience_seconds: float = 60.0
    beats: bool = True
    """Whether a thread renews the lease; without it, only commits do."""


def take_lease(
    home: Home, name: str, local: Lease, timing: Timing, *, deadline: float, on_release: Callable[[], None]
) -> KeyedLease:
    """The lease, for the holder of the job's lock on this machine; BusyError if it is not to be had by the deadline."""
    ttl_seconds, patience = timing.lease_seconds, Patience(timing.patience_seconds)
    me = msgspec.json.encode(Holder.of_this_process(mark=local.mark))
    # The head that the lease was taken from, if nobody else was quicker.
    seen: Head | None = None
    is_last = False
    while True:
        looked_at = lease_clock()
        # A place that does not answer at all is said at once; one that did so before is waited for.
        head = patience.insist(home.head) if seen is not None else home.head()
        if seen is not None and head.holder == me:
            # The answer was lost, or comes late.
            epoch = head.epoch
            break
        is_over = time.monotonic() >= deadline
        if is_over or not _is_taken(head):
            head = home.head(exact=True)
        if not _is_taken(head):
            # If an earlier try was not there at the look, it can only have come after it.
            seen, sent_at = head, looked_at
            try:
                epoch = home.take(_passed_by(head), me, ttl_seconds)
                break
            except LostError:
                # The next look says who was quicker, or that an earlier try of ours came late.
                if is_last:
                    raise _busy(name, last_holder(head)) from None
                is_last = is_over
                time.sleep(0 if is_over else _LOOK_SECONDS)
                continue
            except StoreError as error:
                patience.after(error)
                continue
        if is_over:
            raise _busy(name, last_holder(head))
        time.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
    left = last_holder(seen)
    return KeyedLease(
        home,
        epoch,
        local,
        taken_at=sent_at,
        ttl_seconds=ttl_seconds,
        left_mark=left.mark if left is not None and left.place == "here" else "",
        on_release=on_release,
        beats=timing.beats,
    )


def _busy(name: str, holder: Holder | None) -> BusyError:
    who = holder.describe() if holder is not None else "it has just started"
    return BusyError(
        f"{name}: another runner has this job ({who}); wait for it, or stop it with: agentrun stop {name}",
        holder=who,
    )


def _passed_by(head: Head) -> Head:
    """What the lease is taken from: a holder is named only if it is dead. One whose lease has merely run out may renew
    it in this moment, and then keeps the job."""
    holder = last_holder(head)
    return Head(head.epoch, head.holder if holder is not None and is_dead(holder) else None)


def _is_taken(head: Head) -> bool:
    holder = last_holder(head)
    return head.fresh and (holder is None or not is_dead(holder))
