"""Posting messages to a job's inbox, without the lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import structs

from agentrun.checkpoint.message import AnyMessage, MessageError
from agentrun.errors import UsageError
from agentrun.people.forms import Posting
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
    """The run that a message is for: the unfinished one, or the last that ended."""
    if not listing.reader.run_id:
        raise UsageError(f"{known.name}: has no run yet; start one with: agentrun start {known.shown}")
    return listing.reader.run_id


def post(known: KnownJob, views: Sequence[ItemView], messages: Sequence[AnyMessage]) -> Posting:
    with known.store.reader() as reader:
        # They apply to later runs of the same series, too: each names the record that it is about.
        messages = [structs.replace(one, series=reader.series_of(one.run_id)) for one in messages]
    with refusing(known):
        known.store.post(messages)
    with known.store.reader() as reader:
        return Posting(tuple(views), holder=reader.holder(), is_unfinished=reader.checkpoint is not None)


@contextmanager
def refusing(known: KnownJob) -> Iterator[None]:
    """What no message can hold is the person's mistake."""
    try:
        yield
    except MessageError as error:
        raise UsageError(f"{known.name}: that cannot be posted: {error}") from None
