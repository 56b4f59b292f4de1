"""Review in a browser: by keyboard alone while a runner works, by buttons without script, and the live page."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from areas.browser.conftest import Open
from areas.browser.places import agentrun, asking_place
from cli.conftest import COMMAND, environment
from cli.serving import Ui
from needs import require_module
from waiting import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

require_module("starlette", "uvicorn", extra="ui")

Begin = Callable[[Path], subprocess.Popen[bytes]]
REVIEW = "/jobs/letters/review"
AT_ONCE = """keys => {
    for (const key of keys) document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
}"""
# When the page was first painted, and when its script had come.
PAINTED = """() => new Promise(done => new PerformanceObserver(() => done([
    performance.getEntriesByName('first-paint')[0].startTime,
    performance.getEntriesByType('resource').find(one => one.name.endsWith('/page.js')).responseEnd,
])).observe({type: 'paint', buffered: true}))"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("letters")


@pytest.fixture(scope="module")
def ui(base: Path) -> Iterator[Ui]:
    """One for all; each test starts the job over."""
    one = Ui(base)
    yield one
    said = one.said
    one.close()
    assert said == "open it in a browser; end with Ctrl-C\n"


@pytest.fixture
def begin() -> Iterator[Begin]:
    """A runner at work on the job, until there is a file `enough`."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> subprocess.Popen[bytes]:
        (folder / "enough").unlink(missing_ok=True)
        words = [COMMAND, "start", "letters.toml", "--fresh", "--yes", "-q"]
        begun.append(subprocess.Popen(words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()


def wait_for(base: Path, count: int, *, alive: subprocess.Popen[bytes] | None = None) -> None:
    """Until so many items wait for an answer."""
    state = base / ".agentrun/letters/state.json"

    def waiting() -> int:
        try:
            return int(json.loads(state.read_bytes())["counts"].get("waiting", 0))
        except OSError:
            return 0

    eventually(lambda: waiting() == count, f"{count} wait", alive=alive)


def asked(base: Path, *words: str) -> None:
    """The job with these items, after a launch that ran out of work."""
    asking_place(base, [*words])
    (base / "mended").unlink(missing_ok=True)
    (base / "letters.jsonl").unlink(missing_ok=True)
    (base / "enough").touch()
    agentrun("start", "letters.toml", "--fresh", "--yes", cwd=base, expected=(1, 3))


def posted(base: Path) -> list[dict[str, Any]]:
    """The messages in the inbox, oldest first. A runner at work takes them away meanwhile."""
    found = []
    for path in sorted((base / ".agentrun/letters/inbox").glob("*.json")):
        with suppress(FileNotFoundError):
            found.append(json.loads(path.read_bytes()))
    return found


def given(base: Path) -> list[tuple[str, bool]]:
    return [(one["key"], one["answer"]["yes"]) for one in posted(base)]


def at_question(page: Page, word: str) -> None:
    """Until the question is shown and the page's script has run: a key that is pressed before that does nothing."""
    shown = "text => document.readyState === 'complete' && document.querySelector('h1')?.innerText === text"
    page.wait_for_function(shown, arg=f"Send {word}?")


# ---- by keyboard


def test_forty_answers_by_keyboard_arrive_once_each_while_a_runner_works(
    base: Path, ui: Ui, begin: Begin, open_tab: Open
) -> None:
    words = [f"w{n:02}" for n in range(40)]
    asking_place(base, ["slow", *words])
    runner = begin(base)
    wait_for(base, 40, alive=runner)
    page = open_tab(ui).open(REVIEW)
    expected: dict[str, list[Any]] = {}
    for n, word in enumerate(words):
        at_question(page, word)
        assert f"{n + 1} of" in page.inner_text(".when")
        press = page.keyboard.press
        if n % 5 == 3:
            press("w")
            page.keyboard.type(f"yes, no, n {n}")
            press("Escape")
        if n % 5 == 4:
            press("e")
            press("Control+End")
            page.keyboard.type(" and y and n")
            press("Escape")
        press("n" if n % 3 == 1 else "y")
        said = f"yes, no, n {n}" if n % 5 == 3 else ""
        expected[word] = [n % 3 != 1, f"Dear {word}" + (" and y and n" if n % 5 == 4 else ""), said]
    page.wait_for_selector("text=40 answers posted")
    eventually(lambda: posted(base) == [], "the runner has processed them", alive=runner)
    (base / "enough").touch()
    assert runner.wait(timeout=PATIENCE_SECONDS) == 0
    lines = [json.loads(line) for line in (base / "letters.jsonl").read_text().splitlines()]
    assert {line["key"]: line["output"] for line in lines} == {"slow": "slow", **expected}
    assert len(lines) == 41


