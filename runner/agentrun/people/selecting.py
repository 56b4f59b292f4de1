"""Which items a person means: a key, a path that leads to the item's file, an index, or what holds for them all."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agentrun.errors import UsageError
from agentrun.item import Item
from agentrun.views.causes import VARIES, cause_id, cause_shape
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing, read_source

_KEYS_COMPARED = 20_000
_NEAR = 3
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Items by name (`items`, `indexes`), or by what holds for all of them (the rest)."""

    items: Sequence[str] = ()
    """Keys, or paths that lead to the items' files."""
    indexes: Sequence[int] = ()
    failed: bool = False
    cause: str | None = None
    """A failure as `views.causes` shows it; a part of the words is enough."""
    cause_id: str | None = None
    """The id of a group of failures: its items, and no others."""
    agent_version: str | None = None
    """The beginning of a fingerprint."""
    first: int | None = None
    """This index and all after it."""
    here: Path | None = None
    """Where paths are relative to; None if items are keys only."""

    @property
    def is_by_name(self) -> bool:
        return bool(self.items or self.indexes)

    @property
    def is_by_rule(self) -> bool:
        rules = (self.cause, self.cause_id, self.agent_version, self.first)
        return self.failed or any(rule is not None for rule in rules)


def select(known: KnownJob, listing: Listing, selection: Selection) -> Iterator[ItemView]:
    """The items that are meant. Those by name come in the order they were asked for, each once."""
    if selection.is_by_name:
        named = [find_item(known, listing, ref, here=selection.here) for ref in selection.items]
        named += [find_index(known, listing, index) for index in selection.indexes]
        yield from {view.key: view for view in named}.values()
        return
    is_of_failed = selection.failed or selection.cause is not None or selection.cause_id is not None
    states = {"failed"} if is_of_failed else None
    version = selection.agent_version
    for view in listing.items(states):
        if (
            (selection.cause is None or is_of_cause(view, selection.cause))
            and (selection.cause_id is None or (view.failure and cause_id(view.failure) == selection.cause_id))
            and (version is None or bool(version and view.agent.startswith(version)))
            and (selection.first is None or view.index >= selection.first)
        ):
            yield view


def select_one(known: KnownJob, listing: Listing, selection: Selection) -> ItemView:
    """The one item that is meant."""
    if len(selection.items) + len(selection.indexes) != 1:
        raise UsageError(f"{known.name}: which item? Give its key, a path to its file, or --index N")
    return next(select(known, listing, selection))


def find_item(known: KnownJob, listing: Listing, ref: str, *, here: Path | None = None) -> ItemView:
    """The item with this key, or whose file this path leads to."""
    for key in keys_meant(ref, known.job.base if known.job else None, here):
        if (found := listing.find(key=key)) is not None:
            return found
    raise UsageError(_unknown(known, ref, (item.key for item in listing.items())))


def find_index(known: KnownJob, listing: Listing, index: int) -> ItemView:
    found = listing.find(index=index)
    if found is None:
        raise UsageError(f"{known.name}: there is no item {index}; it has {len(listing)}, the first is 0")
    return found


def select_from_source(known: KnownJob, selection: Selection, *, spool: Path | None = None) -> list[Item]:
    """The items of the source that are meant by name, in the order they were asked for.

    `spool` holds standard input, if it was read for this.
    """
    if known.job is None:
        raise UsageError(f"{known.name}: its job file cannot be read, so its items are not known")
    job = known.job
    asked = [(ref, keys_meant(ref, job.base, selection.here)) for ref in selection.items]
    wanted_keys = {key for _, keys in asked for key in keys}
    wanted_indexes = set(selection.indexes)
    by_key: dict[str, Item] = {}
    by_index: dict[int, Item] = {}
    best = {keys[0] for _, keys in asked}
    for index, key, make in read_source(known.store, job, spool=spool):
        if key in wanted_keys or index in wanted_indexes:
            by_index[index] = by_key[key] = make()
            if best <= by_key.keys() and wanted_indexes <= by_index.keys():
                break
    chosen = []
    for ref, keys in asked:
        item = next((by_key[key] for key in keys if key in by_key), None)
        if item is None:
            raise UsageError(_unknown(known, ref, (key for _, key, _ in read_source(known.store, job, spool=spool))))
        chosen.append(item)
    for index in selection.indexes:
        if index not in by_index:
            raise UsageError(f"{known.name}: there is no item {index}; the first is 0")
        chosen.append(by_index[index])
    return chosen


def is_of_cause(view: ItemView, text: str) -> bool:
    """Whether it failed for this cause, as a list of failures shows it. A part of the words is enough, in any case."""
    return view.state == "failed" and means_cause(text, view.cause)


def means_cause(text: str, cause: str) -> bool:
    """Whether somebody who writes `text` means this cause of a failure."""
    cause, said = _UNSEEN.sub(" ", cause), _UNSEEN.sub(" ", text).strip()
    shape, meant = cause_shape(cause).casefold(), cause_shape(said.rstrip(VARIES)).casefold()
    is_cut = said.endswith(VARIES)
    # A whole message means all that differ only in numbers and names: the items of one heading.
    return bool(said) and (
        said.casefold() in cause.casefold()
        or said.casefold() in shape
        or (shape.startswith(meant.rstrip(VARIES)) if is_cut else shape == meant)
    )


def words_for(key: str, index: int) -> str:
    """How to name an item in a command, as a shell reads it: by its key, if a person can copy that from a terminal."""
    is_plain = key.isprintable() and len(key) <= 200 and not key.startswith("-")
    return shlex.quote(key) if is_plain else f"--index {index}"


def keys_meant(ref: str, base: Path | None, here: Path | None) -> list[str]:
    """The keys that a word may mean: itself, and, as a path from `here`, the one that is relative to the job."""
    keys = [ref]
    if base is not None and here is not None and "\0" not in ref:
        keys.append(os.path.relpath(here / ref, base))
        keys.append(os.path.relpath((here / ref).resolve(), base.resolve()))
    return list(dict.fromkeys(keys))


def _unknown(known: KnownJob, ref: str, keys: Iterator[str]) -> str:
    near = near_misses(ref, keys)
    does = f"did you mean {', '.join(near)}?" if near else f"see them with: agentrun items {known.shown}"
    return f"{known.name}: has no item {ref[:100]}; {does}"


def near_misses(ref: str, keys: Iterable[str]) -> list[str]:
    """A few keys that may have been meant, among the first of many."""
    from difflib import get_close_matches

    compared = list(islice(keys, _KEYS_COMPARED))
    word = ref.strip().casefold()
    inside = [key for key in compared if word and word in key.casefold()]
    # Comparing is slow: of many keys only those that end as what was typed does.
    ends = [key for key in compared if len(compared) <= 500 or key[-6:] == ref[-6:]][:1000]
    close = get_close_matches(ref, ends, n=_NEAR)
    return list(dict.fromkeys([*sorted(inside, key=len)[:_NEAR], *close]))[:_NEAR]
