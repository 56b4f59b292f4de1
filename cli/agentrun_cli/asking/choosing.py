"""Find the job and the items that a person names: by key, by path to the item's file, or by index."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentrun.item import Item
    from agentrun.job.job import Job
    from agentrun.views.item import ItemView
    from agentrun.views.listing import Listing


_KEYS_COMPARED = 20_000
_NEAR = 3


class Opened(Protocol):
    """A job and the folder of its state, as `open_job` returns it."""

    @property
    def job(self) -> Job | None: ...

    @property
    def folder(self) -> Path: ...


@dataclass(frozen=True)
class KnownJob:
    """A job to look at. `job` is None if its job file cannot be read; its records may still be."""

    job: Job | None
    folder: Path
    ref: str
    state_dir: str | None = None

    @property
    def name(self) -> str:
        """How to name it in a command typed here."""
        from agentrun_cli import flags

        return flags.how_to_name(self.folder.name, self.folder, flags.Asked(self.ref, state_dir=self.state_dir))


def open_known(ref: str, state_dir: str | None) -> KnownJob:
    from agentrun.errors import AgentrunError
    from agentrun.job.opening import open_job
    from agentrun_cli.terminal import HERE, clean, say

    try:
        opened = open_job(ref, cwd=HERE, state_dir=state_dir)
    except AgentrunError as error:
        folder = _known_folder(ref, state_dir)
        if folder is None:
            raise
        say(f"{clean(error.message)}; showing only what is on record")
        return KnownJob(None, folder, ref, state_dir)
    return KnownJob(opened.job, opened.folder, ref, state_dir)


def _known_folder(ref: str, state_dir: str | None) -> Path | None:
    """The folder of a job whose job file cannot be read."""
    from agentrun.job.file import default_name
    from agentrun.job.home import known_jobs, state_root
    from agentrun_cli.terminal import HERE

    known = {folder.name: folder for folder in known_jobs(HERE, state_dir, os.environ)}
    if ref in known:
        return known[ref]
    file = HERE / ref / "job.toml" if (HERE / ref).is_dir() else HERE / ref
    if file.suffix != ".toml":
        return None
    folder = state_root(file.parent, state_dir, os.environ) / default_name(file)
    return folder if folder.is_dir() else None


def open_items(known: KnownJob) -> Listing:
    """The job's items; only those on record, with a message, if the source cannot be read."""
    from agentrun.errors import ItemsError, LaterError
    from agentrun.views.listing import open_listing
    from agentrun_cli.terminal import clean, say

    try:
        listing = open_listing(known.folder, known.job)
    except (ItemsError, LaterError) as error:
        if not known.folder.is_dir():
            raise
        say(f"{clean(error.message)}; showing only what is on record")
        listing = open_listing(known.folder)
    if listing.note:
        say(f"{known.folder.name}: {listing.note}")
    return listing


def choose_items(
    opened: Opened, refs: Sequence[str], indexes: Sequence[int] = (), *, spool: Path | None = None
) -> list[Item]:
    """The named items of the source, in the order of the names."""
    from agentrun.errors import UsageError
    from agentrun.views.listing import read_source

    if opened.job is None:
        raise UsageError(
            f"{opened.folder.name}: its job file cannot be read, so its items are unknown; fix the job file"
        )
    asked = [(ref, keys_meant(ref, opened.job.base)) for ref in refs]
    wanted_keys = {key for _, keys in asked for key in keys}
    wanted_indexes = set(indexes)
    by_key: dict[str, Item] = {}
    by_index: dict[int, Item] = {}
    best = {keys[0] for _, keys in asked}
    for index, key, make in read_source(opened.folder, opened.job, spool=spool):
        if key in wanted_keys or index in wanted_indexes:
            by_index[index] = by_key[key] = make()
            if best <= by_key.keys() and wanted_indexes <= by_index.keys():
                break
    chosen = []
    for ref, keys in asked:
        item = next((by_key[key] for key in keys if key in by_key), None)
        if item is None:
            names = (key for _, key, _ in read_source(opened.folder, opened.job, spool=spool))
            raise UsageError(_unknown(opened.folder, ref, names))
        chosen.append(item)
    for index in indexes:
        if index not in by_index:
            raise UsageError(f"{opened.folder.name}: there is no item {index}; the first is 0")
        chosen.append(by_index[index])
    return chosen


