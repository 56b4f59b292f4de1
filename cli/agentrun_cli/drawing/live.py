"""The view of a launch at work: in place on a terminal, plain lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from agentrun.events import Began, Event, Failed, Pausing, Planned, Progress, Retrying, Stopping, Waiting, Warned
from agentrun.values.units import format_duration
from agentrun.values.until import pause_words
from agentrun_cli import terminal as console
from agentrun_cli.drawing.cells import wrap
from agentrun_cli.drawing.frame import FULL, Flight, Halt, Scene, cost_words, count_words, draw_frame
from agentrun_cli.drawing.pace import Pace, left_words
from agentrun_cli.drawing.screen import Screen
from agentrun_cli.terminal import Colour, clean, coloured

if TYPE_CHECKING:
    from pathlib import Path

    from agentrun.job.job import Job

LINES_SHOWN = 20
"""How many failures, and how many retries, are shown one by one; further ones are only counted."""
WORTH_TELLING_SECONDS, WORTH_TELLING_ATTEMPT = 5.0, 3
LINE_SECONDS = 30.0
"""The least time between two lines of progress."""
LOOK_SECONDS, DRAW_SECONDS = 1.0, 0.25
INDENT = 8


class View(Protocol):
    @property
    def terminal(self) -> int | None:
        """The descriptor of the terminal that it draws on below the cursor, if it does."""

    def watch(self, event: Event) -> None: ...

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_view(
    job: str,
    name: str,
    *,
    quiet: bool = False,
    every_seconds: float | None = None,
    stream: TextIO | None = None,
    is_notebook: bool = False,
    says_end: bool = False,
) -> View:
    """The view that fits. `name` is the job's name in a command that works here; `stream` is standard error unless
    given. With `says_end` its last line says how far the launch got."""
    stream = stream if stream is not None else sys.__stderr__
    if quiet or stream is None:
        return QuietView(job, stream)
    every = LINE_SECONDS if every_seconds is None else every_seconds
    if is_notebook:
        return NotebookView(job, name, stream, says_end=says_end)
    if console.is_terminal(stream):
        return BarView(job, name, stream, says_end=says_end)
    return PlainView(job, name, stream, every_seconds=every, says_end=says_end)


def open_script_view(job: str, folder: Path | None, *, stream: TextIO, is_notebook: bool) -> View:
    """For `agentrun.run`: no closing lines follow, so it says itself how far the launch got."""
    from agentrun_cli.hints import how_to_name

    return open_view(job, how_to_name(job, folder), stream=stream, is_notebook=is_notebook, says_end=True)


class QuietView:
    """Nothing, except that a launch waits for hours."""

    terminal: int | None = None

    def __init__(self, job: str, stream: TextIO | None) -> None:
        self._job = job
        self._stream = stream

    def watch(self, event: Event) -> None:
        if isinstance(event, Pausing) and event.until and not event.again and self._stream is not None:
            console.say(f"{self._job}: {beginning_words(event)}", self._stream)

    def __enter__(self) -> QuietView:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Said:
    """A line for people. The label is coloured; it says the same without its colour."""

    text: str
    label: str = ""
    colour: Colour | None = None

    def line(self, stream: TextIO) -> str:
        label = self.label.rstrip()
        return coloured(label, self.colour, stream) + self.label[len(label) :] + self.text

    def wrapped(self, width: int, stream: TextIO) -> list[str]:
        lines = list(wrap(self.label + self.text, width, indent=INDENT))
        if lines and lines[0].startswith(self.label.rstrip()):
            label = self.label.rstrip()
            lines[0] = coloured(label, self.colour, stream) + lines[0][len(label) :]
        return lines


class PlainView:
    """Lines: the plan, what goes wrong, and now and then the progress."""

    terminal: int | None = None

    def __init__(
        self, job: str, name: str, stream: TextIO, *, every_seconds: float = LINE_SECONDS, says_end: bool = False
    ) -> None:
        self.job = job
        self.name = name
        self.stream = stream
        self._every_seconds = every_seconds
        self._says_end = says_end
        self.progress: Progress | None = None
        self._pace: Pace | None = None
        self._planned: Job | None = None
        self._halt: Halt | None = None
        self._paused = ""
        self._told = {"failed": 0, "retried": 0}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._says_end and self.progress is not None:
            took = format_duration(time.monotonic() - self.progress.began)
            ended = replace(self.scene(), per_second=None)
            self.say(Said(f"{self.job}: {', '.join(count_words(ended, done=' done'))} in {took}"))

    def say(self, said: Said) -> None:
        console.say(said.line(self.stream), self.stream)

    # ---- events

    def watch(self, event: Event) -> None:
        if isinstance(event, Planned):
            self._say_plan(event)
        elif isinstance(event, Began):
            self.progress, self._pace = event.progress, Pace(event.progress)
            self.begin()
        elif isinstance(event, Failed):
            text = f"{clean(event.key, limit=120)}: {clean(event.cause, limit=300)}"
            self._tell("failed", Said(text, "failed  ", "red"), f"; see them with: agentrun failures {self.name}")
        elif isinstance(event, Retrying):
            if event.wait_seconds >= WORTH_TELLING_SECONDS or event.attempt >= WORTH_TELLING_ATTEMPT:
                self._tell("retried", Said(_retry_words(event), "again   ", "yellow"), "")
        elif isinstance(event, Stopping):
            self._halt = Halt(time.monotonic(), event.grace_seconds)
            self._say_stopping(event)
        elif isinstance(event, Pausing):
            self._note_pause(event)
        elif isinstance(event, Waiting):
            who = f" ({clean(event.holder)})" if event.holder else ""
            self.say(Said(f"{self.job}: waiting for another runner{who}, up to {format_duration(event.seconds)}"))
        elif isinstance(event, Warned):
            self.say(Said(f"{self.job}: {clean(event.text, limit=1000)}"))

    def _say_plan(self, planned: Planned) -> None:
        from agentrun_cli.drawing.plan import opening_lines

        self._planned = planned.job
        for line in opening_lines(planned, self.name):
            self.say(Said(line))

    def _note_pause(self, event: Pausing) -> None:
        self._paused = paused_words(event) if event.until else ""
        if not event.until:
            self._halt = None
        if event.until and not event.again:
            self.say(Said(f"{self.job}: {beginning_words(event)}"))
        elif not event.probes:
            self.say(Said(f"{self.job}: the pause is over, and it continues"))

    def _tell(self, kind: str, said: Said, where: str) -> None:
        self._told[kind] += 1
        if self._told[kind] <= LINES_SHOWN:
            self.say(said)
        elif self._told[kind] == LINES_SHOWN + 1:
            self.say(Said(f"further items that are {kind} are not shown here{where}"))

    def _say_stopping(self, event: Stopping) -> None:
        count = event.in_flight
        if not count:
            return  # the closing lines follow at once, and say the same
        line = f"{self.job}: {clean(event.reason)}; {count} in flight "
        if event.grace_seconds == 0:
            line += f"{'is' if count == 1 else 'are'} ended at once"
        elif event.grace_seconds is not None:
            line += f"{'has' if count == 1 else 'have'} {format_duration(event.grace_seconds)} to finish; "
            line += "stop once more to end them now"
        else:
            line += f"{'is' if count == 1 else 'are'} finished first, and no new items are started"
        self.say(Said(line))

    # ---- progress

    def scene(self) -> Scene:
        """What there is to show now."""
        progress, pace, job, now = self.progress, self._pace, self._planned, time.monotonic()
        assert progress is not None and pace is not None
        pace.look(now)
        return Scene(
            total=progress.total,
            done=progress.done,
            failed=progress.failed,
            skipped=progress.skipped,
            waiting=progress.waiting,
            began=progress.began,
            # In a pause nobody knows how long it takes, and nothing gets on.
            per_second=pace.per_second(now) if not self._paused else None,
            seconds_left=pace.seconds_left(now) if not self._paused else None,
            cost=progress.cost,
            budget=job.budget if job is not None else None,
            concurrency=job.concurrency if job is not None else 1,
            slowed=progress.slowed,
            held_back=progress.held_back,
            paused=self._paused,
            halt=self._halt,
            in_flight=[Flight(work.item.key, work.began, work.doing) for work in progress.oldest],
        )

    def begin(self) -> None:
        """The first items are started."""
        if self._every_seconds > 0:
            self.start_thread(self._print_lines)

    def start_thread(self, target: Callable[[], None]) -> bool:
        """Whether it could be started; otherwise the run does without."""
        thread = threading.Thread(target=target, name="agentrun-view", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def _print_lines(self) -> None:
        """A line when something has changed, and not too soon after the last one."""
        printed_at, printed = time.monotonic(), changing(self.scene())
        while not self._ended.wait(min(LOOK_SECONDS, self._every_seconds)):
            scene = self.scene()
            is_late = time.monotonic() - printed_at >= self._every_seconds
            if is_late and changing(scene) != printed and scene.done < scene.total:
                console.say(f"{time.strftime('%H:%M:%S')} {self.job}: {progress_line(scene)}", self.stream)
                printed_at, printed = time.monotonic(), changing(scene)


class BarView(PlainView):
    """A frame that is drawn in place; all other lines go above it."""

    def __init__(self, job: str, name: str, stream: TextIO, *, says_end: bool = False) -> None:
        super().__init__(job, name, stream, says_end=says_end)
        with suppress(OSError):
            self.terminal = stream.fileno()
        self._screen = Screen(stream)
        self._size = (0, 0)
        self._above: deque[Said] = deque()
        self._is_drawing = False

    def begin(self) -> None:
        self._size = self._screen.size()
        self._draw()
        self._is_drawing = self.start_thread(self._draw_frames)
        if not self._is_drawing:
            self._screen.close()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._is_drawing = False
        self._screen.close(above=self._lines_above(self._screen.size()[0]))
        super().__exit__()

    def say(self, said: Said) -> None:
        if self._is_drawing:
            self._above.append(said)
        else:
            self._screen.print(said.line(self.stream))

    def _draw_frames(self) -> None:
        """Whatever happens in between, there are four drawings a second at most."""
        while not self._ended.wait(DRAW_SECONDS):
            self._draw()

    def _draw(self) -> None:
        width, height = size = self._screen.size()
        if size != self._size:
            # Not drawn before it is at rest: while somebody drags its edge, it may have another size by now.
            self._size = size
            self._screen.draw((), size=size, above=self._lines_above(width))
            return
        lines = draw_frame(self.scene(), time.monotonic(), width, height)
        if bar := lines[0].count(FULL):
            lines[0] = coloured(lines[0][:bar], "green", self.stream) + lines[0][bar:]
        self._screen.draw(lines, size=size, above=self._lines_above(width))

    def _lines_above(self, width: int) -> list[str]:
        lines: list[str] = []
        while self._above:
            lines += self._above.popleft().wrapped(width, self.stream)
        return lines


class NotebookView(PlainView):
    """One line that is written over. Of the control characters, notebooks know the carriage return."""

    def __init__(self, job: str, name: str, stream: TextIO, *, says_end: bool = False) -> None:
        super().__init__(job, name, stream, says_end=says_end)
        self._written = ""

    def begin(self) -> None:
        self.start_thread(self._update)

    def say(self, said: Said) -> None:
        self._write(said.text if not said.label else said.label + said.text, "\n")

    def _update(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._write(f"{self.job}: {progress_line(self.scene())}", "")

    def _write(self, line: str, end: str) -> None:
        if line + end == self._written:
            return
        try:
            self.stream.write(f"\r{line.ljust(len(self._written))}{end}")
            self.stream.flush()
        except (OSError, ValueError):
            pass
        self._written = "" if end else line


def changing(scene: Scene) -> tuple[object, ...]:
    """What a new line of progress would tell."""
    return scene.done, scene.failed, scene.skipped, scene.waiting, _doing_words(scene)


def progress_line(scene: Scene) -> str:
    """Counts, rate and time left, and what the oldest item in flight is doing, as plain text."""
    words = list(count_words(scene, done=" done"))
    if scene.seconds_left is not None:
        words.append(left_words(scene.seconds_left))
    return ", ".join([*words, *cost_words(scene)]) + _doing_words(scene)


def _doing_words(scene: Scene) -> str:
    for one in scene.in_flight:
        if doing := clean(one.doing, limit=200).strip():
            return f"; {clean(one.key, limit=120)}: {doing}"
    return ""


def paused_words(event: Pausing) -> str:
    return pause_words(event.until, clean(event.reason, limit=300), time.time())


def beginning_words(event: Pausing) -> str:
    """That a pause begins; where a server is tried again and again, that is said once."""
    if event.probes:
        return f"{clean(event.reason, limit=300)}; it is tried again until it answers"
    return paused_words(event)


def _retry_words(event: Retrying) -> str:
    again = f"attempt {event.attempt + 1} in {format_duration(event.wait_seconds)}"
    return f"{clean(event.key, limit=120)}: {clean(event.cause, limit=300)}; {again}"
