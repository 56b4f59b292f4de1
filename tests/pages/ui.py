"""The pictures of `agentrun ui`: a morning with real jobs, served by the real command, in a real browser.

Three samples are run in one folder: triage has failed documents and is at work, review waits for people, steps has
finished. What differs each time and means nothing is fixed: the clock of the commands begins at the same time of day,
and in the page the folder and the date are replaced before a picture is taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from needs import find_program
from pages.page import REPOSITORY
from pages.shell import reader_environment
from waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright, ViewportSize

AGENTRUN = str(Path(sys.executable).parent / "agentrun")
MORNING = "07:52:00"
SHOWN_FOLDER = "/home/you/desk"
STEADY = """([folder, shown]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let one; (one = texts.nextNode());)
    one.data = one.data.replaceAll(folder, shown).replace(/\\w+day, \\d+ \\w+ \\d{4}/g, "Monday, 5 January 2026");
}"""
"""Script that replaces what is of this machine and of this day."""


class Desk:
    """A folder with three jobs, as somebody finds them in the morning."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "desk"
        self.folder.mkdir()
        home = folder / "home"
        home.mkdir()
        state, clock = str(self.folder / ".agentrun"), zone_at(MORNING, time.time())
        self._environ = reader_environment(home, AGENTRUN_STATE_DIR=state, TZ=clock)
        ignored = shutil.ignore_patterns(".agentrun", "*.results.*", "__pycache__", "sent")
        for name in ("triage", "review", "steps"):
            shutil.copytree(REPOSITORY / "samples" / name, self.folder / name, ignore=ignored)

    def play(self) -> None:
        """Run the jobs up to this morning."""
        documents = self.folder / "triage/documents"
        for name in ("0019", "0067", "0104"):
            (documents / f"{name}.txt").write_text("Out of office until Monday.\n")
        for name in ("0031", "0088"):
            text = (documents / f"{name}.txt").read_text()
            (documents / f"{name}.txt").write_text(re.sub(r"(?<=^Received: )\S+", "07/03/25", text))
        self.run("start", "steps/job.toml", "-q", STEPS_SECONDS="0")
        self.run("start", "review/job.toml", "-q", exits=3)
        self.run("start", "triage/job.toml", "-q", "--limit", "110", "--retries", "0", exits=4, TRIAGE_SECONDS="0.2")
        self.run("resume", "triage", "-q", "--detach", TRIAGE_SECONDS="6")
        eventually(self._is_at_work, "a runner at work, with a pace")

    def run(self, *words: str, exits: int = 0, **environ: str) -> str:
        command, variables = [AGENTRUN, *words], {**self._environ, **environ}
        done = subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == exits, f"{words} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    def _is_at_work(self) -> bool:
        found = json.loads(self.run("status", "triage", "--json"))
        return found["pace"] is not None and len(found["running"]) > 1

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """The address of the page, while it is served."""
        serving = subprocess.Popen(
            [AGENTRUN, "ui", "--no-open"],
            cwd=self.folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert serving.stdout is not None
            yield serving.stdout.readline().strip()
        finally:
            serving.send_signal(signal.SIGINT)
            serving.communicate()

    def close(self) -> None:
        self.run("stop", "triage", "--now")


def zone_at(clock: str, now: float) -> str:
    """A time zone, as TZ has it, in which it is that time of day now."""
    hours, minutes, seconds = map(int, clock.split(":"))
    west = round(now) % 86_400 - (hours * 3600 + minutes * 60 + seconds)
    sign, size = ("-", -west) if west < 0 else ("", west)
    return f"DESK{sign}{size // 3600:02}:{size // 60 % 60:02}:{size % 60:02}"


def stay(page: Page) -> None:
    """The page as it is."""


def answer_one(page: Page) -> None:
    """Approve the first draft with its key; the page goes on to the next."""
    page.keyboard.press("y")
    page.wait_for_selector("#undo")


@dataclass(frozen=True)
class Picture:
    """One page in one window. `last` is the element that the picture ends with."""

    name: str
    path: str
    last: str
    width: int = 1280
    scheme: Literal["light", "dark"] = "light"
    act: Callable[[Page], None] = stay

    @property
    def is_phone(self) -> bool:
        return self.width < 600


PICTURES = (
    Picture("ui-jobs", "/", ".jobs"),
    Picture("ui-job", "/jobs/triage", "#live"),
    Picture("ui-items", "/jobs/triage/items?text=documents/01", "tbody tr:nth-child(6)"),
    Picture("ui-failures", "/jobs/triage/failures", "article:last-of-type"),
    Picture("ui-results", "/jobs/triage/results", "tbody tr:nth-child(8)"),
    Picture("ui-review", "/jobs/review/review", ".foot", act=answer_one),
    Picture("ui-review-phone", "/jobs/review/review", ".given pre", width=390, scheme="dark"),
)


def launch(playwright: Playwright, *, is_phone: bool) -> Browser:
    # Without a mouse, as on a phone: no hovering, and a coarse pointer.
    touch = "--blink-settings=primaryHoverType=1,availableHoverTypes=1,primaryPointerType=2,availablePointerTypes=2"
    words = ["--no-sandbox", *([touch] if is_phone else [])]
    return playwright.chromium.launch(executable_path=find_program("chromium"), args=words)


def take(browser: Browser, desk: Desk, address: str, picture: Picture, folder: Path) -> Path:
    origin, _, _ = address.partition("/?")
    viewport: ViewportSize = {"width": picture.width, "height": 800}
    scale = 2 if picture.is_phone else 1
    with browser.new_page(viewport=viewport, color_scheme=picture.scheme, device_scale_factor=scale) as page:
        page.goto(address)
        page.goto(origin + picture.path)
        picture.act(page)
        page.evaluate(STEADY, [str(desk.folder), SHOWN_FOLDER])
        found = re.search(r"/(tmp|home(?!/you/)|root|work|Users|var)/.*", page.inner_text("body"))
        assert found is None, f"{picture.name} shows a path of this machine: {found}"
        box = page.locator(picture.last).first.bounding_box()
        assert box is not None, f"{picture.name}: {picture.last} is not shown"
        path = folder / f"{picture.name}.png"
        height = box["y"] + box["height"] + (9 if picture.is_phone else 24)
        page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": picture.width, "height": height})
    return path


def take_all(folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="agentrun-pictures-") as made, sync_playwright() as playwright:
        desk = Desk(Path(made))
        browsers = {is_phone: launch(playwright, is_phone=is_phone) for is_phone in (False, True)}
        desk.play()
        try:
            with desk.served() as address:
                for picture in PICTURES:
                    path = take(browsers[picture.is_phone], desk, address, picture, folder)
                    print(f"{path.name}: {os.path.getsize(path) // 1024} KiB")
        finally:
            desk.close()
            for browser in browsers.values():
                browser.close()
