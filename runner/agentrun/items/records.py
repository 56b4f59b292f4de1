"""JSON records: read exactly, known by a field or by what they say."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import orjson

from agentrun.errors import ItemsError
from agentrun.items.port import CONTENT_BYTES, check_key, digest
from agentrun.values.text import quoted

_loads, _dumps, _SORTED = orjson.loads, orjson.dumps, orjson.OPT_SORT_KEYS
_new_sha256 = sha256().copy  # two thirds of the time of making one
# orjson reads an integer of 2**64 and more as a float, without a word; that takes 20 digits in a row. Not by
# a regular expression: that takes longer than reading the line.
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19


def parse_json(line: bytes) -> Any:
    """The value of one line of JSON, its integers exact; ValueError or RecursionError where it has none."""
    value = orjson.loads(line)  # also first: of the two it is the one that refuses NaN and lone surrogates
    return json.loads(line) if _LONG in line.translate(_DIGITS) else value


def record_digest(value: Any) -> bytes:
    """The same for records that differ only in spacing and the order of fields."""
    try:
        return sha256(_dumps(value, None, _SORTED)).digest()[:CONTENT_BYTES]
    except TypeError as error:
        # What orjson cannot write nested this deep cannot be handed to an agent either.
        if "ecursion" in str(error):
            raise RecursionError from None
        # An integer beyond 64 bits.
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return digest(text.encode())


def parse_and_digest(line: bytes) -> tuple[Any, bytes]:
    """Both in one, for the common case: this is done for each line of a long file, at each launch."""
    value = _loads(line)
    if _LONG in line.translate(_DIGITS):
        value = json.loads(line)
        return value, record_digest(value)
    hashed = _new_sha256()
    try:
        hashed.update(_dumps(value, None, _SORTED))
    except TypeError:
        return value, record_digest(value)
    return value, hashed.digest()[:CONTENT_BYTES]


def field_key(value: Any, field: str, where: str) -> str:
    """The key that `field` gives a record; ItemsError where it gives none."""
    if not isinstance(value, dict):
        raise ItemsError(f"{where}: is not an object, so it has no field {quoted(field)} to be its key")
    if field not in value:
        raise ItemsError(f"{where}: has no field {quoted(field)}, which items.key says is the item's key")
    found = value[field]
    if isinstance(found, str):
        return check_key(found, where)
    if isinstance(found, int) and not isinstance(found, bool):
        return check_key(str(found), where)
    raise ItemsError(f"{where}: the key {quoted(field)} is {quoted(found)}; a key is text or a whole number")