def test_a_key_counts_once_and_only_for_the_question_that_is_shown(base: Path, ui: Ui, open_tab: Open) -> None:
    asked(base, *(f"w{n}" for n in range(7)))
    page = open_tab(ui).open(REVIEW)
    # Held down: the system repeats it, also on the next page.
    at_question(page, "w0")
    page.keyboard.down("y")
    at_question(page, "w1")
    for _ in range(5):
        page.keyboard.down("y")
    page.keyboard.up("y")
    assert given(base) == [("w0", True)]
    # Pressed twice at once, and two keys at once: dispatched before the next page can be there.
    page.evaluate(AT_ONCE, ["y", "y", "n"])
    at_question(page, "w2")
    assert given(base) == [("w0", True), ("w1", True)]
    # Left for later, or undone, and then a key that was meant for the next question.
    page.evaluate(AT_ONCE, ["s", "y"])
    at_question(page, "w3")
    assert len(given(base)) == 2
    page.keyboard.press("n")
    at_question(page, "w4")
    page.evaluate(AT_ONCE, ["u", "y"])
    at_question(page, "w3")
    assert given(base) == [("w0", True), ("w1", True)]
    # With a modifier it is the browser's.
    for key in ("Control+y", "Alt+n", "Meta+y"):
        page.keyboard.press(key)
    # A double click.
    page.dblclick(".no", no_wait_after=True)
    at_question(page, "w4")
    assert given(base)[2:] == [("w3", False)]


def test_keys_do_nothing_while_typing_and_nothing_if_switched_off(base: Path, ui: Ui, open_tab: Open) -> None:
    asked(base, "w0", "w1")
    page = open_tab(ui).open(REVIEW)
    at_question(page, "w0")
    page.keyboard.press("?")
    assert page.locator("#keys").get_attribute("open") is not None
    for field in ("#words", "textarea[name=d0]", "input[name=name]"):
        page.focus(field)
        page.keyboard.type("ynsu?we")
        assert "ynsu?we" in page.input_value(field)
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement === document.body")
    assert posted(base) == []
    page.uncheck("#keys-on")
    for key in "ynswe":
        page.keyboard.press(key)
    page.reload()
    assert not page.is_checked("#keys-on"), "it is remembered"
    page.keyboard.press("y")
    page.keyboard.press("?")
    assert page.locator("#keys").get_attribute("open") is None and posted(base) == []
    at_question(page, "w0")
    page.click("#keys summary")
    page.check("#keys-on")
    page.keyboard.press("n")
    at_question(page, "w1")
    assert given(base) == [("w0", False)]


def test_no_question_is_shown_before_its_keys_work(base: Path, ui: Ui, open_tab: Open) -> None:
    """Otherwise a `w` is lost, and the words after it are taken for answers."""
    asked(base, "w0")
    tab = open_tab(ui)

    def late(route: Route) -> None:
        time.sleep(0.3)
        route.continue_()

    tab.page.route("**/page.js", late)
    painted, script_came = tab.open(REVIEW).evaluate(PAINTED)
    assert painted >= script_came


