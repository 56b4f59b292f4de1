from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from agentrun.checkpoint.record import PublishedFile
from agentrun.outputs import table
from agentrun.outputs.results import Result
from agentrun.outputs.table import csv_lines
from unit.records import make_record


def text_of(*outputs: Any, keys: str = "abcdefgh", **fields: Any) -> str:
    def results() -> Iterator[Result]:
        for index, output in enumerate(outputs):
            yield Result(index, make_record(keys[index], output=output, **fields))

    return b"".join(csv_lines(results)).decode()


def test_columns_are_index_key_and_the_fields_in_order_of_first_appearance() -> None:
    assert text_of({"z": 1, "a": "x"}, {"m": True, "a": "y"}) == "index,key,z,a,m\n0,a,1,x,\n1,b,,y,true\n"


def test_nested_values_are_json_and_null_is_empty() -> None:
    assert text_of({"l": [1, "x"], "o": {"k": None}, "n": None}) == (
        'index,key,l,o,n\n0,a,"[1,""x""]","{""k"":null}",\n'
    )


def test_outputs_that_are_not_objects_have_a_column_of_their_own_behind_the_fields() -> None:
    assert text_of("text", {"v": 1}, [1], None, 5) == "index,key,v,output\n0,a,,text\n1,b,1,\n2,c,,[1]\n3,d,,\n4,e,,5\n"


def test_without_results_there_is_only_the_heading() -> None:
    assert text_of() == "index,key\n"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+49 30", "'+49 30"),
        ("-5", "'-5"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("\rx", '"\'\rx"'),
        ("'=1", "''=1"),
        ("'tis", "'tis"),
        ("a=1", "a=1"),
        (" =1", " =1"),
    ],
)
def test_text_that_a_spreadsheet_could_take_for_a_formula_has_an_apostrophe_in_front(text: str, cell: str) -> None:
    assert text_of(text).removeprefix("index,key,output\n") == f"0,a,{cell}\n"
    assert text_of({"v": text}).removeprefix("index,key,v\n") == f"0,a,{cell}\n"


def test_keys_and_fields_are_safe_too_and_numbers_are_left_as_they_are() -> None:
    assert text_of({"=f": -5, "x": 1.5}, keys="=") == "index,key,'=f,x\n0,'=,-5,1.5\n"


def test_numbers_are_written_as_they_were_recorded() -> None:
    record = make_record("a", output=1)
    record.output = Raw(b'{"n": 123456789012345678901234567890, "f": 1.10}')
    assert b"".join(csv_lines(lambda: iter([Result(0, record)]))) == (
        b"index,key,n,f\n0,a,123456789012345678901234567890,1.10\n"
    )


def test_a_field_with_the_name_of_one_of_our_columns_is_renamed() -> None:
    assert text_of({"key": 1, "output": 2}).splitlines()[0] == "index,key,output.key,output"
    assert text_of({"key": 1, "output.key": 2, "output": 3}, "x").splitlines()[0] == (
        "index,key,output.key,output.output.key,output.output,output"
    )


def test_files_have_a_column_where_there_are_some() -> None:
    found = text_of({"v": 1}, files=[PublishedFile("r.files/a/x", 3, "00", mtime_ns=9)])
    row = next(csv.DictReader(io.StringIO(found)))
    assert row == {"index": "0", "key": "a", "v": "1", "files": '[{"path":"r.files/a/x","size":3,"sha256":"00"}]'}


def test_fields_beyond_the_most_columns_stand_together_in_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "COLUMNS_MOST", 2)
    assert text_of({"a": 1, "b": 2}, {"a": 1, "c": 3, "d": "=x"}) == (
        'index,key,a,b,output\n0,a,1,2,\n1,b,1,,"{""c"":3,""d"":""=x""}"\n'
    )


@given(st.text().filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)))
def test_a_cell_reads_back_as_the_text_without_the_one_apostrophe(text: str) -> None:
    (row,) = list(csv.reader(io.StringIO(text_of({"v": text}), newline="")))[1:]
    cell = row[2]
    assert cell == text or (cell == f"'{text}" and text.lstrip("'")[:1] in ("=", "+", "-", "@", "\t", "\r"))
    assert cell[:1] not in ("=", "+", "-", "@", "\t", "\r")
