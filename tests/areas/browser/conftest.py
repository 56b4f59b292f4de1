"""Pages in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from cli.serving import Ui
from needs import find_program, require_module, require_program
from waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

require_module("playwright", extra="dev")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    require_program("chromium")
    with sync_playwright() as playwright:
        # Root, as in a container, has no sandbox.
        chromium = playwright.chromium.launch(executable_path=find_program("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Watched:
    """A tab, and everything that it should not have done."""

    def __init__(self, browser: Browser, ui: Ui, **options: Any) -> None:
        self.ui = ui
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_SECONDS * 1000)
        self.said: list[str] = []
        """On the console and in dialogs."""
        self.asked: list[str] = []
        """Of whom something was asked that is not our page."""
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda one: self.asked.append(one.url) if not one.url.startswith(ui.origin) else None)
        self.page.goto(ui.address)

    def _dialog(self, dialog: Dialog) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()

    def open(self, path: str) -> Page:
        self.page.goto(self.ui.origin + path)
        return self.page


Open = Callable[..., Watched]


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Open]:
    """Open `agentrun ui` in a tab of its own; at the end, nothing was said and nobody else asked."""
    opened: list[Watched] = []

    def open_one(ui: Ui, **options: Any) -> Watched:
        opened.append(Watched(browser, ui, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.context.close()
        assert one.said == [] and one.asked == []
