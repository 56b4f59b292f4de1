"""Texts on their way to a model: cut where they are long, with a note that says so and how to see the rest."""

from __future__ import annotations

import json
from typing import Any

CUT_CHARACTERS = 4_000
"""A text is cut here, wherever it appears."""
BRIEF_CHARACTERS = 300
"""In lists of items, causes and questions are cut here: the item itself has more."""
PAGE_CHARACTERS = 40_000
"""A page of results or questions, or the list of an item's steps, ends once its texts are this long together."""


class Texts:
    """The texts of one item, each with a name. Those that were cut have a note."""

    def __init__(self, job: str, key: str) -> None:
        self._asked = f"job={_quoted(job)}, key={_quoted(key)}"
        self._key = key
        self.whole: dict[str, str] = {}
        """By name, uncut."""
        self.notes: list[str] = []
        self.length = 0
        """Of all that is shown."""

    def text(self, name: str, text: str) -> str:
        text = self.whole[name] = encodable(text)
        shown = text[:CUT_CHARACTERS]
        self.length += len(shown)
        if len(shown) < len(text):
            self.notes.append(
                f"{name} of {encodable(self._key)} is cut: the first {CUT_CHARACTERS:,} of {len(text):,} characters; "
                f"the rest: item({self._asked}, part={_quoted(name)}, start={CUT_CHARACTERS})"
            )
        return shown

    def value(self, name: str, value: Any) -> Any:
        """A JSON value; as JSON text, cut, if that is too long."""
        if isinstance(value, str):
            return self.text(name, value)
        written = json.dumps(value, ensure_ascii=False)
        if len(written) > CUT_CHARACTERS:
            return self.text(name, written)
        self.whole[name] = written
        self.length += len(written)
        return value


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: a path may be none."""
    return text.encode("utf-8", "backslashreplace").decode()


def brief(text: str) -> str:
    """The beginning of a text, for a list."""
    text = encodable(text)
    return text if len(text) <= BRIEF_CHARACTERS else text[: BRIEF_CHARACTERS - 1] + "…"


def _quoted(text: str) -> str:
    return json.dumps(encodable(text), ensure_ascii=False)
