"""Posting messages to a job's inbox, without the lock.

Nothing is posted to a job that was moved away: it would never reach the place where the job runs now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import structs

from agentrun.checkpoint.message import AnyMessage, MessageError
from agentrun.errors import UsageError
from agentrun.people.forms import Posting
from agentrun.store.moving import check_not_moved, read_mark
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing
from agentrun.views.place import Warn, open_items


@contextmanager
def listed(known: KnownJob, listing: Listing | None, warn: Warn) -> Iterator[Listing]:
    """The listing that the caller has, or one for this block."""
    if listing is not None:
        yield listing
        return
    with open_items(known, warn=warn) as opened:
        yield opened


def run_of(known: KnownJob, listing: Listing) -> str:
    """The run that a message is for: the unfinished one, or the last that ended. UsageError if it was moved away."""
    if not (run_id := listing.reader.run_id):
        raise UsageError(f"{known.name}: has no run yet; start one with: agentrun start {known.shown}")
    check_here(known, run_id)
    return run_id


def check_here(known: KnownJob, run_id: str | None = None) -> None:
    """UsageError, with the words of a start, if the job was moved away. `run_id` is its newest run, if known."""
    check_not_moved(known.store, known.name, run_id=run_id)


def post(known: KnownJob, views: Sequence[ItemView], messages: Sequence[AnyMessage]) -> Posting:
    with known.store.reader() as reader:
        # A person may have thought about it for a while.
        check_here(known, reader.run_id)
        # They apply to later runs of the same series, too: each names the record that it is about.
        messages = [structs.replace(one, series=reader.series_of(one.run_id)) for one in messages]
    with refusing(known):
        known.store.post(messages)
    with known.store.reader() as reader:
        if read_mark(known.store, run_id=reader.run_id) is not None:
            raise UsageError(
                f"{known.name}: was moved away while this was posted, and it may have been left behind; see whether it "
                f"arrived where the job runs now, and if not, post it there"
            )
        return Posting(tuple(views), holder=reader.holder(), is_unfinished=reader.checkpoint is not None)


@contextmanager
def refusing(known: KnownJob) -> Iterator[None]:
    """What no message can hold is the person's mistake."""
    try:
        yield
    except MessageError as error:
        raise UsageError(f"{known.name}: that cannot be posted: {error}") from None