def choose_view(known: KnownJob, listing: Listing, ref: str | None, index: int | None) -> ItemView:
    """The named item, with what is on record about it."""
    from agentrun.errors import UsageError

    name = known.folder.name
    if (ref is None) == (index is None):
        raise UsageError(f"{name}: which item? Give its key, a path to its file, or --index N")
    if ref is None:
        found = listing.find(index=index)
        if found is None:
            raise UsageError(f"{name}: there is no item {index}; it has {len(listing)} items, the first is 0")
        return found
    for key in keys_meant(ref, known.job.base if known.job else None):
        if (found := listing.find(key=key)) is not None:
            return found
    raise UsageError(_unknown(known.folder, ref, (item.key for item in listing.items())))


def choose_views(known: KnownJob, listing: Listing, refs: Sequence[str], indexes: Sequence[int] = ()) -> list[ItemView]:
    """The named items, in the order of the names, each once."""
    named = [choose_view(known, listing, ref, None) for ref in refs]
    named += [choose_view(known, listing, None, index) for index in indexes]
    return list({view.key: view for view in named}.values())


def is_of_cause(view: ItemView, text: str) -> bool:
    """Whether it failed with this cause, as `agentrun failures` shows it; part of the text is enough, in any case."""
    from agentrun.views.causes import VARIES, cause_shape
    from agentrun_cli.terminal import clean

    if view.state != "failed":
        return False
    cause, said = clean(view.cause, limit=10_000), clean(text).strip()
    shape, meant = cause_shape(cause).casefold(), cause_shape(said.rstrip(VARIES)).casefold()
    is_cut = said.endswith(VARIES)
    # A whole message matches all that differ only in numbers and names: the items under one heading.
    return bool(said) and (
        said.casefold() in cause.casefold()
        or said.casefold() in shape
        or (shape.startswith(meant.rstrip(VARIES)) if is_cut else shape == meant)
    )


def find_input(known: KnownJob, key: str) -> Item | None:
    """The item itself, if the source still has it."""
    from agentrun.errors import AgentrunError
    from agentrun.views.listing import read_source

    if known.job is None:
        return None
    try:
        return next((make() for _, found, make in read_source(known.folder, known.job) if found == key), None)
    except AgentrunError:
        return None


def keys_meant(ref: str, base: Path | None) -> list[str]:
    """The keys that a word may mean: the word itself, or as a path from here, relative to the job's folder."""
    from agentrun_cli.terminal import HERE

    keys = [ref]
    if base is not None and "\0" not in ref:
        keys.append(os.path.relpath(HERE / ref, base))
        keys.append(os.path.relpath((HERE / ref).resolve(), base.resolve()))
    return list(dict.fromkeys(keys))


def words_for(key: str, index: int) -> str:
    """How to name an item in a command, quoted for the shell."""
    import shlex

    from agentrun_cli.terminal import clean

    plain = clean(key, limit=200) == key and not key.startswith("-")
    return shlex.quote(key) if plain else f"--index {index}"


def _unknown(folder: Path, ref: str, keys: Iterator[str]) -> str:
    from agentrun_cli import flags
    from agentrun_cli.terminal import clean

    near = near_misses(ref, keys)
    see = f"see them with: agentrun items {flags.how_to_name(folder.name, folder)}"
    does = f"did you mean {clean(', '.join(near))}?" if near else see
    return f"{folder.name}: has no item {clean(ref, limit=100)}; {does}"


def near_misses(ref: str, keys: Iterable[str]) -> list[str]:
    """A few similar keys, among the first of many."""
    from difflib import get_close_matches

    compared = list(islice(keys, _KEYS_COMPARED))
    word = ref.strip().casefold()
    inside = [key for key in compared if word and word in key.casefold()]
    # Comparing is slow: of many keys, only those with the same ending.
    ends = [key for key in compared if len(compared) <= 500 or key[-6:] == ref[-6:]][:1000]
    close = get_close_matches(ref, ends, n=_NEAR)
    return list(dict.fromkeys([*sorted(inside, key=len)[:_NEAR], *close]))[:_NEAR]
