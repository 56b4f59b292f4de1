"""Results as anyone may read them, on every store."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest

from agentrun.checkpoint.record import Edited, PublishedFile, Try
from agentrun.checkpoint.summary import WrittenOutput
from agentrun.money.usage import Usage
from agentrun.views.listing import open_listing
from agentrun.views.results import read_output, result_lines
from unit.made import Made, StoreKind


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, [*"abcd"], kind)


def lines_of(made: Made, *, full: bool = False) -> list[bytes]:
    with open_listing(made.store, made.job) as listing:
        return list(result_lines(listing, full=full))


# ---- the lines


def test_done_items_have_a_line_each_in_item_order_as_they_were_recorded(made: Made) -> None:
    made.commit(made.record("c", output={"z": 1, "a": "é\u2028"}), made.failed("b"), made.record("a", output=None))
    made.commit(made.waiting("d"))
    assert lines_of(made) == [
        b'{"index":0,"key":"a","output":null}\n',
        '{"index":2,"key":"c","output":{"z":1,"a":"é\u2028"}}\n'.encode(),
    ]


def test_the_newest_result_of_an_item_counts_and_one_that_starts_over_has_none(made: Made) -> None:
    made.commit(made.record("a", output=1), made.record("b", output=1))
    made.commit(made.record("a", output=2), made.record("b", "redo", gen=1))
    assert lines_of(made) == [b'{"index":0,"key":"a","output":2}\n']


def test_a_line_names_the_files_that_the_item_left(made: Made) -> None:
    made.commit(made.record("a", output=1, files=[PublishedFile("a/r.txt", 3, "00")]))
    (line,) = lines_of(made)
    assert orjson.loads(line)["files"] == [{"path": "a/r.txt", "size": 3, "sha256": "00"}]


def test_without_results_there_are_no_lines(made: Made) -> None:
    assert lines_of(made) == []
    made.commit(made.failed("a"))
    assert lines_of(made) == [] == lines_of(made, full=True)


def test_a_full_line_adds_what_may_differ_from_run_to_run(made: Made) -> None:
    made.commit(made.record("a", output=1, gen=2, launch=3))
    (line,) = lines_of(made, full=True)
    assert line == (
        b'{"index":0,"key":"a","output":1,"at":"1970-01-01T00:01:40.000Z","seconds":2.0,'
        b'"attempts":1,"agent":"v1","launch":3,"generation":2}\n'
    )


def test_a_full_line_has_cost_usage_edits_and_warnings_only_where_there_are_some(made: Made) -> None:
    usage, edited = Usage(cost=0.25, input_tokens=10), Edited(by="ada", at="2026-05-04")
    tries = [Try(launch=1, number=5, at=100.0, seconds=2.0)]
    made.commit(made.record("a", output=1, usage=usage, edited=edited, tries=tries, warning="it was close"))
    made.commit(made.record("b", output=2, usage=Usage(input_tokens=10)))
    first, second = (orjson.loads(line) for line in lines_of(made, full=True))
    assert (first["cost"], first["usage"], first["attempts"]) == (0.25, usage.as_json(), 5)
    assert (first["edited"], first["warning"]) == ({"by": "ada", "at": "2026-05-04"}, "it was close")
    assert "usage" in second and not {"cost", "edited", "warning"} & second.keys()


# ---- the output of a finished run


def finished(made: Made, text: bytes) -> Path:
    path = made.base / "made.results.jsonl"
    path.write_bytes(text)
    made.commit(made.record("a"))
    made.finish(output=WrittenOutput(str(path), len(text), hashlib.sha256(text).hexdigest()))
    return path


def test_the_output_of_a_finished_run_is_given_byte_for_byte_in_whole_lines(made: Made) -> None:
    text = b"".join(b'{"index":%d,"key":"a","output":"%b"}\n' % (n, b"x" * 999) for n in range(1000))
    finished(made, text)
    pieces = read_output(made.store)
    assert pieces is not None
    found = list(pieces)
    assert b"".join(found) == text and len(found) > 1
    assert all(piece.endswith(b"\n") for piece in found)


def test_an_output_that_is_changed_or_gone_is_not_the_runs_any_more(made: Made) -> None:
    path = finished(made, b'{"index":0}\n')
    path.write_bytes(b'{"index":1}\n')
    assert read_output(made.store) is None
    path.unlink()
    assert read_output(made.store) is None


def test_what_was_checked_is_what_is_given_though_the_file_is_replaced_meanwhile(made: Made) -> None:
    path = finished(made, b'{"index":0}\n')
    pieces = read_output(made.store)
    other = path.with_suffix(".new")
    other.write_bytes(b"another\n")
    other.replace(path)
    assert pieces is not None and list(pieces) == [b'{"index":0}\n']


def test_a_run_that_has_not_finished_has_no_output_yet(made: Made) -> None:
    assert read_output(made.store) is None
    made.commit(made.record("a"))
    assert read_output(made.store) is None


def test_a_finished_run_that_wrote_no_output_has_none(made: Made) -> None:
    made.commit(made.record("a"))
    made.finish()
    assert read_output(made.store) is None