@pytest.mark.parametrize("has_script", [True, False])
def test_enter_in_a_field_answers_nothing(base: Path, ui: Ui, open_tab: Open, has_script: bool) -> None:
    asked(base, "w0")
    tab = open_tab(ui, java_script_enabled=has_script)
    for field in ("#words", "input[name=d1]"):
        page = tab.open(REVIEW)
        page.press(field, "Enter")
        assert tab.open(REVIEW).inner_text("h1") == "Send w0?" and posted(base) == []


# ---- without script


def test_all_but_live_updates_and_keys_works_without_script(base: Path, ui: Ui, open_tab: Open) -> None:
    asked(base, "w0", "w1", "w2", "bad", "plain")
    tab = open_tab(ui, java_script_enabled=False, accept_downloads=True)
    page = tab.open("/")
    page.click(".job a")
    page.click("#to-review")
    page.fill("textarea[name=d0]", "Dear <you>")
    page.fill("#words", "with words")
    page.click(".yes")
    assert page.inner_text("h1") == "Send w1?" and "Approved: w0" in page.inner_text("[role=status]")
    page.click("#later")
    page.click(".no")
    page.click("#undo")
    assert page.inner_text("h1") == "Send w2?" and given(base) == [("w0", True)]
    page.click(".no")
    page.click("text=Review it")
    page.click(".yes")
    assert "3 answers posted" in page.inner_text("h1")
    assert posted(base)[0]["answer"]["details"] == {"draft": "Dear <you>"}
    assert page.locator("#keys-on:visible").count() == 0
    # Search and pages.
    page.click(".tabs >> text=Items")
    page.fill("input[name=text]", "pla")
    page.click("button:has-text('Search')")
    assert page.locator("tbody tr").count() == 1 and "1 to 1 of 1" in page.inner_text(".pages")
    page.click("tbody a")
    assert "plain" in page.inner_text("h1")
    # Failures: run again, and skip.
    page.click(".tabs >> text=Failures")
    page.click("button:has-text('Run it again')")
    assert "1 item will run again" in page.inner_text("[role=status]")
    page.click("article .keys a >> nth=0")
    page.click("summary:has-text('Skip')")
    page.click("button:has-text('Skip it')")
    assert [one["kind"] for one in posted(base)][-2:] == ["redo", "skip"]
    # Continue.
    (base / "mended").touch()
    page.click(".top >> text=letters")
    page.click("#continue")
    assert "continues in the background" in page.inner_text("[role=status]")
    eventually(lambda: posted(base) == [] and (base / "letters.jsonl").exists(), "the run completes")
    page.click(".tabs >> text=Results")
    for words, command in (("Download JSON lines", "letters.jsonl"), ("Download CSV", "")):
        with page.expect_download() as download:
            page.click(f"text={words}")
        assert download.value.suggested_filename == ("letters.jsonl" if command else "letters.csv")
        if command:
            assert Path(download.value.path()).read_text() == (base / command).read_text()


# ---- live


def test_the_live_page_changes_while_a_runner_works_and_keeps_the_focus(
    base: Path, ui: Ui, begin: Begin, open_tab: Open
) -> None:
    asking_place(base, ["slow", "plain", "w0", "w1"])
    runner = begin(base)
    wait_for(base, 2, alive=runner)
    tab = open_tab(ui)
    page = tab.open("/jobs/letters")
    page.wait_for_selector("text=Review 2 questions")
    page.focus("#to-review")
    page.evaluate("window.here = true")
    agentrun("answer", "letters", "w0", "--yes", cwd=base)
    page.wait_for_selector("text=Review 1 question")
    page.wait_for_selector(".tiles dd:has-text('2of 4')")
    assert page.evaluate("document.activeElement.id") == "to-review", "the focus is where it was"
    page.focus(".tiles a")
    where = page.evaluate("document.activeElement.getAttribute('href')")
    assert where.endswith("/review")
    (base / "enough").touch()
    assert runner.wait(timeout=PATIENCE_SECONDS) == 3
    page.wait_for_selector("#continue")
    assert page.evaluate("window.here"), "without a reload"
