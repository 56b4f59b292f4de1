"""Placeholders in text: `{name}` stands for a value; `{{` and `}}` are braces.

Known names are replaced in one pass: a placeholder inside a value is never replaced.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from agentrun.item import Item

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAMES = {"files": ("path", "text", "key", "index"), "lines": ("text", "key", "index")}
"""The placeholders of items of that kind; those of other kinds depend on the item's fields."""
_ARGV_ONLY = ("dir", "out")
# Linux allows 128 KiB for one argument, including the NUL at its end.
ARGUMENT_LIMIT_BYTES = 128 * 1024 - 1


def fill(template: str, values: Mapping[str, str], *, keep: Collection[str] = ()) -> str:
    """`template` with its placeholders replaced.

    With `keep`, these names stay and the result is a template again. Anything else in single braces raises
    ValueError with the rest of a sentence: `has the placeholder {custmer}; …`.
    """
    known = [*values, *keep]

    def value_of(name: str) -> str:
        if name in values:
            return escape(values[name]) if keep else values[name]
        if name in keep:
            return f"{{{name}}}"
        raise ValueError(_unknown(name, known))

    return _replace(template, value_of, braces=("{{", "}}") if keep else ("{", "}"))


def escape(text: str) -> str:
    """A template that `fill` turns into `text`."""
    return text.replace("{", "{{").replace("}", "}}")


def names_in(template: str) -> list[str]:
    """The placeholders of a template, in order; ValueError if it is malformed."""
    names: list[str] = []

    def note(name: str) -> str:
        names.append(name)
        return ""

    _replace(template, note, braces=("{", "}"))
    return names


def check_argv(command: Sequence[str], *, kind: str | None = None) -> None:
    """Refuse early what `argv_for` would refuse for every item. `kind`: the kind of items, if known."""
    for element in command:
        for name in names_in(element):
            if (known := _NAMES.get(kind or "")) and name not in ("", *known, *_ARGV_ONLY):
                raise ValueError(_unknown(name, [*known, *_ARGV_ONLY]))


def argv_for(command: Sequence[str], item: Item, *, dir: str = "", out: str = "") -> list[str]:
    """The argv of one item's program; `{dir}` and `{out}` are the folders it is given.

    ValueError says what cannot be passed, and what to do instead.
    """
    folders = {"dir": dir, "out": out}

    def value_of(name: str) -> str:
        # A record's own field of that name takes precedence.
        if name in folders and not (isinstance(item.data, dict) and name in item.data):
            return folders[name]
        return _item_value(item, name)

    argv = []
    for element in command:
        text = _replace(element, value_of, braces=("{", "}"))
        if "\0" in text:
            raise ValueError(f"the argument {element} has a NUL byte in it, which arguments cannot; {_STDIN}")
        try:
            size = len(os.fsencode(text))
        except UnicodeEncodeError:
            raise ValueError(f"the argument {element} has a lone surrogate in it; {_STDIN}") from None
        if size > ARGUMENT_LIMIT_BYTES:
            raise ValueError(f"the argument {element} is {size} bytes long, over 128 KiB; {_STDIN}")
        argv.append(text)
    return argv


def check_prompt(template: str, *, kind: str, params: Collection[str], attaches: bool = True) -> None:
    """Refuse early what `prompt_for` would refuse for every item; `params` are the names of the parameters.

    ValueError has the rest of a sentence.
    """
    known = _NAMES.get(kind)
    if known is not None and kind == "files" and attaches:
        known = ("file", *known)
    for name in names_in(template):
        if name == "":
            raise ValueError("has the placeholder {}; write {text} for the item's text (for braces write {{ and }})")
        if name == "file" and kind == "files" and not attaches:
            raise ValueError("has the placeholder {file}; only the prompt can have it")
        if known is not None and name not in known and name not in params:
            raise ValueError(_unknown(name, [*known, *params]))


def prompt_for(template: str, item: Item, params: Mapping[str, Any]) -> list[str]:
    """The text of one item's prompt, in parts: the item's file, `{file}`, goes between each two of them.

    `{text}`, `{key}`, `{index}` and `{path}` are the item's, then come the parameters, then a record's fields, so that
    a parameter means the same for every item. ValueError says what the item lacks.
    """

    def value_of(name: str) -> str:
        if name in params and name not in _NAMES["files"]:
            return _as_text(params[name])
        return _item_value(item, name)

    parts, start = [], 0
    for match in _PART.finditer(template) if item.path is not None else ():
        if match[1] == "file":
            parts.append(template[start : match.start()])
            start = match.end()
    return [_replace(part, value_of, braces=("{", "}")) for part in [*parts, template[start:]]]


_STDIN = "read it from standard input, where the item is passed as JSON"


def _item_value(item: Item, name: str) -> str:
    data = item.data
    if name == "key":
        return item.key
    if name == "index":
        return str(item.index)
    if name == "":
        if item.path is not None:
            return str(item.path)
        if item.line is not None:
            return item.line
        return data if isinstance(data, str) else item.key
    # A record's own field called "text" or "path" takes precedence for {text} or {path}.
    if isinstance(data, dict) and name in data:
        return _as_text(data[name])
    if name == "path" and item.path is not None:
        return str(item.path)
    if name == "text":
        return item.text
    fields = [field for field in data if isinstance(field, str)] if isinstance(data, dict) else []
    known: list[str] = ["text", "key", "index", *fields]
    raise ValueError(_unknown(name, [*known, "path"] if item.path is not None else known))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _replace(template: str, value_of: Callable[[str], str], *, braces: tuple[str, str]) -> str:
    def part(match: re.Match[str]) -> str:
        found: Any = match[0]
        if found == "{{":
            return braces[0]
        if found == "}}":
            return braces[1]
        if match[1] is None:
            raise ValueError(f"has a single {found}; write {found * 2} for a brace")
        return value_of(match[1])

    return _PART.sub(part, template)


def _unknown(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        does = f"did you mean {{{near[0]}}}?"
    elif known:
        does = "known here: " + ", ".join(f"{{{one}}}" for one in list(dict.fromkeys(known))[:8])
    else:
        does = "there are none here"
    return f"has the placeholder {{{name}}}; {does} (for braces write {{{{ and }}}})"
