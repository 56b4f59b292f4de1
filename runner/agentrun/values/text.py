"""Text: a value as a message quotes it, text that UTF-8 can hold, and text that is safe to show."""

from __future__ import annotations

import re
from typing import Any

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
_NEWLINES = re.compile(r"[ \t]*[\r\n\x0b\x0c\x85\u2028\u2029]+[ \t]*")
# C0 and C1, and what changes the direction or hides text: marks, embeddings, isolates, zero-width, the BOM, tags.
_CONTROLS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
HIDDEN = re.compile(f"[{_CONTROLS}]")
"""Characters that no line for people has."""


def quoted(value: Any, *, limit: int = 80) -> str:
    """A value as a message quotes it: as JSON, `none` where there is none, and cut at `limit` characters."""
    import json

    try:
        text = json.dumps(value, ensure_ascii=False) if value is not None else "none"
    except (TypeError, ValueError, RecursionError):
        try:
            text = str(value)
        except ValueError:  # Python does not write integers of many thousand digits
            text = f"a very large {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold it: text with a lone surrogate, such as a file name that is not UTF-8, has no encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(text: object, *, limit: int = 500) -> str:
    """One line that a terminal shows as it is: no escape sequences, controls or lone surrogates."""
    line = HIDDEN.sub("", _NEWLINES.sub(" ", _ESCAPES.sub("", str(text)))).replace("\t", " ")
    line = line.encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def clean_text(text: str) -> str:
    """Like `clean`, for text of several lines, such as a traceback."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return HIDDEN.sub("", text).encode("utf-8", "backslashreplace").decode()
