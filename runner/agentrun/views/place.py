"""The jobs of one place, for front ends that stay open: a page, a server for other agents."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from agentrun.errors import AgentrunError, UsageError
from agentrun.job.known import LISTED, Known
from agentrun.views.finding import KnownJob, catalogue_near, open_job
from agentrun.views.jobs import JobView, list_job, view_job
from agentrun.views.kept import KeptListings
from agentrun.views.kept import Warn as Warn
from agentrun.views.kept import open_items as open_items
from agentrun.views.kept import unheard as unheard
from agentrun.views.listing import Listing


class Place:
    """The jobs in the state folder that somebody in `cwd` sees, each by its exact name and by nothing else.

    Methods may be called from several threads.
    """

    def __init__(
        self,
        cwd: Path,
        state_dir: str | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        store: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        catalogue = catalogue_near(cwd, state_dir, self._environ, store=store)
        self.root = catalogue.root
        self._store = store
        self._cwd = cwd
        self._catalogue = catalogue
        self._kept = KeptListings(clock)

    def jobs(self) -> list[JobView]:
        """All jobs that are known here, by name."""
        # By the name of its place, whatever its records call it: that is how it is asked for.
        names = self._catalogue.names()
        return [replace(list_job(self._catalogue.store(name), name), job=name) for name in names]

    def known(self, name: str) -> KnownJob:
        """The job with this name; UsageError that says which are known if there is none."""
        names = self._catalogue.names()
        if name not in names:
            more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
            known = f"known here: {', '.join(names[:LISTED])}{more}" if names else "no job is known here"
            raise UsageError(f"{name[:100]}: no job of that name; {known}")
        store = self._catalogue.store(name)
        try:
            found = Known(self.root, lambda root, asked=None, /: self._catalogue).found(name)
            opened = open_job(None, found=found, cwd=self._cwd, environ=self._environ, store=self._store)
        except AgentrunError as error:
            return KnownJob(name, store, problem=error.message)
        return KnownJob(name, store, opened.job)

    def view(self, known: KnownJob) -> JobView:
        """The job at a glance."""
        return replace(view_job(known.store, known.name), job=known.name)

    @contextmanager
    def items(self, known: KnownJob, *, warn: Warn = unheard) -> Iterator[Listing]:
        """The job's items as they are now, for this block alone: others who want the same job's wait for its end.

        What the records say is always up to date; the source is asked now and then, see `KeptListing`. Who reads for
        long, or wants it in a block within a block, opens a listing of their own with `open_items`.
        """
        with self._kept.items(known, warn=warn) as listing:
            yield listing

    def close(self) -> None:
        """Let go of what it holds open, when nobody uses it any more."""
        self._kept.close()
