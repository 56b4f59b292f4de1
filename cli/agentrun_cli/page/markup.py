"""HTML: literal templates, filled with values that are escaped unless they are HTML already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import LiteralString
from urllib.parse import quote, urlencode

from agentrun.values.text import clean_text


class Html(str):
    """Text that is markup. Made by `h`, `e` and `join` alone."""

    __slots__ = ()


NOTHING = Html("")


def e(value: object) -> Html:
    """Any value as text: never markup, and without control codes."""
    return value if isinstance(value, Html) else Html(escape(clean_text(str(value))))


def h(template: LiteralString, /, **values: object) -> Html:
    """The template with its `{names}` filled; what is not HTML is escaped."""
    return Html(template.format_map({name: e(value) for name, value in values.items()}))


def join(parts: Iterable[Html], between: LiteralString = "") -> Html:
    return Html(between.join(parts))


def url(*parts: object, **query: object) -> str:
    """A path on this page; parts and values may be any text, and values that are empty are left out."""
    path = "/" + "/".join(quote(str(part), safe="", errors="replace") for part in parts)
    asked = {name: value for name, value in query.items() if value not in ("", None)}
    return path + (f"?{urlencode(asked, errors='replace')}" if asked else "")


def cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"
