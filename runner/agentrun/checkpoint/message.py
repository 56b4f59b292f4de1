"""A message of a person to a run: an answer, redo, edit or skip, as it lies in the inbox.

    {"version":1,"id":"9ae0daaf01c2b3d4","kind":"answer","run_id":…,"key":…,"gen":0,"by":"ada","at":"2026-…",
     "question":1,"answer":{"yes":true,"text":"","details":{}}}

Each names what it is about: key, generation, and question or record. What no longer applies is not taken in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from agentrun.item import KEY_LIMIT_BYTES
from agentrun.values import json as jsontext
from agentrun.values.text import quoted

Kind = Literal["answer", "redo", "edit", "skip"]
KINDS: tuple[Kind, ...] = ("answer", "redo", "edit", "skip")
VERSION = 1
LIMIT_BYTES = 64 * 1024 * 1024
"""Of one message. It may hold a whole output."""
NAME_LIMIT, REASON_LIMIT = 1000, 100_000
_ID = re.compile(r"[0-9a-f]{16}")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")


class MessageError(ValueError):
    """It is not a message; the text says what is wrong with it."""


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Its JSON text. What `decode_message` would refuse raises here."""
    check_message(message)
    try:
        text = jsontext.encode(dict(message), name="message")
    except jsontext.NotJson as error:
        raise MessageError(str(error)) from None
    if len(text) > LIMIT_BYTES:
        raise MessageError(f"it has {len(text):,} bytes, and may have {LIMIT_BYTES:,}")
    return text


def decode_message(text: bytes) -> dict[str, Any]:
    try:
        message = jsontext.decode(text)
    except ValueError:
        raise MessageError("it is empty" if not text else "it is not JSON") from None
    check_message(message)
    return dict(message)


def check_message(message: Any) -> None:
    """Its form: an object of a known kind, with the fields of that kind. Raises MessageError."""
    if not isinstance(message, Mapping):
        raise MessageError(f"it holds {type(message).__name__}, not an object")
    if message.get("version") != VERSION:
        raise MessageError(f"version is {quoted(message.get('version'))}; this agentrun reads {VERSION}")
    if message.get("kind") not in KINDS:
        raise MessageError(f"kind is {quoted(message.get('kind'))}; it is one of {', '.join(KINDS)}")
    for name, (good, what) in (_COMMON | _OF_KIND[message["kind"]]).items():
        if name not in message:
            raise MessageError(f"has no {name}")
        if not good(message[name]):
            raise MessageError(f"{name} is {quoted(message[name])}; it is {what}")
    if message["kind"] == "edit" and ("output" in message) == ("carry" in message):
        raise MessageError("an edit has an output or a carry, one of them")


def _is_text(value: Any, limit: int) -> bool:
    return isinstance(value, str) and len(value) <= limit


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_answer(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("yes"), bool)
        and _is_text(value.get("text"), REASON_LIMIT)
        and isinstance(value.get("details"), Mapping)
    )


def is_run_id(value: Any) -> bool:
    """It becomes part of file names."""
    return isinstance(value, str) and _RUN_ID.fullmatch(value) is not None


_Rule = tuple[Callable[[Any], bool], str]
_COUNT: _Rule = (_is_count, "a whole number, 0 or more")
_COMMON: dict[str, _Rule] = {
    "id": (lambda value: isinstance(value, str) and _ID.fullmatch(value) is not None, "16 hex digits"),
    "run_id": (is_run_id, "letters, digits and -"),
    "key": (lambda value: _is_text(value, KEY_LIMIT_BYTES), f"the item's key, up to {KEY_LIMIT_BYTES} bytes"),
    "gen": _COUNT,
    "by": (lambda value: _is_text(value, NAME_LIMIT), "a name"),
    "at": (lambda value: _is_text(value, NAME_LIMIT), "a time as text"),
}
_OF_KIND: dict[str, dict[str, _Rule]] = {
    "answer": {
        "question": (lambda value: _is_count(value) and value > 0, "the number of the question, from 1"),
        "answer": (_is_answer, "an object with yes (true or false), text, and details (an object)"),
    },
    "redo": {
        "keep_before": (lambda value: value is None or _is_text(value, NAME_LIMIT), "null or the name of a step"),
        "now": (lambda value: isinstance(value, bool), "true or false"),
    },
    "edit": {"seq": _COUNT},
    "skip": {"reason": (lambda value: _is_text(value, REASON_LIMIT), "text")},
}
