"""Looking at a job in a shared place without its key."""

from __future__ import annotations

from pathlib import Path

from agentrun.checkpoint.figures import read_figures
from agentrun.checkpoint.sealed_state import key_of_state
from agentrun.store.glance import Glance
from agentrun.store.keyed.home import Home
from agentrun.store.keyed.inbox import INBOX, STOP
from agentrun.store.keyed.lease import holder_of


def glance(home: Home, folder: Path) -> Glance:
    """CheckpointError if the figures themselves cannot be read."""
    raw = home.raw
    # In this order: a run that ends in between is then found among those that ended.
    head, filed = raw.head(), raw.ended()
    ended = [read_figures(one.summary, where=f"{home.shown}: the summary of run {one.run_id}") for one in filed]
    unfinished = read_figures(head.state, where=f"{home.shown}: the state") if head.state is not None else None
    if unfinished is not None and any(one.run_id == unfinished.run_id for one in ended):
        unfinished = None
    texts = (head.state or b"", *(one.summary for one in filed))
    return Glance(
        unfinished=unfinished,
        ended=tuple(sorted(ended, key=lambda one: one.age, reverse=True)),
        holder=holder_of(head, folder),
        posted=sum(not name.startswith(INBOX + STOP) for name in raw.names(INBOX)),
        is_sealed=any(key_of_state(text) is not None for text in texts),
    )
