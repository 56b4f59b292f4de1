"""A message from a person to a run: an answer, redo, edit or skip, as it lies in the inbox.

    {"version":1,"id":"9ae0daaf01c2b3d4","kind":"answer","run_id":…,"key":…,"gen":0,"by":"ada","at":"2026-…",
     "question":1,"answer":{"yes":true,"text":"","details":{}}}

Each names what it is about: key, generation, and question or record. A message that no longer applies is dropped.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Raw, Struct, structs

from agentrun.item import KEY_LIMIT_BYTES
from agentrun.values.json import NotJson, decode, encode

VERSION = 1
LIMIT_BYTES = 64 * 1024 * 1024
"""The most bytes of one message. It may hold a whole output."""
NAME_LIMIT, REASON_LIMIT = 1000, 100_000
ABSENT = Raw()
_RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9-]{0,99}$"

_Count = Annotated[int, Meta(ge=0)]
_Name = Annotated[str, Meta(max_length=NAME_LIMIT)]
_Text = Annotated[str, Meta(max_length=REASON_LIMIT)]


class MessageError(ValueError):
    """The text is not a message; the error says what is wrong with it."""


class Reply(Struct, kw_only=True):
    """What a person answers: yes or no, in words, with the details that they changed."""

    yes: bool
    text: _Text
    details: dict[str, Any]


class Message(Struct, kw_only=True, tag_field="kind", omit_defaults=True):
    """What every message says."""

    kind: ClassVar[str]
    version: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    id: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    run_id: Annotated[str, Meta(pattern=_RUN_ID)]
    series: Annotated[str, Meta(pattern=_RUN_ID)] | None = None
    """The id of the first run of its series; messages of older versions have none."""
    key: Annotated[str, Meta(max_length=KEY_LIMIT_BYTES)]
    gen: _Count
    by: _Name
    at: _Name


class AnswerMessage(Message, tag="answer"):
    """Answers the question with this number."""

    kind = "answer"
    question: Annotated[int, Meta(ge=1)]
    answer: Reply


class RedoMessage(Message, tag="redo"):
    """Starts the item over: with the next launch, or at once (`now`); the steps before `keep_before` are kept."""

    kind = "redo"
    keep_before: _Name | None
    now: bool


class EditMessage(Message, tag="edit"):
    """Corrects the output, or the carry, of the record with this seq; both are JSON text."""

    kind = "edit"
    seq: _Count
    output: Raw = ABSENT
    carry: Raw = ABSENT

    def __post_init__(self) -> None:
        if (self.output is ABSENT) == (self.carry is ABSENT):
            raise ValueError("an edit has an output or a carry, one of them")


class SkipMessage(Message, tag="skip"):
    """Settles the item without a result."""

    kind = "skip"
    reason: _Text


AnyMessage = AnswerMessage | RedoMessage | EditMessage | SkipMessage
_decode = msgspec.json.Decoder(AnyMessage).decode


def encode_message(message: AnyMessage) -> bytes:
    """The message as JSON text. What `decode_message` would refuse raises MessageError here."""
    try:
        text = msgspec.json.encode(_as_json(message))
    except NotJson as error:
        raise MessageError(str(error)) from None
    except UnicodeEncodeError:
        raise MessageError("it has text with a lone surrogate, which JSON cannot hold") from None
    if len(text) > LIMIT_BYTES:
        raise MessageError(f"it has {len(text):,} bytes; {LIMIT_BYTES:,} are allowed")
    decode_message(text)
    return text


def _as_json(message: AnyMessage) -> AnyMessage:
    """The message with details that JSON can hold as they are: NaN, say, would be written as null."""
    if not isinstance(message, AnswerMessage):
        return message
    details = decode(encode(message.answer.details, name="details"))
    return structs.replace(message, answer=structs.replace(message.answer, details=details))


def decode_message(text: bytes) -> AnyMessage:
    try:
        message: AnyMessage = _decode(text)
        return message
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        place = path.strip("`").removeprefix("$.")
        raise MessageError(f"{place}: {what[:1].lower()}{what[1:]}" if place else what) from None
    except (msgspec.DecodeError, ValueError):
        raise MessageError("it is empty" if not text else "it is not JSON") from None
    except RecursionError:
        raise MessageError("it is nested too deep") from None


def json_text(value: Any, *, name: str) -> Raw:
    """A value for a message; MessageError where JSON cannot hold it."""
    try:
        return Raw(encode(value, name=name))
    except NotJson as error:
        raise MessageError(str(error)) from None


def is_run_id(value: object) -> bool:
    """Whether the value can be a run's id, which becomes part of file names."""
    return isinstance(value, str) and re.match(_RUN_ID, value) is not None
