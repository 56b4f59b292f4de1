"""How databases keep a side file that comes piece by piece, from a source that may be slow, fail, or never end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.errors import LostError
from agentrun.store.homes.sql import PART_BYTES, SqlPlace
from agentrun.testing.homes import LONG, text_of

NAME = "side/items-1.spool"
A, B, C, D = (letter * PART_BYTES for letter in (b"a", b"b", b"c", b"d"))


class SidePieceContract:
    def make_place(self, tmp_path: Path) -> SqlPlace:
        """Open the same place at each call, with a connection of its own."""
        raise NotImplementedError

    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlPlace:
        return self.make_place(tmp_path)

    @pytest.fixture
    def other(self, tmp_path: Path) -> SqlPlace:
        return self.make_place(tmp_path)

    def test_while_a_side_file_comes_piece_by_piece_the_lease_is_renewed_and_others_write(
        self, place: SqlPlace, other: SqlPlace
    ) -> None:
        home = place.home("triage")
        epoch = home.take(home.head(), b"me", LONG)
        home.put(NAME, [D, B], epoch=epoch)
        done: list[str] = []

        def beat() -> None:
            home.beat(epoch, LONG)
            done.append("beat")

        def pieces() -> Iterator[bytes]:
            for text in (A, B, C):
                beating = threading.Thread(target=beat, daemon=True)
                beating.start()
                beating.join(10)
                other.home("another").put("post/a", [text[:1]])
                assert text_of(other.home("triage"), NAME) == D + B
                done.append(text[:1].decode())
                yield text

        home.put(NAME, pieces(), epoch=epoch)
        assert done == ["beat", "a", "beat", "b", "beat", "c"]
        assert text_of(other.home("triage"), NAME) == A + B + C
        assert rows_of(place) == 4

    def test_what_is_left_of_a_side_file_is_seen_by_nobody_and_the_next_one_removes_it(
        self, place: SqlPlace, other: SqlPlace
    ) -> None:
        home = place.home("triage")
        epoch = home.take(home.head(), b"me", LONG)

        def failing() -> Iterator[bytes]:
            yield from (A, B, C)
            raise LookupError("no more items")

        for _ in range(2):
            with pytest.raises(LookupError, match="no more items"):
                home.put(NAME, failing(), epoch=epoch)
            look = other.home("triage")
            assert (look.names(), look.get(NAME), other.names()) == ([], None, [])
        home.put("side/job.json", [b"{}"], epoch=epoch)
        assert (rows_of(place), other.home("triage").names()) == (2, ["side/job.json"])
        assert home.put_new(NAME, b"new") and text_of(home, NAME) == b"new"

    def test_who_loses_the_job_meanwhile_is_told_by_the_next_piece_and_leaves_the_old_file(
        self, place: SqlPlace, other: SqlPlace
    ) -> None:
        home, sent = place.home("triage"), list[bytes]()
        epoch = home.take(home.head(), b"me", LONG)
        home.put(NAME, [b"old"], epoch=epoch)

        def pieces() -> Iterator[bytes]:
            for text in (A, B, C, D):
                if text == C:
                    look = other.home("triage")
                    look.take(look.head(), b"other", LONG)
                sent.append(text[:1])
                yield text

        with pytest.raises(LostError):
            home.put(NAME, pieces(), epoch=epoch)
        assert sent == [b"a", b"b", b"c"]
        assert text_of(other.home("triage"), NAME) == b"old"
        other.home("triage").put("side/job.json", [b"{}"], epoch=epoch + 1)
        assert rows_of(place) == 4


def rows_of(place: SqlPlace) -> int:
    """How many rows the side files of the job take: one for the name, and one for each piece."""
    return int(place.query("select count(*) from {p}side where job = ?", ["triage"])[0][0])
