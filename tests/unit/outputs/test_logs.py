from __future__ import annotations

import stat
from pathlib import Path

import pytest

from agentrun.errors import AgentrunError
from agentrun.outputs.logs import KEPT_BYTES, ItemLogs, log_name


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


def test_a_done_item_has_no_log_also_not_one_of_an_earlier_launch(tmp_path: Path) -> None:
    before = ItemLogs(tmp_path)
    before.append(0, "x")
    before.keep(0, "a", "failed")
    assert (tmp_path / log_name("a")).exists()
    logs = ItemLogs(tmp_path)
    logs.forget("a")
    logs.forget("never seen")
    assert not (tmp_path / log_name("a")).exists()


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
