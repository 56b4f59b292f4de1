"""Putting a state aside that cannot be read: it is kept as side files, as it is stored."""

from __future__ import annotations

from base64 import b64encode

from agentrun.errors import CheckpointError
from agentrun.store.keyed.home import Home, in_pieces
from agentrun.store.keyed.reader import read_summaries
from agentrun.values.clock import new_run_id

ASIDE = "aside/"


def put_aside(home: Home, epoch: int) -> str:
    """Keep the state and the journals that no run has; the runs that ended too, if a summary cannot be read.

    Returns where they are. For the holder of the lease.
    """
    name, raw = f"{new_run_id()}-set-aside", home.raw
    head, ended = raw.head(), raw.ended() if _can_read_summaries(home) else []
    home.put(f"{ASIDE}{name}.state", in_pieces([head.state or b""]), epoch=epoch)
    for one in raw.ended() if not ended else []:
        home.put(f"{ASIDE}{name}.{one.run_id}.summary", in_pieces([one.summary]), epoch=epoch)
    for journal in raw.journals() - {one.journal for one in ended}:
        lines = (_on_one_line(line) for _, line in raw.scan(journal, 0, 1 << 62))
        home.put(f"{ASIDE}{name}.{journal}.jsonl", in_pieces(lines), epoch=epoch)
    # Without patience: if it were sent again and came late, it would undo the first commits of the next run.
    raw.replace(epoch, None, ended)
    return f"{ASIDE}{name}.*"


def _can_read_summaries(home: Home) -> bool:
    try:
        read_summaries(home)
    except CheckpointError:
        return False
    return True


def _on_one_line(line: bytes) -> bytes:
    """A sealed record may hold newlines: such a one is kept in base64."""
    return (b64encode(line) if b"\n" in line else line) + b"\n"
