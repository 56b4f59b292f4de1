"""What is shown while a launch works: a bar on a terminal, plain lines elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from agentrun_cli import terminal as console
from agentrun_cli.terminal import clean, coloured

if TYPE_CHECKING:
    from agentrun.events import Event, Progress


LINES_SHOWN = 20
"""Failures and retries that are told one by one; after that they are only counted."""
WORTH_TELLING_SECONDS, WORTH_TELLING_ATTEMPT = 5.0, 3
LINE_PERCENT, LINE_SECONDS = 5.0, 60.0
REFRESHES_PER_SECOND = 5.0


class View(Protocol):
    def watch(self, event: Event) -> None: ...

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_view(job: str, name: str, *, quiet: bool) -> View:
    """`name` is how the job is named in a command that works here."""
    if quiet:
        return QuietView()
    if console.is_terminal(sys.__stderr__):
        return BarView(job, name)
    return PlainView(job, name)


class QuietView:
    def watch(self, event: Event) -> None:
        pass

    def __enter__(self) -> QuietView:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class PlainView:
    """Lines: the plan, what goes wrong, and now and then how far it is."""

    def __init__(self, job: str, name: str) -> None:
        self.job = job
        self.name = name
        self.progress: Progress | None = None
        self._ended = threading.Event()
        self._ticking: threading.Thread | None = None
        self._told = {"failed": 0, "retrying": 0}

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._ticking is not None:
            self._ticking.join()

    def say(self, line: str) -> None:
        console.say(line)

    def watch(self, event: Event) -> None:
        from agentrun.events import Began, Failed, Planned, Retrying, Stopping, Warned
        from agentrun_cli.drawing.plan import opening_lines

        if isinstance(event, Planned):
            self._grace_seconds = event.job.grace_seconds
            for line in opening_lines(event):
                self.say(line)
        elif isinstance(event, Began):
            self.progress = event.progress
            self.begin(event.progress)
        elif isinstance(event, Failed):
            line = f"{coloured('failed', 'red')}  {clean(event.key, limit=120)}: {clean(event.cause, limit=300)}"
            self._tell("failed", line, f"agentrun failures {self.name}")
        elif isinstance(event, Retrying):
            if event.wait_seconds >= WORTH_TELLING_SECONDS or event.attempt >= WORTH_TELLING_ATTEMPT:
                self._tell("retrying", retrying_line(event.key, event.cause, event.attempt, event.wait_seconds), "")
        elif isinstance(event, Stopping):
            self._say_stopping(event.reason, event.in_flight)
        elif isinstance(event, Warned):
            self.say(f"{self.job}: {clean(event.text, limit=1000)}")

    def _tell(self, kind: str, line: str, where: str) -> None:
        self._told[kind] += 1
        if self._told[kind] <= LINES_SHOWN:
            self.say(line)
        elif self._told[kind] == LINES_SHOWN + 1:
            hint = f"; see them with: {where}" if where else ""
            self.say(f"more of these ({kind}) are not shown here{hint}")

    def _say_stopping(self, reason: str, in_flight: int) -> None:
        from agentrun.values.units import format_duration

        if not in_flight:
            return  # the end, which is near, says the same
        line = f"{self.job}: {clean(reason)}"
        if reason.startswith("stopped by "):
            waits = format_duration(self._grace_seconds)
            line += f"; {in_flight} in flight {_has(in_flight)} {waits} to finish, once more ends them now"
        else:
            line += f"; {in_flight} in flight {'is' if in_flight == 1 else 'are'} finished first, and no new ones begun"
        self.say(line)

    def begin(self, progress: Progress) -> None:
        self._ticking = threading.Thread(target=self._tick, args=(progress,), name="agentrun-lines", daemon=True)
        self._ticking.start()

    def _tick(self, progress: Progress) -> None:
        """One line at each 5 % or 60 s, whichever is rarer."""
        told_at, told = time.monotonic(), progress.settled
        while not self._ended.wait(1.0):
            now, settled = time.monotonic(), progress.settled
            if is_line_due(now - told_at, settled - told, progress.total) and settled < progress.total:
                self.say(f"{self.job}: {progress_words(progress)}")
                told_at, told = now, settled


class BarView(PlainView):
    """A live bar; what else there is to say goes above it."""

    def __init__(self, job: str, name: str) -> None:
        super().__init__(job, name)
        self._live: Any = None

    def begin(self, progress: Progress) -> None:
        self._live = open_live(self.job, progress, REFRESHES_PER_SECOND)
        self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        if self._live is None:
            super().say(line)
            return
        from rich.text import Text

        self._live.console.print(Text.from_ansi(line), soft_wrap=True)


def open_live(job: str, progress: Progress, per_second: float) -> Any:
    """The bar. Rich's own thread draws it, and reads the counters when it does."""
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    class Terminal(Console):
        def show_cursor(self, show: bool = True) -> bool:
            # Never hidden: a runner that is killed could not bring it back.
            return False

    class Bar:
        def __rich__(self) -> RenderableType:
            grid = Table.grid(padding=(0, 1))
            bar = ProgressBar(total=max(progress.total, 1), completed=progress.settled, width=24)
            grid.add_row(
                Text(job, overflow="ellipsis", no_wrap=True), bar, Text(progress_words(progress), no_wrap=True)
            )
            return grid

    terminal = Terminal(file=sys.__stderr__, highlight=False, markup=False, emoji=False)
    return Live(
        Bar(),
        console=terminal,
        refresh_per_second=per_second,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def is_line_due(seconds: float, settled: int, total: int) -> bool:
    return seconds >= LINE_SECONDS and settled * 100 >= LINE_PERCENT * total


def retrying_line(key: str, cause: str, attempt: int, wait_seconds: float) -> str:
    from agentrun.values.units import format_duration

    again = f"attempt {attempt + 1} in {format_duration(wait_seconds)}"
    return f"{coloured('again', 'yellow')}   {clean(key, limit=120)}: {clean(cause, limit=300)}; {again}"


def pace_of(progress: Progress, now: float) -> tuple[float | None, float | None]:
    """Items settled in a second and the seconds that are left, from this launch only; None where unknown."""
    seconds = now - progress.began
    if progress.settled_here < 2 or seconds < 0.5:
        return None, None
    rate = progress.settled_here / seconds
    left = max(progress.total - progress.settled - progress.waiting, progress.to_run - progress.settled_here, 0)
    return rate, left / rate


def pace_words(progress: Progress) -> list[str]:
    from agentrun.values.units import format_duration

    rate, left = pace_of(progress, time.monotonic())
    if rate is None or left is None:
        return []
    shown = f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min" if rate * 60 >= 1 else f"{rate * 3600:.1f}/h"
    return [shown, f"{format_duration(round(left))} left" if left >= 1 else "nearly there"]


def progress_words(progress: Progress) -> str:
    words = [f"{progress.done:,} of {progress.total:,} done"]
    for kind in ("failed", "skipped", "waiting"):
        if count := getattr(progress, kind):
            words.append(f"{count:,} {kind}")
    words += pace_words(progress)
    if progress.cost:
        from agentrun.money.usage import format_cost

        words.append(format_cost(progress.cost))
    return ", ".join(words)
