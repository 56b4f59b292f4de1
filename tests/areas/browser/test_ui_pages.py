"""Every page of `agentrun ui` over hostile data: it runs nothing, asks nobody, fits, and everybody can use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import pytest

from areas.browser.conftest import Open
from areas.browser.places import EVIL, NAME, hostile_place
from cli.serving import Ui
from needs import give_up, require_module

if TYPE_CHECKING:
    from playwright.sync_api import Browser

require_module("starlette", "uvicorn", extra="ui")

Scheme = Literal["light", "dark"]
JOB = f"/jobs/{quote(NAME, safe='')}"
AXE = Path(__file__).parents[3] / ".venv/npm/node_modules/axe-core/axe.min.js"
KINDS = {"done": 0, "text": len(EVIL), "fail": 2 * len(EVIL), "ask": 3 * len(EVIL), "skip": 4 * len(EVIL)}
PAGES = {
    "jobs": "/",
    "job": JOB,
    "items": f"{JOB}/items",
    "search": f"{JOB}/items?state=failed&text={quote(EVIL[0])}",
    **{f"item-{kind}": f"{JOB}/items/{index}" for kind, index in KINDS.items()},
    "failures": f"{JOB}/failures",
    "review": f"{JOB}/review",
    "reviewed": f"{JOB}/review?said=yes&last=0&answered=1",
    "results": f"{JOB}/results",
    "report": f"{JOB}/report",
    "nothing": f"{JOB}/nothing",
    "seen": f"{JOB}/review?from=9999&later=4",
}
WIDER = """all => all.filter(one => {
    const box = one.getBoundingClientRect();
    return box.width && box.right > innerWidth + 1 && !one.closest('.scroll, .skip, svg');
}).map(one => one.outerHTML.slice(0, 200))"""

USABLE = """[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')]
    .filter(one => one.checkVisibility() && !one.disabled)"""


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    one = Ui(hostile_place(tmp_path_factory.mktemp("hostile")))
    yield one
    said = one.said
    one.close()
    assert said == "open it in a browser; end with Ctrl-C\n"


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_data_runs_nothing_and_every_page_fits(ui: Ui, open_tab: Open, width: int) -> None:
    tab = open_tab(ui, viewport={"width": width, "height": 900})
    more = {f"item-{n}": f"{JOB}/items/{n}" for n in range(KINDS["skip"])} if width == 1280 else {}
    reviews = {f"review-{n}": f"{JOB}/review?from={KINDS['ask'] + n}" for n in range(1, len(EVIL))}
    for name, path in {**PAGES, **more, **reviews}.items():
        page = tab.open(path)
        page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
        # The script of the page, and nothing of the data's.
        assert page.locator("script").count() == 1
        assert page.locator("iframe, object, embed, img, base, style").count() == 0
        assert page.locator("meta[http-equiv], link:not([href='/style.css']), svg[onload]").count() == 0
        assert page.eval_on_selector_all("a", "all => all.filter(one => !/^https?:/.test(one.protocol)).length") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.eval_on_selector_all("body *:not(svg *)", WIDER) == [], name
    assert tab.said == ["Failed to load resource: the server responded with a status of 404 (Not Found)"]
    tab.said.clear()


def test_hostile_data_is_shown_as_text(ui: Ui, open_tab: Open) -> None:
    tab = open_tab(ui)
    for n, text in enumerate(EVIL[:6]):
        page = tab.open(f"{JOB}/review?from={KINDS['ask'] + n}")
        assert page.inner_text("h1") == text
        assert page.input_value("textarea[name=d0]") == text
        assert text in page.inner_text(".given")
        page = tab.open(f"{JOB}/items/{KINDS['fail'] + n}")
        assert text in page.inner_text("h1") and f"ValueError: {text}" in page.inner_text(".blank.bad")
    assert NAME in tab.open(JOB).inner_text("h1") and NAME in tab.page.title()


def test_a_hostile_search_and_a_hostile_answer_run_nothing(ui: Ui, open_tab: Open) -> None:
    tab = open_tab(ui)
    for text in EVIL[:6]:
        page = tab.open(f"{JOB}/items")
        page.fill("input[name=text]", text)
        page.press("input[name=text]", "Enter")
        page.wait_for_url("**text=**")
        assert page.input_value("input[name=text]") == text and page.locator("tbody tr").count() >= 1
    page = tab.open(f"{JOB}/review?from={KINDS['ask'] + 1}")
    page.fill("#words", EVIL[2])
    page.fill("input[name=d2]", EVIL[1])
    page.click(".yes")
    page.wait_for_selector("[role=alert]")
    assert page.input_value("#words") == EVIL[2] and page.input_value("input[name=d2]") == EVIL[1]
    tab.said[:] = [one for one in tab.said if "422" not in one]


# ---- for everybody


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(ui: Ui, browser: Browser, width: int, scheme: Scheme) -> None:
    if not AXE.exists():
        give_up("axe-core is not there", remedy="run the tests with: make area-browser (it needs npm: make system)")
    # Our policy lets no script in, not even this one.
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page, found = context.new_page(), dict[str, Any]()
    page.goto(ui.address)
    for name, path in PAGES.items():
        page.goto(ui.origin + path)
        page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
        page.evaluate(AXE.read_text())
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert result["passes"], "it has looked"
        bad = [one for one in result["violations"] if one["impact"] in ("serious", "critical")]
        found |= {f"{name}: {one['id']}": [node["html"][:200] for node in one["nodes"]][:3] for one in bad}
    context.close()
    assert found == {}


def test_pages_have_landmarks_headings_and_labels(ui: Ui, open_tab: Open) -> None:
    tab = open_tab(ui)
    for name, path in PAGES.items():
        page = tab.open(path)
        assert page.locator("html[lang=en]").count() == 1 and page.locator("main").count() == 1, name
        assert page.locator("h1").count() == 1 and page.title(), name
        assert page.get_by_role("banner").count() == 1 and page.get_by_role("navigation").count() >= 1, name
        unnamed = page.locator(":is(input:not([type=hidden]), textarea, select):visible").evaluate_all(
            "all => all.filter(one => !one.labels?.length && !one.getAttribute('aria-label')).map(one => one.outerHTML)"
        )
        assert unnamed == [], name
    tab.said.clear()


def test_the_keyboard_reaches_everything_and_shows_where_it_is(ui: Ui, open_tab: Open) -> None:
    tab = open_tab(ui)
    for name in ("jobs", "job", "item-fail", "failures", "review", "results"):
        page = tab.open(PAGES[name])
        wanted = page.evaluate(f"{USABLE}.length")
        assert wanted >= 2
        reached, hidden = set[int](), list[str]()
        for n in range(wanted + 60):
            page.keyboard.press("Tab")
            at = page.evaluate(
                f"""() => {{ const one = document.activeElement, style = getComputedStyle(one);
                     const isSeen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
                     return [{USABLE}.indexOf(one), isSeen, one.outerHTML.slice(0, 120), one === document.body] }}"""
            )
            if at[3]:
                break
            reached.add(at[0])
            hidden += [at[2]] if not at[1] else []
            if n == 0:
                assert "Skip to the content" in at[2]
                assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        assert reached - {-1} == {*range(wanted)}, name
        assert hidden == [], name


def test_the_skip_link_leads_past_the_navigation(ui: Ui, open_tab: Open) -> None:
    page = open_tab(ui).open(f"{JOB}/items")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
