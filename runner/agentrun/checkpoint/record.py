"""A record: what happened to one item, as one line of the journal.

    {"crc":"9ae0daaf","seq":7,"kind":"done","key":"documents/0001.txt","gen":0,…,"output":{…}}

The CRC covers the line from behind its own field to before the newline. `outputs` in state.json holds the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from zlib import crc32

import orjson

Kind = Literal["done", "failed", "skipped", "waiting", "step", "answer", "redo"]
KINDS: tuple[Kind, ...] = ("done", "failed", "skipped", "waiting", "step", "answer", "redo")
BESIDE = frozenset({"step", "answer", "redo"})
"""Kinds that do not say how an item stands, but what it remembers, was told, or that it begins anew."""
_PREFIX = b'{"crc":"'
_BODY_AT = len(_PREFIX) + 8 + 2
_NUMBERS = (
    ("seq", 1, 2**63),
    ("gen", 0, 2**31),
    ("index", 0, 2**32 - 2),
    ("launch", 0, 2**31),
    ("stamp", 0, 2**64 - 1),
    ("failed_launches", 0, 2**31),
    ("after", 0, 2**63),
)


class RecordError(ValueError):
    pass


def encode_record(seq: int, fields: Mapping[str, Any], output: bytes | None = None) -> bytes:
    """A line without its newline. `output` is JSON text, and stands last."""
    body = orjson.dumps({"seq": seq, **fields})[1:]
    if output is not None:
        if b"\n" in output:
            output = orjson.dumps(orjson.loads(output))
        body = b'%b,"output":%b}' % (body[:-1], output)
    return b'%b%08x",%b' % (_PREFIX, crc32(body), body)


def check_record(line: bytes) -> bool:
    return line[:8] == _PREFIX and line[8:_BODY_AT] == b'%08x",' % crc32(line[_BODY_AT:])


def decode_record(line: bytes) -> dict[str, Any]:
    if not check_record(line):
        raise RecordError("the checksum does not match")
    record: dict[str, Any] = orjson.loads(line)
    return record


def decode_head(line: bytes) -> dict[str, Any]:
    """A record without its output, which may be long."""
    # As check_record, without the call: this is done for each record of a run when it is resumed.
    if line[:8] != _PREFIX or line[8:_BODY_AT] != b'%08x",' % crc32(line[_BODY_AT:]):
        raise RecordError("the checksum does not match")
    at = line.find(b',"output":')
    head: dict[str, Any]
    if at > 0:
        try:
            head = orjson.loads(line[:at] + b"}")
            return head
        except orjson.JSONDecodeError:
            # It stood inside a carry, say: so cut, that lacks a brace.
            pass
    head = orjson.loads(line)
    return head


def result_of(line: bytes) -> tuple[bytes, bytes] | None:
    """The key and the output of a done record, both as JSON text, without reading the rest. None where that won't do.

    A quote inside a string is written with a backslash, so that the first `","gen":` ends the key. The output is last;
    what stands before it is the runner's own, but for a carry.
    """
    find = line.find
    begin = find(b',"key":"', 0, 80) + 7
    end = find(b'","gen":', begin) + 1
    at = find(b',"output":', end)
    if begin < 7 or end < 1 or at < 0 or find(b',"carry":', end, at) >= 0 or find(b',"files":', end, at) >= 0:
        return None
    return line[begin:end], line[at + 10 : -1]


def seal_record(record: Mapping[str, Any]) -> bytes:
    """A record edited by hand, checked for its form and given a new checksum."""
    fields = {name: value for name, value in record.items() if name not in ("crc", "seq", "output")}
    for name, least, most in _NUMBERS:
        value = record.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise RecordError(f"{name} is {value!r} in the record of {record.get('key')!r}; leave it as it was")
    for name in ("seq", "gen", "index", "launch", "key", "kind", "hash", "agent"):
        if name not in record:
            raise RecordError(f"{name} is missing in the record of {record.get('key')!r}; put it back")
    for name in ("key", "kind", "hash", "agent"):
        if not isinstance(record[name], str):
            raise RecordError(f"{name} is {record[name]!r}; it is text")
    if record["kind"] not in KINDS:
        raise RecordError(f"kind is {record['kind']!r}; it is one of {', '.join(KINDS)}")
    if not re.fullmatch(r"[0-9a-f]{16}", record["hash"]):
        raise RecordError(f"hash is {record['hash']!r}; leave it as it was")
    if record["kind"] in ("done", "step") and "output" not in record:
        raise RecordError(f"output is missing in the record of {record['key']!r}, which is done; put one there")
    _check_beside(record)
    output = orjson.dumps(record["output"]) if "output" in record else None
    # In the order in which `result_of` expects them, whatever an editor has made of it.
    first = {name: record[name] for name in ("kind", "key", "gen")}
    return encode_record(record["seq"], first | fields, output)


def _check_beside(record: Mapping[str, Any]) -> None:
    """What recovery relies on in records of steps and of people."""
    kind, question = record["kind"], record.get("question")
    good = (
        isinstance(record.get("name"), str) and isinstance(record.get("n"), int) if kind == "step"
        else isinstance(question, dict) and isinstance(question.get("n"), int) if kind == "waiting" and question
        else isinstance(question, int) and isinstance(record.get("answer"), dict) if kind == "answer"
        else True
    )  # fmt: skip
    if not good:
        raise RecordError(f"the record of {record['key']!r} is no longer a whole {kind}; leave it as it was")


def highest_seq(lines: Iterable[bytes]) -> int:
    """Of records whose checksums are known to be right."""
    return max((int(orjson.loads(line)["seq"]) for line in lines), default=0)
