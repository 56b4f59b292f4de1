"""The feed: the items to run, one after another, read from the source as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from itertools import chain, islice
from typing import TYPE_CHECKING

from agentrun.checkpoint.ledger import FAILED, PENDING, Ledger
from agentrun.errors import ItemsError, SourceChangedError
from agentrun.item import key_digest
from agentrun.runs.plan import RepeatedKeys
from agentrun.runs.units import Work

if TYPE_CHECKING:
    from agentrun.items.port import Source
    from agentrun.runs.run import Run


def feed_run(source: Source, run: Run, busy: Set[int]) -> Iterator[Work]:
    """Pending items, then those that failed in earlier launches; but none that is busy, nor a suspect of a crash, nor
    one that the launch leaves alone (--only)."""
    states, to_retry, suspects, dead, only = run.ledger.states, run.to_retry, run.suspects, run.dead, run.only

    def is_pending(row: int) -> bool:
        is_free = states[row] == PENDING and row not in busy and row not in suspects and row not in dead
        return is_free and (only is None or row in only)

    def is_to_retry(row: int) -> bool:
        return row in to_retry and states[row] == FAILED and row not in busy | suspects | dead.keys()

    passes = [feed(source, run.ledger, is_pending)] if run.ledger.counts["pending"] else []
    if to_retry:
        passes.append(feed(source, run.ledger, is_to_retry))
    return chain.from_iterable(passes)


def feed_again(source: Source, run: Run, busy: Set[int], rows: set[int]) -> Iterator[Work]:
    """The items of `rows`, which became pending again, that still are."""
    ledger, only = run.ledger, run.only
    wanted = {row for row in rows if ledger.states[row] == PENDING and row not in busy}
    if only is not None:
        wanted = {row for row in wanted if row in only}
    return islice(feed(source, ledger, wanted.__contains__), len(wanted))


def feed(source: Source, ledger: Ledger, is_wanted: Callable[[int], bool]) -> Iterator[Work]:
    """The wanted items, in order, as they were when they were listed.

    One whose content is another by now stops the launch. What is new, or has moved while this pass is under way, is
    passed over: the listing before the end of a run finds it.
    """
    order, total, glances = ledger.order, len(ledger.order), ledger.glances
    identify, glance = source.identify, source.glance
    repeats = RepeatedKeys()
    for position, raw in enumerate(source):
        if position == total:
            return
        row = order[position]
        if not is_wanted(row):
            continue
        # Nearly all of them: the same text in the same place, and the key is part of it.
        is_as_listed = bool(glances) and (seen := glance(raw)) == glances[position] and seen != 0
        try:
            key, content, stamp = identify(raw, with_content=not is_as_listed)
        except ItemsError as error:
            # It could be read when it was listed.
            raise SourceChangedError(
                f"{error.message} (changed after this launch had listed it; "
                f"run the same command again when the source is at rest)"
            ) from None
        if is_as_listed:
            yield Work(row, source.item(raw, position, key))
            continue
        digest = key_digest(key)
        if not ledger.is_at(row, digest):
            row = ledger.find(digest)
            if row < 0 or not is_wanted(row):
                # Perhaps the second of its key, which is listed as key~2.
                key, digest = repeats.next_free(key, lambda d: ledger.find(d) < 0 or is_wanted(ledger.find(d)))
                row = ledger.find(digest)
            if row < 0 or not is_wanted(row) or not ledger.is_listed(row):
                continue
        _check_unchanged(source, raw, content, stamp, ledger, row, key)
        yield Work(row, source.item(raw, ledger.positions[row], key))


def _check_unchanged(
    source: Source, raw: object, content: bytes | None, stamp: int, ledger: Ledger, row: int, key: str
) -> None:
    if content is None:
        if stamp == ledger.stamps[row]:
            return
        content = source.content(raw)
        ledger.stamps[row] = stamp
    if int.from_bytes(content[:8], "big") != ledger.contents[row]:
        raise SourceChangedError(
            f"{source.where(ledger.positions[row])}: the item {key} was changed after this launch had listed it; "
            f"run the same command again when the source is at rest"
        )
