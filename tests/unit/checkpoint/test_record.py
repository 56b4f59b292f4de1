from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from agentrun.agents.failure import Failure
from agentrun.agents.messages import Answer
from agentrun.checkpoint.record import (
    Edited,
    PublishedFile,
    Question,
    Record,
    RecordError,
    Try,
    check_record,
    decode_record,
    encode_record,
    seal_record,
)
from agentrun.money.usage import Usage
from agentrun.values.json import encode
from unit.records import make_record

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
EVERYTHING: dict[str, Any] = {
    "at": 1.5,
    "seconds": 0.25,
    "stamp": 2**64 - 1,
    "tries": [Try(launch=1, number=2, at=1.0, seconds=0.5, usage=Usage(cost=0.5), cause="no", bounded=True)],
    "usage": Usage(cost=0.5, input_tokens=3),
    "warning": "its steps differ",
    "error": Failure("exception", "no", types=("builtins.ValueError",), status=404),
    "failed_launches": 2,
    "set_aside": True,
    "by": "ada",
    "id": "0" * 16,
    "edited": Edited("ada", "2026"),
    "after": 6,
    "as_": 5,
    "carry": {"output": [1]},
    "files": [PublishedFile("a", 1, "x")],
}


def loaded(line: bytes) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(line)
    return found


def test_a_record_is_one_line_with_a_checksum_and_the_output_last() -> None:
    line = encode_record(make_record(seq=7, output={"category": "x"}))
    assert line.startswith(b'{"crc":"') and b"\n" not in line
    assert list(loaded(line)) == ["crc", "seq", "kind", "key", "gen", "index", "hash", "agent", "launch", "output"]
    assert loaded(line)["output"] == {"category": "x"}


def test_what_is_not_said_takes_no_room() -> None:
    assert encode_record(make_record(seq=7, **EVERYTHING)).count(b":") > encode_record(make_record(seq=7)).count(b":")
    assert b"tries" not in encode_record(make_record(seq=7)) and b"null" not in encode_record(make_record(seq=7))


@pytest.mark.parametrize(
    "record",
    [
        make_record(seq=7, output={"z": 1}, **EVERYTHING),
        make_record("w", "waiting", seq=7, question=Question(n=2, text="Send?", details={"draft": "x"}, at="2026")),
        make_record("w", "answer", seq=7, question=2, asked="Send?", answer=Answer(yes=True, details={"a": 1})),
        make_record("s", "step", seq=7, name="search", n=1, no=3, output=None),
        make_record("é\u2028~2", "redo", seq=7, gen=4),
    ],
    ids=["done", "waiting", "answer", "step", "redo"],
)
def test_every_kind_of_record_comes_back_as_it_was(record: Record) -> None:
    assert decode_record(encode_record(record)) == record
    assert decode_record(seal_record(loaded(encode_record(record)))) == record


def test_null_is_an_output_and_nothing_is_none() -> None:
    empty, none = decode_record(encode_record(make_record(output=None))), decode_record(encode_record(make_record()))
    assert (empty.has_output, empty.value, none.has_output, none.value) == (True, None, False, None)


def test_fields_of_a_newer_version_are_passed_over() -> None:
    line = encode_record(make_record(seq=7, output=1))
    newer = seal_record({**loaded(line), "colour": "green"})
    assert decode_record(newer) == decode_record(line)


def test_an_output_of_several_lines_becomes_one() -> None:
    record = make_record()
    record.output = Raw(b'{\n "a": [1,\n 2]\n}')
    line = encode_record(record)
    assert b"\n" not in line and decode_record(line).value == {"a": [1, 2]}


@settings(deadline=None)  # no timed tests
@given(json_values)
def test_what_goes_in_comes_out(value: Any) -> None:
    record = make_record()
    record.output = Raw(encode(value))
    line = encode_record(record)
    assert b"\n" not in line
    found = decode_record(line).value
    assert found == value and repr(found) == repr(value)


TRICKY = ['","gen":', ',"output":', "\\", '\\","gen":', '"', '{"gen":1}', ',"carry":', "\u2028", "\0", "\x7f"]


@settings(deadline=None)  # no timed tests
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.sampled_from(TRICKY),
    json_values | st.sampled_from(TRICKY),
    json_values,
)
def test_keys_outputs_and_carries_never_run_into_each_other(key: str, output: Any, carry: Any) -> None:
    record = make_record(key, output={"gen": 1, "output": output}, carry=carry, warning=key)
    found = decode_record(encode_record(record))
    assert (found.key, found.value["output"], found.carry, found.warning) == (key, output, carry, key)


def test_any_flipped_bit_is_noticed() -> None:
    line = encode_record(make_record(seq=7, output="text"))
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
    values = loaded(encode_record(make_record(seq=7, output="before", **EVERYTHING)))
    found = decode_record(seal_record(dict(reversed({**values, "output": {"after": [1, 2.5]}}.items()))))
    assert found == make_record(seq=7, output={"after": [1, 2.5]}, **EVERYTHING)


def test_a_done_record_without_an_output_is_not_sealed() -> None:
    values = loaded(encode_record(make_record(seq=7)))
    with pytest.raises(RecordError, match="output is missing in the record of 'a'"):
        seal_record(values)
    assert seal_record({**values, "kind": "skipped"})


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 0},
        {"seq": -1},
        {"gen": -1},
        {"gen": 2**31 + 1},
        {"index": 2**32 - 1},
        {"index": "0"},
        {"stamp": -1},
        {"hash": "zz"},
        {"hash": "0" * 15 + "G"},
        {"kind": "gone"},
        {"key": 5},
        {"agent": None},
        {"launch": 0.5},
        {"kind": "step"},
        {"kind": "waiting", "question": 1},
        {"kind": "answer"},
        {"kind": "answer", "question": 1},
        {"tries": [{}]},
        {"usage": []},
    ],
    ids=repr,
)
def test_an_edit_that_recovery_could_not_rely_on_is_refused(change: dict[str, Any]) -> None:
    values = loaded(encode_record(make_record(seq=7, output=1)))
    assert seal_record(values)
    with pytest.raises(RecordError):
        seal_record({**values, **change})


@pytest.mark.parametrize("name", ["kind", "key", "gen", "index", "hash", "agent", "launch"])
def test_a_record_that_lost_a_field_is_refused(name: str) -> None:
    values = loaded(encode_record(make_record(seq=7, output=1)))
    del values[name]
    with pytest.raises(RecordError, match=f"`{name}`"):
        seal_record(values)
