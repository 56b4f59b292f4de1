"""The two forms of a report: all sections, nothing of users' data as markup, small enough."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agentrun.report.markdown import code, markdown_page, sparkline, words
from agentrun.report.page import MOST_BYTES, POLICY, html_page
from agentrun.report.plots import WIDTH, clock_ticks, figures, ticks_to
from agentrun.report.reading import read_report
from agentrun.report.report import Curve, Group, Listed, Report
from agentrun.report.tally import SLICES, histogram, quantile
from unit.made import Made
from unit.report.night import HOSTILE, Invoices

SECTIONS = ["next", "failures", "questions", "night", "outliers", "record"]
TITLES = ["What to do next", "Failures", "Questions", "The night", "Slowest and most expensive items", "For the record"]
ALLOWED = re.findall(
    r"\w+",
    "html head meta link title style body main header footer section article div p h1 h2 h3 span b i ol ul li dl dt dd "
    "code small details summary figure figcaption svg path rect text table thead tbody tr th td",
)


class Tags(HTMLParser):
    """The tags and attributes of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return read_report(Invoices(tmp_path_factory.mktemp("night")).play().known)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    made = Invoices(tmp_path_factory.mktemp("hostile"), HOSTILE)
    made.failing = [*range(8), *made.failing[8:]]
    return read_report(made.play().known)


def test_the_page_has_every_section_and_its_policy(report: Report) -> None:
    page = html_page(report)
    assert re.findall(r'<section id="(\w+)">', page) == SECTIONS and 'id="tiles"' in page
    assert f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">' in page
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert (
        page.count("</figcaption><svg ") == 4
        and page.count("<svg ") == 5
        and f'viewBox="0 0 {WIDTH} ' in page
        and WIDTH == 430
    )


def test_nothing_in_the_page_runs_or_is_fetched(hostile: Report) -> None:
    page = html_page(hostile)
    tags = Tags(page)
    assert tags.tags <= set(ALLOWED)
    assert not {name for name in tags.attributes if name.startswith("on") or name in ("src", "srcdoc", "action")}
    assert re.findall(r'href="([^"]*)"', page) == ["data:,"] and "url(" not in page and "@import" not in page


def test_hostile_keys_are_shown_as_they_are(hostile: Report) -> None:
    text = Tags(html_page(hostile)).text
    for key in HOSTILE[:4]:
        assert key in text
    assert not re.search("[\x1b\u202e\u2066]", html_page(hostile) + markdown_page(hostile))


def test_an_empty_night_still_has_every_section(tmp_path: Path) -> None:
    made = Made(tmp_path, ["a"])
    made.commit(counts={"pending": 1})
    found = read_report(made.known)
    assert re.findall(r'<section id="(\w+)">', html_page(found)) == SECTIONS
    assert re.findall(r"^## (.+)$", markdown_page(found), re.MULTILINE) == TITLES


def test_the_page_stays_below_its_limit_however_long_keys_and_causes_are(report: Report) -> None:
    keys = [Listed(f"{n}<&\"'" * 200, "é<" * 200) for n in range(50)]
    groups = [Group("<cause> " * 200, 5_000, keys, "a.py:1", "<code>" * 50, "agentrun redo x") for _ in range(20)]
    large = replace(report, failures=groups, questions=groups, failed=100_000, causes=300, waiting=100_000)
    assert len(html_page(large).encode()) <= MOST_BYTES
    assert len(markdown_page(large).encode()) <= MOST_BYTES
    assert "more causes" in html_page(large) and re.findall(r'<section id="(\w+)">', html_page(large)) == SECTIONS


def test_the_markdown_has_the_same_sections_and_commands(report: Report) -> None:
    text, page = markdown_page(report), html_page(report)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == TITLES
    commands = re.findall(r"^ *(agentrun .+)$", text, re.MULTILINE)
    shown = Tags(page).text
    assert len(commands) == 7 and all(one in shown for one in commands)


def test_users_data_in_markdown_is_code() -> None:
    assert code("a`b``c") == "```a`b``c```" and code("`x`") == "`` `x` ``" and code("") == "` `"
    assert code("a\n## b\x1b[31m") == "`a ## b`"
    assert words("# <b> [x](y) @me *z* http://x") == r"\# \<b\> \[x\](y) \@me \*z\* http\://x"
    assert words("1. x") == r"1\. x" and words("- x") == r"\- x"


def test_numbers_in_markdown_are_shown_without_a_backslash(report: Report) -> None:
    assert "- Attempts: 2" in (page := markdown_page(report))
    assert re.search(r"\\[\w\s]", page) is None


def test_a_table_in_markdown_keeps_its_columns(hostile: Report) -> None:
    for line in markdown_page(hostile).splitlines():
        if line.startswith("| "):
            cells = len(re.findall(r"(?<!\\)\|", line)) - 1
            assert cells in (3, 5), line


def test_a_plot_is_xml_and_has_few_points(report: Report) -> None:
    for figure in figures(report.night, total=200, budget=4.0):
        svg = ElementTree.fromstring(figure.svg)
        drawn = "".join(one.get("d", "") for one in svg.iter())
        assert len(re.findall("[ML]", drawn)) <= 5_000
        numbers = [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", drawn)]
        assert min(numbers) >= 0 and max(numbers) <= WIDTH


def test_ticks_are_round() -> None:
    assert ticks_to(200) == [0, 50, 100, 150, 200] and ticks_to(0) == [0, 1] and ticks_to(3.37)[-1] >= 3.37
    assert all(len(ticks_to(top)) <= 6 for top in (0.003, 1, 7, 8, 99, 1_000_001))
    night = [words for _, words in clock_ticks(1_794_866_640.0, 1_794_866_640.0 + 8 * 3600)]
    assert len(night) >= 2 and all(one.endswith(":00") for one in night)
    assert len(clock_ticks(5.0, 5.001)) == 2 and len(clock_ticks(0.0, 90 * 86400.0)) <= 6


def test_the_histogram_has_every_value_once() -> None:
    values = [0.001, 0.5, 0.6, 1.0, 3.0, 900.0]
    bars = histogram(values)
    assert sum(count for _, _, count in bars) == len(values) and len(bars) <= 24
    assert histogram([]) == [] and histogram([2.0])[0][2] == 1 and quantile(values, 0.5) == 1.0


def test_a_sparkline_has_dots_where_nothing_ran(report: Report) -> None:
    drawn = sparkline(Curve([float(n) for n in range(SLICES)]), report.night)
    assert drawn[0] == "▁" and drawn[-1] == "█" and "·" in drawn
