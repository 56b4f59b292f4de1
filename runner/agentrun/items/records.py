"""JSON records: read exactly, identified by a field or by their content."""

from __future__ import annotations

import json
from typing import Any

import orjson

from agentrun.errors import ItemsError
from agentrun.items.port import check_key, digest
from agentrun.values.text import quoted

# orjson silently reads integers of 2**64 and more, which have 20 digits, as floats. Not found by a regular expression:
# that takes longer than reading the line.
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19


def parse_json(line: bytes) -> Any:
    """The value of one line of JSON, with exact integers; ValueError or RecursionError if it is not JSON."""
    value = orjson.loads(line)  # also first: of the two it is the one that refuses NaN and lone surrogates
    return json.loads(line) if _LONG in line.translate(_DIGITS) else value


def record_digest(value: Any) -> bytes:
    """A digest that is the same for records that differ only in spacing and the order of fields."""
    try:
        return digest(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))
    except TypeError as error:
        # Nested too deeply for orjson means too deeply to be passed to an agent.
        if "ecursion" in str(error):
            raise RecursionError from None
        # An integer beyond 64 bits.
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return digest(text.encode())


def field_key(value: Any, field: str, where: str) -> str:
    """The key of a record by its `field`; ItemsError if it has none."""
    if not isinstance(value, dict):
        raise ItemsError(f"{where}: is not an object, so it has no field {quoted(field)}, which items.key names")
    if field not in value:
        raise ItemsError(f"{where}: has no field {quoted(field)}, which items.key names")
    found = value[field]
    if isinstance(found, str):
        return check_key(found, where)
    if isinstance(found, int) and not isinstance(found, bool):
        return check_key(str(found), where)
    raise ItemsError(f"{where}: the key {quoted(field)} is {quoted(found)}; a key is text or a whole number")
