from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agentrun.errors import AgentrunError
from agentrun.outputs.logs import DONE_BYTES, KEPT_BYTES, ItemLogs, log_name


def test_what_an_attempt_said_is_kept_under_its_heading_and_the_slot_is_empty_again(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path / "logs")
    logs.append(0, "first")
    logs.keep(0, "docs/a.txt", "attempt 1: no")
    logs.slot_path(0).write_bytes(b"second, without a newline")
    logs.keep(0, "docs/a.txt", "attempt 2: no")
    assert (tmp_path / "logs" / log_name("docs/a.txt")).read_text() == (
        "--- attempt 1: no\nfirst\n--- attempt 2: no\nsecond, without a newline\n"
    )
    assert logs.slot_path(0).read_bytes() == b""


def test_with_none_to_keep_a_done_item_has_no_log_also_not_one_of_an_earlier_launch(tmp_path: Path) -> None:
    before = ItemLogs(tmp_path)
    before.append(0, "x")
    before.keep(0, "a", "failed")
    assert (tmp_path / log_name("a")).exists()
    logs = ItemLogs(tmp_path)
    logs.settle("a")
    logs.settle("never seen")
    assert not list(tmp_path.glob("[!.]*.log"))


def say(logs: ItemLogs, key: str, text: str = "x", heading: str = "done") -> None:
    logs.append(0, text)
    logs.keep(0, key, heading)


def done(folder: Path) -> set[str]:
    return {path.name for path in (folder / "done").iterdir()}


def test_the_newest_logs_of_done_items_are_kept_over_launches(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path, keep_done=3)
    for key in "abcd":
        say(logs, key)
        logs.settle(key)
    assert done(tmp_path) == {log_name(key) for key in "bcd"}
    for age, key in enumerate("dcb"):
        os.utime(tmp_path / "done" / log_name(key), ns=(0, 10**9 * (100 - age)))
    logs = ItemLogs(tmp_path, keep_done=3)
    say(logs, "e")
    logs.settle("e")
    assert done(tmp_path) == {log_name(key) for key in "cde"}, "the oldest goes first"
    logs = ItemLogs(tmp_path, keep_done=1)
    assert len(done(tmp_path)) == 3, "nothing is unlinked before the launch's first commit"
    logs.adopt([], "")
    assert done(tmp_path) == {log_name("e")}


def test_a_done_log_has_all_attempts_but_no_more_than_its_end(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path, keep_done=10)
    say(logs, "a", "first", "attempt 1: no")
    say(logs, "a", "second", "attempt 2: done")
    logs.settle("a")
    assert (tmp_path / "done" / log_name("a")).read_text() == (
        "--- attempt 1: no\nfirst\n--- attempt 2: done\nsecond\n"
    )
    say(logs, "b", "y" * 3 * DONE_BYTES + "the end")
    logs.settle("b")
    text = (tmp_path / "done" / log_name("b")).read_text()
    assert text.startswith("[the beginning was dropped]\n") and text.endswith("the end\n")
    assert len(text) == DONE_BYTES


def test_a_new_result_takes_the_place_of_the_old_ones_log_also_if_it_printed_nothing(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path, keep_done=10)
    for text in ("old", "new"):
        say(logs, "a", text)
        logs.settle("a")
    assert (tmp_path / "done" / log_name("a")).read_text() == "--- done\nnew\n"
    logs.settle("a")
    assert done(tmp_path) == set()


def test_what_earlier_runs_left_counts_as_logs_of_done_items(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path, keep_done=2)
    for key in "abc":
        say(logs, key, heading="failed")
    logs.retire()
    assert done(tmp_path) == {log_name(key) for key in "bc"} and not list(tmp_path.glob("[!.]*.log"))


def test_a_log_that_cannot_be_kept_does_not_stop_a_run(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path, keep_done=2)
    (tmp_path / "done").write_text("in the way")
    say(logs, "a")
    logs.settle("a")


def test_only_the_end_is_kept(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path)
    logs.slot_path(0).write_bytes(b"x" * (2 * KEPT_BYTES) + b"the end")
    logs.trim(1)
    text = logs.slot_path(0).read_bytes()
    assert text.startswith(b"[the beginning was dropped]\n") and text.endswith(b"the end")
    assert len(text) < KEPT_BYTES + 100
    for _ in range(4):
        logs.slot_path(0).write_bytes(b"y" * KEPT_BYTES)
        logs.keep(0, "a", "again")
    assert (tmp_path / log_name("a")).stat().st_size <= 2 * KEPT_BYTES + 100


def test_files_are_for_the_owner_and_slots_go_at_the_end(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path / "logs")
    logs.append(0, "x")
    logs.append(1, "y")
    logs.keep(1, "a", "lost")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "logs").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    logs.close(2)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [log_name("a")]


@pytest.mark.parametrize("key", ["../../etc/passwd", "-rf", ".hidden", "a/b\n\x1b[31m", "é" * 400, "x" * 1024, "/"])
def test_a_log_name_is_safe_whatever_the_key(key: str) -> None:
    name = log_name(key)
    assert "/" not in name and not name.startswith((".",)) and name.isascii() and name.isprintable()
    assert len(name) < 100 and name != log_name(key + " ")


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path / "logs")
    (tmp_path / "logs" / log_name("a")).symlink_to(tmp_path / "target")
    logs.append(0, "x")
    with pytest.raises(AgentrunError, match="link"):
        logs.keep(0, "a", "failed")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AgentrunError, match="link"):
        ItemLogs(tmp_path / "linked")
    assert not (tmp_path / "target").exists() and not list((tmp_path / "elsewhere").iterdir())


def test_surrogates_in_what_is_logged_are_spelled_out(tmp_path: Path) -> None:
    logs = ItemLogs(tmp_path)
    logs.append(0, "\udc80")
    logs.keep(0, "a", "heading \udc81")
    assert (tmp_path / log_name("a")).read_text() == "--- heading \\udc81\n\\udc80\n"
