from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.checkpoint.record import RecordError, check_record, decode_head, decode_record, encode_record, seal_record
from agentrun.values.json import encode

FIELDS: dict[str, Any] = {
    "kind": "done",
    "key": "a",
    "gen": 0,
    "index": 3,
    "hash": "00ff00ff00ff00ff",
    "agent": "v1",
    "launch": 1,
}
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # No lone surrogates: JSON has none.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=12,
)


def test_a_record_is_one_line_with_a_checksum_and_the_output_last() -> None:
    line = encode_record(7, FIELDS, b'{"category":"x"}')
    assert line.startswith(b'{"crc":"') and b"\n" not in line
    assert list(orjson.loads(line)) == ["crc", "seq", *FIELDS, "output"]
    assert decode_record(line) == orjson.loads(line)


def test_an_output_of_several_lines_becomes_one() -> None:
    line = encode_record(1, FIELDS, b'{\n "a": [1,\n 2]\n}')
    assert b"\n" not in line and decode_record(line)["output"] == {"a": [1, 2]}


@settings(deadline=None)  # no timed tests
@given(json_values)
def test_what_goes_in_comes_out(value: Any) -> None:
    line = encode_record(1, FIELDS, encode(value))
    assert b"\n" not in line
    found = decode_record(line)["output"]
    assert found == value and repr(found) == repr(value)


def test_any_flipped_bit_is_noticed() -> None:
    line = encode_record(7, FIELDS, b'"text"')
    for at in range(len(line)):
        for bit in range(8):
            changed = bytearray(line)
            changed[at] ^= 1 << bit
            assert not check_record(bytes(changed))
            with pytest.raises(RecordError):
                decode_record(bytes(changed))


@pytest.mark.parametrize("line", [b"", b"{}", b'{"crc":"', b"\0" * 200])
def test_what_is_no_record_is_noticed(line: bytes) -> None:
    assert not check_record(line)


def test_an_edited_record_is_sealed_again() -> None:
    record = decode_record(encode_record(7, FIELDS, b'"before"'))
    line = seal_record({**record, "output": {"after": 1}})
    assert decode_record(line)["output"] == {"after": 1}
    assert decode_record(line)["seq"] == 7


def test_a_done_record_without_an_output_is_not_sealed() -> None:
    record = decode_record(encode_record(7, FIELDS))
    with pytest.raises(RecordError, match="output is missing"):
        seal_record(record)
    assert seal_record({**record, "kind": "skipped"})


@pytest.mark.parametrize(
    "before", [{}, {"carry": {"a": 1, "output": 2}}, {"carry": [{"a": 1, "output": {"output": 3}}]}]
)
@pytest.mark.parametrize("key", ["k", 'a,"output":b', '","output":{'])
def test_a_record_without_its_output_is_the_same_otherwise(before: dict[str, Any], key: str) -> None:
    line = encode_record(7, {"kind": "done", "key": key, "gen": 0, **before}, b'{"b":1,"output":[2]}')
    whole = decode_record(line)
    assert {name: value for name, value in decode_head(line).items() if name != "output"} == {
        name: value for name, value in whole.items() if name != "output"
    }
    with pytest.raises(RecordError):
        decode_head(line.replace(b"done", b"gone"))
