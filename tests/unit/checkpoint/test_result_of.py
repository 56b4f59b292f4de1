"""The key and the output of a record, without reading the rest of it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.checkpoint.record import decode_record, encode_record, result_of, seal_record
from agentrun.values.json import encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TRICKY = ['","gen":', ',"output":', "\\", '\\","gen":', '"', '{"gen":1}', ',"carry":', "\u2028"]


def line_of(key: str, output: Any, **more: Any) -> bytes:
    fields = {"kind": "done", "key": key, "gen": 0, "index": 3, "hash": "0" * 16, "agent": "v1", "launch": 1, **more}
    return encode_record(7, fields, encode(output))


@given(st.text(min_size=1) | st.sampled_from(TRICKY), JSON | st.sampled_from(TRICKY), st.text())
def test_they_are_those_that_reading_it_gives(key: str, output: Any, cause: str) -> None:
    line = line_of(key, {"a": "b", "gen": 1, "output": output}, tries=[{"cause": cause}], warning=cause)
    found = result_of(line)
    assert found is not None
    record = decode_record(line)
    assert [orjson.loads(part) for part in found] == [record["key"], record["output"]]


@pytest.mark.parametrize("more", [{"carry": {"x": 1, "output": 2}}, {"files": [{"path": "a", "output": 1}]}])
def test_where_other_data_stands_before_the_output_it_is_read(more: dict[str, Any]) -> None:
    assert result_of(line_of("k", 1, **more)) is None


def test_a_record_edited_by_hand_is_put_in_order_again() -> None:
    record = decode_record(line_of("k", {"x": "y", "gen": 5}))
    shuffled = dict(reversed(record.items()))
    found = result_of(seal_record(shuffled))
    assert found is not None and orjson.loads(found[0]) == "k"
