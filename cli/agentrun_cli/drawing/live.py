"""The view of a launch at work: a bar on a terminal, plain lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from agentrun_cli import terminal as console
from agentrun_cli.terminal import clean, coloured

if TYPE_CHECKING:
    from agentrun.events import Event, Progress


LINES_SHOWN = 20
"""How many failures, and how many retries, are shown one by one; further ones are only counted."""
DOING_SHOWN = 5
"""How many items in flight are shown below the bar with what they are doing."""
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
    """The view that fits; `name` is the job's name in a command that works here."""
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
    """Lines: the plan, what goes wrong, and now and then the progress."""

    def __init__(self, job: str, name: str) -> None:
        self.job = job
        self.name = name
        self.progress: Progress | None = None
        self._ended = threading.Event()
        self._ticking: threading.Thread | None = None
        self._told = {"failed": 0, "retrying": 0}
        self.doing: dict[str, str] = {}
        """What items in flight are doing, by key, as they reported it; the oldest first."""
        self._has_progressed = False

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._ticking is not None:
            self._ticking.join()

    def say(self, line: str) -> None:
        console.say(line)

    def watch(self, event: Event) -> None:
        from agentrun.events import Began, Failed, Planned, Progressed, Retrying, Stopping, Warned
        from agentrun_cli.drawing.plan import opening_lines

        if isinstance(event, Planned):
            self._grace_seconds = event.job.grace_seconds
            for line in opening_lines(event, self.name):
                self.say(line)
        elif isinstance(event, Began):
            self.progress = event.progress
            self.begin(event.progress)
        elif isinstance(event, Progressed):
            self._show_progress(event.key, event.text)
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

    def _show_progress(self, key: str, text: str) -> None:
        if text := clean(text, limit=200).strip():
            self.doing[key] = text
            self._has_progressed = True
        else:
            self.doing.pop(key, None)

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
            return  # the closing lines follow at once, and say the same
        line = f"{self.job}: {clean(reason)}"
        if reason.startswith("stopped by "):
            waits = format_duration(self._grace_seconds)
            line += f"; {in_flight} in flight {_has(in_flight)} {waits} to finish; stop once more to end them now"
        else:
            are = "is" if in_flight == 1 else "are"
            line += f"; {in_flight} in flight {are} finished first, and no new items are started"
        self.say(line)

    def begin(self, progress: Progress) -> None:
        ticking = threading.Thread(target=self._tick, args=(progress,), name="agentrun-lines", daemon=True)
        try:
            ticking.start()
        except RuntimeError:  # no more threads can be started: the run does without these lines
            return
        self._ticking = ticking

    def _tick(self, progress: Progress) -> None:
        """A line at each 5 %, or when items report progress, but at most one in 60 s."""
        told_at, told = time.monotonic(), progress.settled
        while not self._ended.wait(1.0):
            now, settled = time.monotonic(), progress.settled
            due = is_line_due(now - told_at, settled - told, progress.total, progressed=self._has_progressed)
            if due and settled < progress.total:
                self.say(f"{self.job}: {progress_words(progress)}{doing_words(self.doing)}")
                told_at, told, self._has_progressed = now, settled, False


class BarView(PlainView):
    """A live bar, with what items in flight are doing below it; all other lines go above it."""

    def __init__(self, job: str, name: str) -> None:
        super().__init__(job, name)
        self._live: Any = None

    def begin(self, progress: Progress) -> None:
        self._live = open_live(self.job, progress, REFRESHES_PER_SECOND, doing=self.doing)
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


def open_live(job: str, progress: Progress, per_second: float, *, doing: Mapping[str, str]) -> Any:
    """The bar, drawn by a thread of rich's, which reads the counters and `doing` each time."""
    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    class Terminal(Console):
        def show_cursor(self, show: bool = True) -> bool:
            # Never hidden: a runner that is killed could not show it again.
            return False

    class Bar:
        def __rich__(self) -> RenderableType:
            grid = Table.grid(padding=(0, 1))
            bar = ProgressBar(total=max(progress.total, 1), completed=progress.settled, width=24)
            grid.add_row(
                Text(job, overflow="ellipsis", no_wrap=True), bar, Text(progress_words(progress), no_wrap=True)
            )
            # As Text: nothing in it is markup.
            lines = doing_lines(doing, width=terminal.width, most=min(DOING_SHOWN, terminal.height - 2))
            return Group(grid, *(Text(line, overflow="ellipsis", no_wrap=True) for line in lines))

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


def is_line_due(seconds: float, settled: int, total: int, *, progressed: bool = False) -> bool:
    """Whether to print a line, that long after the last one and with so many items settled since then."""
    return seconds >= LINE_SECONDS and (progressed or settled * 100 >= LINE_PERCENT * total)


def doing_lines(doing: Mapping[str, str], *, width: int, most: int) -> list[str]:
    """A line for each item in flight that reported what it is doing, at most `most`; long keys are cut on the left."""
    items = list(doing.items())
    if not items or most < 1:
        return []
    shown = items if len(items) <= most else items[: most - 1]
    lines = [f"  {_cut_left(clean(key), width // 2)}  {text}"[:width] for key, text in shown]
    return lines if len(shown) == len(items) else [*lines, f"  and {len(items) - len(shown):,} more"]


def doing_words(doing: Mapping[str, str]) -> str:
    """The same for a plain line: the oldest item, and how many others there are."""
    items = list(doing.items())
    if not items:
        return ""
    key, text = items[0]
    others = f", and {len(items) - 1:,} more" if len(items) > 1 else ""
    return f"; {clean(key, limit=120)}: {text}{others}"


def _cut_left(text: str, most: int) -> str:
    return text if len(text) <= most else "…" + text[len(text) - most + 1 :]


def retrying_line(key: str, cause: str, attempt: int, wait_seconds: float) -> str:
    from agentrun.values.units import format_duration

    again = f"attempt {attempt + 1} in {format_duration(wait_seconds)}"
    return f"{coloured('again', 'yellow')}   {clean(key, limit=120)}: {clean(cause, limit=300)}; {again}"


def pace_of(progress: Progress, now: float) -> tuple[float | None, float | None]:
    """Items settled in a second, and the seconds left, from this launch only; None if unknown."""
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
