"""The view of a launch that a script or a notebook started.

It is the command line's, which the library looks for only now: on its own, it imports neither typer nor rich. Without
the command line there are plain lines.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Protocol, TextIO

from agentrun.events import Began, Event, Failed, Pausing, Planned, Progress, Settled, Stopping, Waiting, Warned
from agentrun.values.text import clean
from agentrun.values.units import format_duration
from agentrun.values.until import pause_words

LINE_SECONDS = 30.0
"""The least time between two lines of progress."""


class View(AbstractContextManager["View"], Protocol):
    """What shows a launch to people, from its first event to its last."""

    terminal: int | None = None
    """The descriptor of the terminal that it draws on below the cursor, if it does."""

    def watch(self, event: Event) -> None: ...


def open_view(job: str, folder: Path | None, *, wanted: bool | None) -> View | None:
    """The view of a job whose state is in `folder`; None if none is wanted.

    By default there is one if somebody can see it: on a terminal, and in a notebook.
    """
    # As it is now: while agents run, sys.stderr captures their prints.
    stream, in_notebook = sys.stderr, is_notebook()
    if wanted is None:
        wanted = in_notebook or (stream is not None and stream.isatty())
    if not wanted or stream is None:
        return None
    try:
        # By its name, so that nothing below the command line depends on it.
        live = import_module("agentrun_cli.drawing.live")
        view: View = live.open_script_view(job, folder, stream=stream, is_notebook=in_notebook)
    except ImportError:
        return PlainLines(job, stream)
    return view


def is_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


class PlainLines(View):
    """What goes wrong, and now and then the progress; each a line without control codes."""

    def __init__(self, job: str, stream: TextIO, *, every_seconds: float = LINE_SECONDS) -> None:
        self._job = job
        self._stream = stream
        self._every_seconds = every_seconds
        self._progress: Progress | None = None
        self._said_at = 0.0

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._say_progress(self._progress)

    def watch(self, event: Event) -> None:
        if isinstance(event, Planned):
            items = "1 item" if event.plan.total == 1 else f"{event.plan.total:,} items"
            self._say(f"{items}, {event.plan.to_run - event.plan.others:,} to run → {event.output}")
        elif isinstance(event, Began):
            self._progress, self._said_at = event.progress, time.monotonic()
        elif isinstance(event, Settled):
            if self._progress is not None and time.monotonic() - self._said_at >= self._every_seconds:
                self._say_progress(self._progress)
        elif isinstance(event, Failed):
            self._say(f"failed: {clean(event.key, limit=120)}: {clean(event.cause, limit=300)}")
        elif isinstance(event, Stopping):
            self._say(f"{clean(event.reason)}; {event.in_flight} in flight")
        elif isinstance(event, Pausing) and event.until and not event.again:
            self._say(pause_words(event.until, clean(event.reason, limit=300), time.time()))
        elif isinstance(event, Waiting):
            self._say(f"waiting for another runner ({clean(event.holder)}), up to {format_duration(event.seconds)}")
        elif isinstance(event, Warned):
            self._say(clean(event.text, limit=1000))

    def _say_progress(self, progress: Progress) -> None:
        self._said_at = time.monotonic()
        failed = f", {progress.failed:,} failed" if progress.failed else ""
        took = format_duration(self._said_at - progress.began)
        self._say(f"{progress.done:,} of {progress.total:,} done{failed}, after {took}")

    def _say(self, text: str) -> None:
        try:
            self._stream.write(f"{self._job}: {text}\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads it any more
