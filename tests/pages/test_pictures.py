"""The pictures: what a terminal and a browser show; making them again changes as little as possible."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from pages import ui
from pages.page import pages
from pages.pictures import PICTURES, SESSIONS, draw, still

LINES = ["$ agentrun status", "\x1b[33minterrupted\x1b[0m  86/200 & <more>", "the run of 22:47"]


def test_the_same_lines_are_the_same_picture() -> None:
    assert draw(LINES, "x") == draw([line.replace("22:47", "03:12") for line in LINES], "x")


def test_a_picture_is_xml_with_all_of_the_text_and_asks_the_net_for_nothing() -> None:
    svg = draw(LINES, "x")
    words = "".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ")
    assert "agentrun status" in words and "& <more>" in words and "interrupted" in words
    assert set(re.findall(r"https?://[^\"]+", svg)) == {"http://www.w3.org/2000/svg"}


def test_what_is_replaced_is_as_wide_as_before() -> None:
    for line in ("run 20261117T074636-9568c2167a4, 1 launch", "at 07:46:36 and 07:46", "32 of version 0123456789ab"):
        assert len(still(line)) == len(line) and still(line) != line


@pytest.mark.parametrize("name", SESSIONS)
def test_the_pictures_show_nothing_of_the_machine(name: str) -> None:
    svg = (PICTURES / f"{name}.svg").read_text()
    assert not re.search(r"/(tmp|home|root|work|Users)/", svg)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("now", [1_700_000_000, 1_700_040_000, 1_700_080_000, 1_700_006_399])
def test_the_page_is_pictured_at_the_same_time_of_day(now: int, zone: pytest.MonkeyPatch) -> None:
    zone.setenv("TZ", ui.zone_at("07:52:00", now))
    time.tzset()
    assert time.strftime("%H:%M:%S", time.localtime(now)) == "07:52:00"


@pytest.mark.parametrize("name", [one.name for one in ui.PICTURES])
def test_a_picture_of_the_page_is_small_and_shown_somewhere(name: str) -> None:
    picture = (PICTURES / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) <= 120 * 1024
    assert any(f"pictures/{name}.png" in path.read_text() for path in pages())
