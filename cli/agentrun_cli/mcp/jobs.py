"""The jobs that the server knows: those of the folder it was started in, and those of its job files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentrun.errors import TrustError, UsageError
from agentrun.views.finding import KnownJob
from agentrun.views.jobs import JobView
from agentrun.views.listing import Listing
from agentrun.views.place import Place
from agentrun_cli.asked import Asked
from agentrun_cli.hints import how_to_name

_LISTED = 20


@dataclass(frozen=True, slots=True)
class Opened:
    """A job with its items as they are now, and what is odd about them."""

    known: KnownJob
    listing: Listing
    notes: list[str] = field(default_factory=list)


class Jobs:
    """The jobs of several state folders, each by its exact name. May be used from several threads."""

    def __init__(
        self, here: Path, state_dir: str | None = None, roots: Sequence[Path] = (), *, store: str | None = None
    ) -> None:
        """`roots` are further state folders; they need not be there yet. With `store`, all jobs are in that store."""
        self.here = here
        self.store = store
        first = Place(here, state_dir, store=store)
        others = dict.fromkeys(root for root in roots if root != first.root)
        self._places = [first, *(Place(here, str(root), store=store) for root in others)]

    @property
    def roots(self) -> list[Path]:
        return [place.root for place in self._places]

    def views(self) -> list[JobView]:
        """All jobs, by name."""
        found = {(view.job, view.where or place.root): view for place in self._places[::-1] for view in place.jobs()}
        return sorted(found.values(), key=lambda view: view.job)

    def find(self, name: str) -> tuple[Place, KnownJob]:
        """The job with this name; UsageError that says which are known if there is none."""
        # A job in a shared store is seen from every folder, and is one job.
        seen = {
            known.store.where or str(place.root): (place, known)
            for place in self._places[::-1]
            if (known := _known_in(place, name)) is not None
        }
        having = list(seen.values())
        if len(having) > 1:
            roots = " and ".join(str(place.root) for place, _ in having)
            raise UsageError(f"{name[:100]}: {roots} both have a job of this name; start a server in each folder")
        if not having:
            raise UsageError(f"{name[:100]}: no job of that name; {_list(sorted({one.job for one in self.views()}))}")
        place, known = having[0]
        shown = how_to_name(known.name, known.store.folder, Asked(None, store=self.store))
        return place, replace(known, command_name=shown)

    def view(self, name: str) -> JobView:
        place, known = self.find(name)
        return place.view(known)

    @contextmanager
    def open(self, name: str) -> Iterator[Opened]:
        """The job and its items, for this block alone."""
        place, known = self.find(name)
        notes = [f"{known.problem}; using only what is on record"] if known.problem else []
        with place.items(known, warn=notes.append) as listing:
            yield Opened(known, listing, notes)

    def close(self) -> None:
        for place in self._places:
            place.close()


def _known_in(place: Place, name: str) -> KnownJob | None:
    try:
        return place.known(name)
    except TrustError:
        raise
    except UsageError:
        return None


def _list(names: Sequence[str]) -> str:
    if not names:
        return "no job is known here"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"known here: {', '.join(names[:_LISTED])}{more}"
