"""The contract of a home, of its side files: whole or not there, one of two when both want to be first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from agentrun.errors import CheckpointError
from agentrun.store.keyed.home import PIECE_BYTES, Home
from agentrun.testing.homes import LONG, OnOneHome, commit, fill, lines, text_of

NAMES = [
    "a",
    "post/00000000000000000001-0a2f19f3.json",
    "post/stop-0a2f",
    "side",
    "side-x",
    "side/A",
    "side/B.json",
    "side/a%b",
    "side/a.json",
    "side/a_b",
    "side/ab",
    'side/é "\u2028\\.spool',
    "side0",
    "sidé/x",
]
"""In the order of their characters; some that a pattern, a collation or a path would mix up."""

CHANGES: dict[str, Callable[[Home], None]] = {
    "replaced": lambda home: home.put("side/x", [b"d", b"e", b"f"]),
    "emptied": lambda home: home.put("side/x", []),
    "dropped": lambda home: home.drop(["side/x"]),
    "another of its name": lambda home: (home.drop(["side/x"]), home.put("side/x", [b"d", b"e", b"f"]))[1],
}


class HomeSideContract(OnOneHome):
    def test_a_side_file_is_there_whole_until_another_replaces_it(self, home: Home, other: Home) -> None:
        pieces = [bytes([n]) * PIECE_BYTES for n in range(2)] + [b"\0\n\xff"]
        home.put("side/x", pieces)
        home.put("side/empty", [])
        for look in (home, other):
            assert text_of(look, "side/x") == b"".join(pieces)
            assert (text_of(look, "side/empty"), look.get("side/y")) == (b"", None)
        for text in (b"shorter", b"", b"a\nb"):
            home.put("side/x", iter([text]))
            assert text_of(other, "side/x") == text == text_of(home, "side/x")

    def test_names_are_found_by_how_they_begin_and_sorted(self, home: Home, other: Home) -> None:
        for name in reversed(NAMES):
            home.put(name, [name.encode()])
        for prefix in ("", "side/", "side", "side/a", "side/a_", "side/a%", "post/", "x", "side/a.json", "sid"):
            assert other.names(prefix) == [name for name in NAMES if name.startswith(prefix)], prefix
        assert [text_of(other, name) for name in NAMES] == [name.encode() for name in NAMES]

    def test_what_is_dropped_is_gone_and_what_was_gone_is_fine(self, home: Home, other: Home) -> None:
        for name in NAMES:
            home.put(name, [b"x"])
        home.drop([])
        home.drop([*NAMES[::2], "side/no such"])
        home.drop(NAMES[::2])
        assert other.names() == NAMES[1::2]
        assert [text_of(other, name) for name in NAMES[:2]] == [None, b"x"]

    @pytest.mark.parametrize("error", [LookupError("no more items"), OSError(5, "no more items")])
    def test_a_side_file_whose_making_fails_leaves_the_old_one_and_the_error_is_the_callers(
        self, home: Home, other: Home, error: Exception
    ) -> None:
        def failing() -> Iterator[bytes]:
            yield b"half"
            raise error

        epoch = fill(home)
        for name, fence in (("side/job.json", epoch), ("side/job.json", None), ("side/new", None)):
            with pytest.raises(type(error), match="no more items"):
                home.put(name, failing(), epoch=fence)
        assert (text_of(other, "side/job.json"), other.names()) == (b"{}", ["side/job.json"])
        home.put("side/new", [b"whole"])
        assert text_of(other, "side/new") == b"whole"

    def test_a_side_file_may_be_made_of_what_the_home_itself_has(self, home: Home, other: Home) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        home.commit(epoch, commit(1, adds="abc"), LONG)
        home.put("aside/x", (line + b"\n" for _, line in home.scan(commit(1).journal, 0, 9)), epoch=epoch)
        assert text_of(other, "aside/x") == b"".join(line + b"\n" for line in lines("a", "b", "c"))

    def test_a_side_file_needs_no_lease_and_no_run(self, home: Home, other: Home) -> None:
        home.put("post/a", [b"x"])
        other.put("post/b", [b"y"])
        assert home.names() == ["post/a", "post/b"] and (home.head().epoch, home.head().holder) == (0, None)
        fill(home)
        other.drop(["post/a"])
        assert home.names("post/") == ["post/b"]

    def test_what_is_put_as_new_does_not_replace_what_is_there(self, home: Home, other: Home) -> None:
        assert home.put_new("fate/a", b"first") is True
        assert other.put_new("fate/a", b"second") is False is home.put_new("fate/a", b"")
        assert text_of(other, "fate/a") == b"first"
        home.put("side/x", [b"a", b"b"])
        assert other.put_new("side/x", b"c") is False and text_of(home, "side/x") == b"ab"
        other.drop(["fate/a"])
        assert other.put_new("fate/a", b"") is True
        assert text_of(home, "fate/a") == b""

    def test_of_six_who_put_it_as_new_at_once_one_succeeds(self, tmp_path: Path) -> None:
        homes = [self.make_home(tmp_path) for _ in range(6)]
        at_once = Barrier(len(homes))

        def put(number: int) -> bool:
            at_once.wait()
            return homes[number].put_new("fate/a", b"%d" % number)

        with ThreadPoolExecutor(len(homes)) as threads:
            made = list(threads.map(put, range(len(homes))))
        assert made.count(True) == 1
        assert text_of(homes[0], "fate/a") == b"%d" % made.index(True)

    @pytest.mark.parametrize("change", CHANGES)
    def test_who_reads_a_side_file_that_is_changed_reads_it_as_it_was_or_is_told(
        self, home: Home, other: Home, change: str
    ) -> None:
        was = [letter * 10_000 for letter in (b"a", b"b", b"c")]
        home.put("side/x", was)
        reading = other.get("side/x")
        assert reading is not None
        found = next(reading)
        CHANGES[change](home)
        try:
            found += b"".join(reading)
        except CheckpointError as error:
            assert "run the command again" in error.message
        else:
            assert found == b"".join(was)
