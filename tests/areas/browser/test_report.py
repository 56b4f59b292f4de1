"""The report in Chromium, on a desk and on a phone, light and dark, with hostile keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from agentrun.report.page import html_page
from agentrun.report.reading import read_report
from unit.report.night import HOSTILE, Invoices

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Scheme = Literal["light", "dark"]
SECTIONS = ["next", "failures", "questions", "night", "outliers", "record"]
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("hostile")
    made = Invoices(base, HOSTILE)
    made.failing = [*range(8), *made.failing[8:]]
    path = base / "report.html"
    path.write_text(html_page(read_report(made.play().known)))
    return path


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_report_is_whole_silent_and_alone(browser: Browser, page_file: Path, width: int, scheme: Scheme) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    # Also what is folded.
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    page.wait_for_load_state("networkidle")
    assert said == []
    assert [one for one in asked if one != page_file.as_uri() and not one.startswith("data:")] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wider = "all => all.filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML)"
    assert page.eval_on_selector_all("main *:not(svg *)", wider) == []
    for name in SECTIONS:
        assert page.locator(f"section#{name}").is_visible(), name
    assert page.locator("figure svg").count() == 4 and page.locator("#tiles div").count() >= 5
    assert page.locator("script, img, iframe, object, embed, form").count() == 0
    shown = page.inner_text("#failures")
    assert all(key in shown for key in HOSTILE[:3])
    context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_words_can_be_read_on_their_background(browser: Browser, page_file: Path, scheme: Scheme) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(page_file.as_uri())
    for front, back in (("--ink", "--bg"), ("--dim", "--card"), ("--bad", "--badbg"), ("--warn", "--warnbg")):
        assert contrast(colour(page, front), colour(page, back)) >= 4.5, (front, back)
    sizes = page.eval_on_selector_all("svg text", "all => all.map(one => one.getBoundingClientRect().height)")
    assert min(sizes) >= 12, "too small on a phone"
    context.close()


def colour(page: Any, name: str) -> list[float]:
    text = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('{name}')").strip().lstrip("#")
    digits = "".join(2 * digit for digit in text) if len(text) == 3 else text
    return [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]


def contrast(front: list[float], back: list[float]) -> float:
    """As the WCAG defines it."""

    def light(colour: list[float]) -> float:
        parts = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((light(front), light(back)))
    return (high + 0.05) / (low + 0.05)
