"""The view of a launch at work: what it draws on a terminal, and what it prints elsewhere."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentrun.events import Began, Failed, Pausing, Progress, Retrying, Stopping, Waiting, Warned
from agentrun.item import Item
from agentrun.runs.units import Work
from agentrun_cli.drawing.live import BarView, NotebookView, PlainView, changing, open_view, progress_line
from agentrun_cli.drawing.screen import ERASE_REST, Screen
from waiting import eventually

from .conftest import COMMAND
from .test_output import on_terminal
from .tmux import Tmux

Run = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]
HOSTILE = "a\x1b[31m[/x][link=evil]\x1b]0;title\x07\x9b2J\u202etxt.exe\x00\r\nnext"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def launched(stream: io.StringIO, view: type[PlainView] = PlainView, **values: Any) -> tuple[PlainView, Progress]:
    """A view of a launch that has begun, and the counters of that."""
    progress = Progress({"done": 3, "failed": 1}, total=10, cost=0.5)
    progress.in_flight = {0: Work(4, Item(4, "b"), began=2.0), 1: Work(5, Item(5, HOSTILE), began=1.0, doing=HOSTILE)}
    opened = view("job", "job", stream, **values)
    opened.watch(Began(progress))
    return opened, progress


def says(stream: io.StringIO, words: str) -> bool:
    return words in stream.getvalue()


# ---- plain lines


def test_a_line_of_progress_has_counts_cost_and_what_the_oldest_item_is_doing() -> None:
    view, progress = launched(io.StringIO(), every_seconds=0.0)
    with view:
        line = progress_line(view.scene())
    assert line == "3 of 10 done, 1 failed, $0.50; a[/x][link=evil]2Jtxt.exe next: a[/x][link=evil]2Jtxt.exe next"
    before = changing(view.scene())
    assert changing(view.scene()) == before
    progress.in_flight = {}
    assert changing(view.scene()) != before


def test_in_a_pause_there_is_no_rate_and_no_time_left() -> None:
    view, progress = launched(io.StringIO(), every_seconds=0.0)
    with view:
        progress.began -= 60.0
        progress.settled_here = 4
        assert (scene := view.scene()).per_second and scene.seconds_left
        view.watch(Pausing("openai's quota", "2026-11-17T02:00:00.000Z"))
        assert (scene := view.scene()).paused and scene.per_second is None and scene.seconds_left is None
        view.watch(Pausing("openai's quota", ""))
        assert view.scene().seconds_left


def test_elsewhere_a_line_is_printed_when_something_has_changed() -> None:
    stream = io.StringIO()
    view, progress = launched(stream, every_seconds=0.01)
    with view:
        for done in (4, 5):
            progress.counts = {"done": done, "failed": 1}
            eventually(partial(says, stream, f"{done} of 10 done"), "a line about it")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2, "nothing is printed twice"
    assert re.fullmatch(r"\d\d:\d\d:\d\d job: 4 of 10 done, 1 failed(, [\d.]+/\w+, [^,]+ left)?, \$0.50; a.*", lines[0])


def test_a_redirected_launch_prints_lines_of_progress(job: Path, begin: Begin) -> None:
    source = "import time, pathlib\ndef upper(item):\n    while item.index and not pathlib.Path('go').exists():\n"
    (job / "agent.py").write_text(source + "        time.sleep(0.01)\n")
    runner = begin("start", "job.toml", "--progress-every", "0.05s", cwd=job)
    assert runner.stderr is not None
    lines = [runner.stderr.readline(), runner.stderr.readline()]
    assert lines[0].startswith("work: 3 items")
    assert re.fullmatch(r"\d\d:\d\d:\d\d work: 1 of 3 done(, [\d.]+/\w+, .+ left)?\n", lines[1]), lines
    (job / "go").touch()
    _, rest = runner.communicate()
    assert runner.returncode == 0 and "\x1b" not in rest and "\r" not in rest


def test_how_often_is_a_duration(job: Path, agentrun: Run) -> None:
    ended = agentrun("start", "job.toml", "--progress-every", "soon", cwd=job)
    assert ended.returncode == 2 and not (job / ".agentrun").exists()
    assert ended.stderr == '--progress-every is "soon"; write a duration such as "90s", "2m" or "1h30m"\n'


# ---- other lines


def test_failures_retries_and_warnings_are_lines_without_control_codes() -> None:
    stream = io.StringIO()
    view, _ = launched(stream, every_seconds=0.0)
    with view:
        view.watch(Failed(HOSTILE, "no\x1b[2J good"))
        view.watch(Retrying("k", "slow", 1, 4.9))
        view.watch(Retrying("k", "slow", 1, 5.0))
        view.watch(Warned("mind\nthis"))
        view.watch(Waiting("pid 4312 on larch, since 22:03", 5.0))
        view.watch(Stopping("stopped by Ctrl-C", 3, 30.0))
        view.watch(Stopping("the budget is reached", 1))
        view.watch(Stopping("nobody is in flight", 0))
    assert stream.getvalue().splitlines() == [
        "failed  a[/x][link=evil]2Jtxt.exe next: no good",
        "again   k: slow; attempt 2 in 5s",
        "job: mind this",
        "job: waiting for another runner (pid 4312 on larch, since 22:03), up to 5s",
        "job: stopped by Ctrl-C; 3 in flight have 30s to finish; stop once more to end them now",
        "job: the budget is reached; 1 in flight is finished first, and no new items are started",
    ]


def test_only_the_first_failures_are_shown() -> None:
    stream = io.StringIO()
    view, _ = launched(stream, every_seconds=0.0)
    with view:
        for number in range(30):
            view.watch(Failed(f"{number}", "bad"))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 21
    assert lines[-1] == "further items that are failed are not shown here; see them with: agentrun failures job"


def test_a_wait_for_another_runner_is_said_while_it_waits(job: Path, begin: Begin) -> None:
    first = begin("start", "job.toml", cwd=job, UNTIL="go")
    eventually((job / "ran.log").exists, "an item is in flight", alive=first)
    second = begin("start", "job.toml", cwd=job)
    assert second.stderr is not None
    line = second.stderr.readline()
    assert second.poll() is None, "it is said at once, not when it gives up"
    assert re.fullmatch(rf"work: waiting for another runner \(pid {first.pid} on .+, since .+\), up to 5s\n", line)
    (job / "go").touch()
    assert first.wait() == 0


# ---- on a terminal


@pytest.fixture
def colourful(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "CLICOLOR_FORCE", "ACCESSIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "15")


@pytest.mark.usefixtures("colourful")
def test_lines_above_the_frame_are_wrapped_at_words_and_the_frame_is_gone_at_the_end() -> None:
    stream = Terminal()
    view, _ = launched(stream, BarView)
    with view:
        view.watch(Failed("docs/0004.txt", "this document is poison, as the model says"))
    shown = stream.getvalue()
    assert "3 of 10 · 1 failed · $0.50" in shown and "\x1b[32m━" in shown
    end = shown[shown.rindex(ERASE_REST) :].removeprefix(ERASE_REST)
    assert end.split("\r\n") == [
        "\x1b[31mfailed\x1b[0m  docs/0004.txt: this document is",
        "        poison, as the model says",
        "",
    ]


@pytest.mark.usefixtures("colourful")
def test_a_frame_that_did_not_change_is_not_drawn_again() -> None:
    stream = Terminal()
    screen = Screen(stream)
    screen.draw(["one", "two"], size=(40, 15))
    drawn = stream.getvalue()
    screen.draw(["one", "two"], size=(40, 15))
    assert stream.getvalue() == drawn
    screen.draw(["one", "2"], size=(40, 15))
    assert ERASE_REST not in stream.getvalue()[len(drawn) :], "in the same place nothing flickers"
    screen.draw(["one", "2"], size=(30, 15))
    assert stream.getvalue().count(ERASE_REST) == 2


@pytest.mark.usefixtures("colourful")
def test_which_view_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [type(open_view("job", "job", stream=stream)) for stream in (Terminal(), io.StringIO())]
    assert kinds == [BarView, PlainView]
    assert type(open_view("job", "job", stream=io.StringIO(), is_notebook=True)) is NotebookView
    for name, value in (("ACCESSIBLE", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            assert type(open_view("job", "job", stream=Terminal())) is PlainView


def test_a_notebook_has_one_line_that_is_written_over() -> None:
    stream = io.StringIO()
    view, progress = launched(stream, NotebookView, says_end=True)
    progress.in_flight = {}
    with view:
        eventually(lambda: "3 of 10 done" in stream.getvalue(), "the line")
        progress.counts = {"done": 9, "failed": 1}
    assert "\x1b" not in stream.getvalue()
    last = stream.getvalue().rstrip("\n").split("\r")[-1]
    assert re.fullmatch(r"job: 9 of 10 done, 1 failed in .*s *", last) and stream.getvalue().endswith("\n")


PLAIN = [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}, {"flag": "--plain"}]


@pytest.mark.parametrize("how", PLAIN, ids=str)
def test_a_terminal_gets_plain_lines_if_its_user_wants_them(job: Path, how: dict[str, str]) -> None:
    (job / "items" / "b.txt").write_text("bad")
    environ = {name: value for name, value in how.items() if name != "flag"}
    flags = [how["flag"]] if "flag" in how else []
    code, seen = on_terminal(COMMAND, "start", "job.toml", *flags, cwd=job, **environ)
    assert code == 1 and "\x1b" not in seen and "━" not in seen
    assert "failed  items/b.txt: Fail: it is bad: bad" in seen


def test_colours_can_be_forced_and_refused(job: Path, agentrun: Run) -> None:
    (job / "items" / "b.txt").write_text("bad")
    assert "\x1b[31mfailed\x1b[0m" in agentrun("start", "job.toml", cwd=job, CLICOLOR_FORCE="1").stderr
    refused = agentrun("resume", "job.toml", cwd=job, CLICOLOR_FORCE="1", NO_COLOR="1").stderr
    assert "failed  items/b.txt" in refused and "\x1b" not in refused
    assert "\x1b" not in agentrun("resume", "job.toml", "--plain", cwd=job, CLICOLOR_FORCE="1").stderr


# ---- on a real terminal, resized


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    with Tmux(tmp_path, "sh") as opened:
        yield opened


def has_bar(tmux: Tmux, columns: int) -> bool:
    return any(len(line) == columns and line.endswith(" %") for line in tmux.shown())


def has_age(tmux: Tmux, least: int) -> bool:
    return max(ages(tmux.shown()), default=0) >= least


def ages(lines: list[str]) -> list[int]:
    return [int(match[1]) for line in lines if (match := re.match(r" *(\d+)s  key-", line))]


def of_frame(lines: list[str]) -> list[str]:
    return [line for line in lines if "─" in line or " · " in line or "s  key-" in line]


def start_long_items(tmux: Tmux, folder: Path) -> None:
    (folder / "agent.py").write_text("import asyncio\nasync def wait(item):\n    await asyncio.sleep(90)\n")
    (folder / "keys.txt").write_text("".join(f"key-{number}\n" for number in range(40)))
    words = [COMMAND, "start", "agent.py:wait", "--items", "keys.txt", "--as", "lines", "-j", "5", "--grace", "0s"]
    tmux.enter(f"cd {shlex.quote(str(folder))}; PS1='$ '; clear; {shlex.join(words)}")


def test_resized_20_times_it_moves_every_second_and_nothing_is_left_over(tmux: Tmux, tmp_path: Path) -> None:
    start_long_items(tmux, tmp_path)
    sizes = [(120, 40), (40, 15), (20, 5), (80, 24), (33, 9), (60, 30)]
    for number in range(20):
        columns, lines = sizes[number % len(sizes)]
        tmux.resize(columns, lines)
        eventually(partial(has_bar, tmux, columns), f"a bar over {columns} columns")
    tmux.resize(80, 24)
    for _ in range(3):
        eventually(lambda: len(ages(tmux.shown())) == 5, "the items in flight")
        before = ages(tmux.shown())
        eventually(partial(has_age, tmux, max(before) + 1), "the ages move")
    everything = [line for line in tmux.everything() if line.strip()]
    assert sum("─" in line for line in everything) == 1 and sum(" of 40 · " in line for line in everything) == 1
    assert len(ages(everything)) == 5
    tmux.press("C-c")
    eventually(lambda: any("to resume:" in line for line in tmux.shown()), "the end")
    assert not of_frame(tmux.everything())


def test_of_a_runner_that_is_killed_the_terminal_keeps_no_frame(tmux: Tmux, tmp_path: Path) -> None:
    start_long_items(tmux, tmp_path)
    eventually(lambda: len(ages(tmux.shown())) == 5, "the items in flight")
    (lock,) = tmp_path.glob(".agentrun/*/lock")
    os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
    eventually(lambda: any("Killed" in line for line in tmux.shown()), "the shell says so")
    eventually(lambda: not of_frame(tmux.shown()), "the frame is gone")
    tmux.enter("echo one; echo two")
    eventually(lambda: "two" in [line.rstrip() for line in tmux.shown()], "the next command")
    assert "one" in [line.rstrip() for line in tmux.shown()]
