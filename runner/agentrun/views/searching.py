"""Whether an item shows a text that somebody looks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from agentrun.checkpoint.record import Question, Record
from agentrun.values.text import is_unicode

_ACROSS = re.compile(r"(?:(\w*):)?(?: (.*))?", re.DOTALL)
"""The end of an exception's name and the beginning of its message, which a record has apart."""


class WantedText:
    """A text to look for in what people see of an item; ASCII letters match in either case."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.encoded = text.encode("utf-8", "surrogatepass").lower()

    @property
    def needles(self) -> list[str]:
        """A record that shows the text has one of these in its JSON."""
        if not is_unicode(self._text):
            return []
        across = _ACROSS.fullmatch(self._text)
        part = max(across[1] or "", across[2] or "", key=len) if across is not None else ""
        return [self._text, part] if part else [self._text]

    def is_in(self, text: str) -> bool:
        return self.encoded in text.encode("utf-8", "surrogatepass").lower()

    def is_shown(self, record: Record) -> bool:
        """Whether the key, the output, the cause, the question or the warning has it, and not its bookkeeping."""
        return any(map(self.is_in, _texts(record)))


def _texts(record: Record) -> Iterator[str]:
    yield record.key
    if record.error is not None:
        yield record.error.cause
    yield record.warning
    if isinstance(record.question, Question):
        yield record.question.text
        yield from _leaves(record.question.details)
    yield from _leaves(record.value)


def _leaves(value: Any) -> Iterator[str]:
    """The names and the plain values in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    elif value is not None:
        yield orjson.dumps(value).decode()
