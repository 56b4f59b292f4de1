"""Following a log, for `log -f`."""

from __future__ import annotations

import codecs
import sys
import time
from typing import TYPE_CHECKING

from agentrun_cli.terminal import clean, clean_text, put, put_bytes, say

if TYPE_CHECKING:
    from agentrun.people.selecting import Selection
    from agentrun.views.finding import KnownJob
    from agentrun.views.jobs import HistoryEvent

LOOK_SECONDS, IDLE_SECONDS = 0.25, 1.0
CHECKPOINTS_SECONDS = 10.0
"""How often the checkpoints of a run are summed up in a line."""


def follow_item(known: KnownJob, selection: Selection, lines: int | None) -> None:
    """What the item has printed, and what it prints, until it is settled or nobody is at work."""
    from agentrun.people.selecting import select_one
    from agentrun.views.following import ItemFollower
    from agentrun_cli.asking.choosing import open_items
    from agentrun_cli.asking.confirming import how_to_continue

    with open_items(known) as listing:
        view, is_unfinished = select_one(known, listing, selection), listing.is_unfinished
    follower, screen = ItemFollower(known, view), _Screen()
    before = follower.catch_up()
    screen.put(before if lines is None else b"".join(before.splitlines(keepends=True)[-lines:]))
    while not (heard := follower.look()).is_over:
        screen.put(heard.printed)
        time.sleep(LOOK_SECONDS if heard.state == "running" else IDLE_SECONDS)
    screen.put(heard.printed)
    key = clean(view.key, limit=200)
    if heard.state in ("pending", "waiting"):
        how = how_to_continue(known, is_unfinished=is_unfinished)
        say(f"{known.name}: {key} is {heard.state}, and nobody is at work; to continue: {how}")
    else:
        say(f"{known.name}: {key} is {heard.state}")


class _Screen:
    """Standard output; on a terminal without control codes."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def put(self, printed: bytes) -> None:
        if not printed:
            return
        put_bytes(clean_text(self._decode(printed)).encode() if sys.stdout.isatty() else printed)
        sys.stdout.flush()


def follow_job(known: KnownJob, lines: int | None) -> None:
    """What has happened to the job, and what happens."""
    from agentrun_cli.drawing.log import EventLines

    words, said, is_first = EventLines(), list[str](), True
    last: HistoryEvent | None = None
    told_at = time.monotonic()
    while True:
        with known.store.reader() as reader:
            events = list(reader.history())
        # Events have no number; the newest that is known is found again, unless the log was rotated.
        known_up_to = next((n for n, event in enumerate(reversed(events)) if event == last), len(events))
        for event in events[len(events) - known_up_to :]:
            said += words.add(event)
        last = events[-1] if events else last
        if is_first or time.monotonic() - told_at >= CHECKPOINTS_SECONDS:
            said += words.flush()
            told_at = time.monotonic()
        for line in said[-lines:] if is_first and lines is not None else said:
            put(line)
        said, is_first = [], False
        time.sleep(IDLE_SECONDS)
