"""Pages in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from needs import find_program, require_module, require_program

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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
