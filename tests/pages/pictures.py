"""The pictures of README and docs: what the real command shows, in a real terminal and browser. Run by `make pictures`.

A picture of a terminal (SVG) is a session in tmux, which keeps the screen as a terminal would, colours and all. What
differs each time and means nothing, such as the time of day, is replaced. Nothing of the machine is in them: the
commands run in a copy of a sample, in a bash without settings. The report and `agentrun ui` (`ui.py`) are PNGs.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from needs import find_program
from pages import ui
from pages.page import REPOSITORY
from pages.shell import reader_environment
from waiting import eventually

PICTURES = REPOSITORY / "docs/pictures"
AGENTRUN = str(Path(sys.executable).parent / "agentrun")
WIDTH, HEIGHT = 92, 40
PROMPT = "$ "
# Fonts that readers have: rich's own picture fetches one from the net, which pages that embed it do not allow.
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} @{height}@" role="img">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect fill="#1d2021" width="{width}" height="@{height}@" rx="8"/>
<g transform="translate({terminal_x}, 10)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
TITLE_HEIGHT = 28
"""What rich leaves for a title bar, which we do not have."""
_DARK = [(60, 56, 54), (251, 73, 52), (184, 187, 38), (250, 189, 47), (131, 165, 152), (211, 134, 155), (142, 192, 124)]
THEME = TerminalTheme((29, 32, 33), (235, 219, 178), [*_DARK, (213, 196, 161)], [*_DARK, (251, 241, 199)])


class Screen:
    """A bash in tmux. `type` gives it a command, `wait` waits until the screen is so."""

    def __init__(self, folder: Path, work: Path) -> None:
        self._socket = folder / "tmux"
        home = folder / "home"
        home.mkdir()
        variables = {"TERM": "xterm-256color", "PS1": PROMPT, "LANG": "C.UTF-8", "COLORTERM": "", "HISTFILE": ""}
        environ = reader_environment(home, **variables)
        for name in ("NO_COLOR", "CLICOLOR_FORCE", "TMUX"):
            environ.pop(name, None)
        set_up = [f"{name}={value}" for name, value in environ.items()]
        shell = shlex.join(["env", "-i", *set_up, "bash", "--noprofile", "--norc"])
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), "-c", str(work), shell)
        self.wait(lambda text: text.strip() == PROMPT.strip(), "the first prompt")

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def type(self, command: str) -> None:
        self._tmux("send-keys", "-l", command)
        self._tmux("send-keys", "Enter")

    def run(self, command: str) -> None:
        """Type a command, and wait for the prompt after it."""
        before = self.text().count(f"\n{PROMPT.strip()}")
        self.type(command)
        self.wait(
            lambda text: text.count(f"\n{PROMPT.strip()}") > before and text.rstrip().endswith(f"\n{PROMPT.strip()}"),
            f"the end of {command}",
        )

    def interrupt(self) -> None:
        self._tmux("send-keys", "C-c")

    def wait(self, condition: Callable[[str], bool], what: str) -> None:
        eventually(lambda: condition(self.text()), what)

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def lines(self) -> list[str]:
        """What is on the screen, with its colours; without prompts at which nothing was typed."""
        lines = self._tmux("capture-pane", "-p", "-e").rstrip("\n").split("\n")
        bare = [re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in lines]
        shown = [line for line, words in zip(lines, bare, strict=True) if words != PROMPT.strip()]
        while shown and not re.sub(r"\x1b\[[\d;]*m", "", shown[-1]).strip():
            shown.pop()
        return shown

    def _tmux(self, *words: str) -> str:
        called = subprocess.run(["tmux", "-S", str(self._socket), *words], capture_output=True, text=True, check=True)
        return called.stdout


def still(line: str) -> str:
    """A line without what differs each time and means nothing. Widths stay: columns are not moved."""
    line = re.sub(r"\b\d\d:\d\d(:\d\d)?\b", lambda found: "18:02:11"[: len(found[0])], line)
    line = re.sub(
        r"\b\d{8}T\d{6}-([0-9a-f]+)", lambda found: f"20260105T180211-{'3f2a9c1b7d6e5a4f'[: len(found[1])]}", line
    )
    line = re.sub(r"\bpid \d+ on \S+(?=,| )", "pid 4312 on larch", line)
    return re.sub(r"\b(version )?[0-9a-f]{12}\b", lambda found: f"{found[1] or ''}65a01518e864", line)


def draw(lines: list[str], name: str) -> str:
    """Lines with ANSI colours as an SVG; the same lines give the same bytes."""
    console = Console(
        width=WIDTH,
        record=True,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    for line in lines:
        console.print(Text.from_ansi(still(line)), soft_wrap=True, highlight=False)
    svg = console.export_svg(title="", theme=THEME, code_format=SVG, unique_id=f"picture-{name}")
    return re.sub(r"@([\d.]+)@", lambda found: f"{float(found[1]) - TITLE_HEIGHT:g}", svg)


def copy_triage(folder: Path) -> Path:
    ignored = shutil.ignore_patterns(".agentrun", "*.results.*", "__pycache__")
    return shutil.copytree(REPOSITORY / "samples/triage", folder / "triage", ignore=ignored)


def state_of(work: Path) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads((work / ".agentrun/triage/state.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def kill_at(work: Path, settled: int) -> None:
    """Kill the runner that the lock names, once so many items are settled."""

    def is_time() -> bool:
        last = state_of(work).get("last_completed", -1)
        return isinstance(last, int) and last >= settled

    # Asked for before: the command takes a moment, in which many items are settled.
    eventually(lambda: "running" in state_of(work), "the first checkpoint")
    command = [AGENTRUN, "status", "triage", "--json"]
    listed = subprocess.run(command, cwd=work, capture_output=True, text=True, check=True)
    eventually(is_time, f"{settled} items settled")
    os.kill(json.loads(listed.stdout)["holder"]["pid"], signal.SIGKILL)


def kill_and_resume(screen: Screen, work: Path) -> list[str]:
    screen.type("agentrun start job.toml")
    kill_at(work, 110)
    screen.wait(lambda text: text.rstrip().endswith(f"Killed\n{PROMPT.strip()}"), "the death of the runner")
    screen.run("agentrun status")
    screen.run("agentrun resume triage")
    screen.run("wc -l triage.results.jsonl")
    return screen.lines()


def status(screen: Screen, work: Path) -> list[str]:
    started = subprocess.Popen([AGENTRUN, "start", "job.toml", "-q"], cwd=work)
    kill_at(work, 60)
    started.wait()
    screen.run("agentrun status triage")
    return screen.lines()


def plan(screen: Screen, work: Path) -> list[str]:
    subprocess.run(
        [AGENTRUN, "start", "job.toml", "-q"], cwd=work, env={**os.environ, "TRIAGE_SECONDS": "0"}, check=True
    )
    for name in ("0007", "0042"):
        with (work / f"documents/{name}.txt").open("a") as file:
            file.write("P.S. It is urgent.\n")
    shutil.copy(work / "documents/0001.txt", work / "documents/0201.txt")
    (work / "documents/0200.txt").unlink()
    screen.run("agentrun start job.toml --plan")
    return screen.lines()


def live(screen: Screen, work: Path) -> list[str]:
    """The live view in the middle of a run; one document fails, so that there is a line above the bar."""
    (work / "documents/0005.txt").write_text("")
    screen.type("TRIAGE_SECONDS=2 agentrun start job.toml -j 8")
    screen.wait(lambda text: re.search(r"\b[23]\d of 200", text) is not None, "some of the documents")
    lines = screen.lines()
    screen.interrupt()
    screen.wait(lambda text: "to resume:" in text, "the end of the runner")
    return lines


SESSIONS = {"kill-and-resume": kill_and_resume, "live": live, "status": status, "plan": plan}


def report() -> None:
    """The report of a night, as a browser shows it. Its times are fixed, so that it is the same every time."""
    from playwright.sync_api import sync_playwright

    from agentrun.report.page import html_page
    from agentrun.report.reading import read_report
    from unit.report.night import BEGAN, Invoices

    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory(prefix="agentrun-pictures-") as folder, sync_playwright() as playwright:
        made = read_report(Invoices(Path(folder)).play().known, here=Path("/home/you/invoices"))
        page = Path(folder) / "report.html"
        page.write_text(html_page(replace(made, made_at=BEGAN + 36_000)))
        browser = playwright.chromium.launch(executable_path=find_program("chromium"), args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 900, "height": 600}, color_scheme="light")
        shown.goto(page.as_uri())
        # Two parts of the page: its beginning, and the plots.
        for name, selector in (("report", "header, #next"), ("report-night", "#night")):
            boxes = [one.bounding_box() for one in shown.query_selector_all(selector)]
            top = min(box["y"] for box in boxes if box)
            bottom = max(box["y"] + box["height"] for box in boxes if box)
            clip = {"x": 0, "y": max(top - 16, 0), "width": 900, "height": bottom - max(top - 16, 0) + 20}
            shown.screenshot(path=PICTURES / f"{name}.png", clip=clip, full_page=True)  # type: ignore[arg-type]
            print(f"{name}.png")
        browser.close()


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    report()
    ui.take_all(PICTURES)
    for name, play in SESSIONS.items():
        with tempfile.TemporaryDirectory(prefix="agentrun-pictures-") as folder:
            work = copy_triage(Path(folder))
            with Screen(Path(folder), work) as screen:
                lines = play(screen, work)
        (PICTURES / f"{name}.svg").write_text(draw(lines, name))
        print(f"{name}.svg: {len(lines)} lines")


if __name__ == "__main__":
    main()
