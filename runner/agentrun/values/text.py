"""Text: a value as a message quotes it, and text that UTF-8 can hold."""

from __future__ import annotations

import json
from typing import Any


def quoted(value: Any, *, limit: int = 80) -> str:
    """A value as a message quotes it: as JSON, `none` where there is none, and cut at `limit` characters."""
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
