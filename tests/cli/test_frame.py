"""Frames of the live view, which are a pure function of what there is to show, the time and the size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrun.events import Progress
from agentrun.values.units import rate_words
from agentrun_cli.drawing.cells import cell_len, cut_left, cut_right, wrap
from agentrun_cli.drawing.frame import Flight, Halt, Scene, draw_frame
from agentrun_cli.drawing.pace import Pace, left_words

HOSTILE = "a\x1b[31m[/x][link=evil]\x1b]0;title\x07\x9b2J\u202etxt.exe\x00\r\nnext"
SIZES = [(120, 40), (80, 24), (40, 15), (20, 5)]
NOW = 724.0
SCENE = Scene(
    total=200,
    done=140,
    failed=4,
    waiting=2,
    per_second=11.3 / 60,
    seconds_left=300.0,
    cost=1.64,
    budget=3.0,
    concurrency=8,
    in_flight=[Flight(f"invoices/2026-01{20 + n}.txt", NOW - 70 + 9 * n, "check") for n in range(8)],
)


def frame(scene: Scene, width: int, height: int, now: float = NOW) -> list[str]:
    return draw_frame(scene, now, width, height)


def test_a_pause_says_until_when_and_why_and_not_that_it_stops() -> None:
    scene = replace(SCENE, paused="paused until 02:00: openai's quota", halt=Halt(NOW), in_flight=())
    assert frame(scene, 80, 24)[2:] == ["paused until 02:00: openai's quota"]
    assert frame(scene, 20, 5)[2:] == ["paused until 02:00:…"]


def test_80_by_24() -> None:
    assert frame(SCENE, 80, 24) == [
        "━" * 46 + "─" * 19 + "  72 %  5m left",
        "140 of 200 · 4 failed · 2 waiting · 11.3/min · $1.64 of $3.00 · 12m04s",
        "1m10s  invoices/2026-0120.txt  check",
        "1m01s  invoices/2026-0121.txt  check",
        "  52s  invoices/2026-0122.txt  check",
        "  43s  invoices/2026-0123.txt  check",
        "  34s  invoices/2026-0124.txt  check",
        "  25s  invoices/2026-0125.txt  check",
        "  16s  invoices/2026-0126.txt  check",
        "   7s  invoices/2026-0127.txt  check",
    ]


def test_120_by_40_has_the_bar_over_the_full_width() -> None:
    bar, *rest = frame(SCENE, 120, 40)
    assert len(bar) == 120 and bar.endswith("──  72 %  5m left")
    assert rest == frame(SCENE, 80, 24)[1:]


def test_40_by_15_loses_words_from_the_right_of_the_counts() -> None:
    bar, counts, *flights = frame(SCENE, 40, 15)
    assert bar == "━" * 18 + "─" * 7 + "  72 %  5m left"
    assert counts == "140 of 200 · 4 failed · 2 waiting"
    assert flights[0] == "1m10s  invoices/2026-0120.txt  check" and len(flights) == 8


def test_20_by_5_still_has_the_bar_and_what_is_done() -> None:
    assert frame(SCENE, 20, 5) == ["━━━━━━━━━━────  72 %", "140 of 200"]
    stopping = replace(SCENE, halt=Halt(NOW - 6, 30))
    assert frame(stopping, 20, 5)[2] == "stopping: 24s left"


@pytest.mark.parametrize("size", [*SIZES, (1, 1), (3, 2), (7, 9), (200, 7)])
@pytest.mark.parametrize("count", [0, 1, 2, 64])
def test_every_frame_fits(size: tuple[int, int], count: int) -> None:
    width, height = size
    flights = [Flight("漢字/" * n + HOSTILE, n, "読む " * n) for n in range(count)]
    for scene in (SCENE, replace(SCENE, held_back="why " * 50), replace(SCENE, halt=Halt(NOW, 30)), Scene(0, 0)):
        lines = frame(replace(scene, in_flight=flights), width, height)
        assert max(map(cell_len, lines)) <= width, lines
        assert len(lines) <= max(height - 1, 1)
        assert sum("and " in line or "s  " in line for line in lines[2:]) <= max(height - 6, 0) + 1
        assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for line in lines for character in line)


def test_items_in_flight_take_the_height_less_6_and_the_rest_are_counted() -> None:
    flights = [Flight(f"{n:02}", n) for n in range(20)]
    lines = frame(replace(SCENE, in_flight=flights), 80, 12)[2:]
    assert len(lines) == 6 and lines[0].endswith("00") and lines[-1] == "       and 15 more"
    assert frame(replace(SCENE, in_flight=flights), 80, 7)[2:] == ["12m04s  the oldest of 20 in flight"]
    assert frame(replace(SCENE, in_flight=flights), 80, 6)[2:] == []


def test_a_frame_changes_with_every_second() -> None:
    one, other = (frame(SCENE, 80, 24, now) for now in (NOW, NOW + 1))
    assert all(before != after for before, after in zip(one[1:], other[1:], strict=True))


def test_keys_are_cut_from_the_left_and_what_items_do_from_the_right() -> None:
    flights = [Flight("invoices/" + "x" * 90 + "/0127.txt", NOW - 7, "extract " * 20), Flight("b", NOW - 3, "")]
    long, short = frame(replace(SCENE, in_flight=flights), 60, 24)[2:]
    assert long.startswith("   7s  …xxx") and "/0127.txt  extract" in long and long.endswith("…") and len(long) == 60
    assert short == "   3s  b"


def test_users_data_is_never_markup_or_a_control_code() -> None:
    (line,) = frame(replace(SCENE, in_flight=[Flight(HOSTILE, NOW - 1, HOSTILE)]), 120, 24)[2:]
    text = "a[/x][link=evil]2Jtxt.exe next"
    assert line == f"   1s  {text}  {text}"


def test_a_line_says_why_it_is_slower_and_how_much_grace_is_left() -> None:
    assert len(frame(replace(SCENE, in_flight=()), 80, 24)) == 2
    held = replace(SCENE, in_flight=SCENE.in_flight[:5], held_back="until more items have finished, nobody knows")
    assert frame(held, 80, 24)[2] == "5 of 8 at a time: until more items have finished, nobody knows"
    stopping = replace(SCENE, halt=Halt(NOW - 6, 30))
    assert frame(stopping, 80, 24)[2] == "stopping: 8 in flight, 24s of grace left"
    assert frame(stopping, 80, 24, NOW + 60)[2] == "stopping: 8 in flight, 0s of grace left"
    finishing = replace(SCENE, halt=Halt(NOW))
    assert frame(finishing, 80, 24)[2] == "stopping: 8 in flight, finished first"
    assert "left" not in frame(finishing, 80, 24)[0]


def test_it_is_full_only_when_everything_is_settled() -> None:
    nearly = frame(Scene(total=1000, done=999), 80, 24)[0]
    assert "─" in nearly and nearly.endswith("99 %")
    assert frame(Scene(total=1000, done=996, skipped=4), 80, 24)[0].endswith("━  100 %")


# ---- cells


def test_lines_are_broken_between_words_and_indented() -> None:
    text = "failed  docs/0004.txt: Fail: this document is poison, as the model says"
    assert list(wrap(text, 40, indent=8)) == [
        "failed  docs/0004.txt: Fail: this",
        "        document is poison, as the model",
        "        says",
    ]
    assert list(wrap("a" * 25, 10, indent=2)) == ["  aaaaaaaa", "  aaaaaaaa", "  aaaaaaaa", "  a"]
    assert list(wrap("漢字", 1, indent=8)) == ["漢", "字"]


def test_a_cut_counts_cells() -> None:
    assert cut_right("漢字漢字", 5) == "漢字…" and cut_left("漢字/abc.txt", 9) == "…/abc.txt"
    assert cut_right("abc", 3) == cut_left("abc", 3) == "abc"
    assert cut_right("abc", 0) == cut_left("abc", 0) == ""


# ---- the pace


def test_the_rate_is_that_of_the_last_minute_and_of_this_launch() -> None:
    progress = Progress({"done": 810, "failed": 90}, total=1000, to_run=200, began=0.0)
    pace = Pace(progress)
    assert pace.per_second(50.0) is None and pace.seconds_left(50.0) is None
    for second in range(1, 301):
        progress.settled_here = second // 10
        pace.look(float(second))
    progress.settled_here = 30 + 60
    pace.look(360.0)
    assert pace.per_second(360.0) == pytest.approx(1.0), "60 in the last 60 seconds"
    assert pace.seconds_left(360.0) == pytest.approx(110 / (90 / 360))


def test_the_time_left_does_not_count_items_that_are_left_for_another_launch() -> None:
    progress = Progress({"done": 10}, total=1000, to_run=30, others=970, settled_here=10, began=0.0)
    assert Pace(progress).seconds_left(10.0) == pytest.approx(20.0)


def test_items_that_take_minutes_have_a_rate_too() -> None:
    progress = Progress({"done": 1}, total=3, settled_here=1, to_run=3, began=0.0)
    pace = Pace(progress)
    for second in range(90, 300):
        pace.look(float(second))
    assert pace.per_second(300.0) == pytest.approx(1 / 300)
    assert rate_words(1 / 300) == "12.0/h" and rate_words(11.3 / 60) == "11.3/min" and rate_words(3.0) == "3.0/s"
    assert [left_words(one) for one in (0.2, 42, 300, 5400)] == ["nearly there", "42s left", "5m left", "1h30m left"]
