"""Values as JSON: a value is written so that it reads back the same, or refused with the place of the fault."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import orjson

from agentrun.values.text import is_unicode

DEPTH_LIMIT = 200
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1

_SPACES = (
    rb"[ ]|\\[tnrf]|\\u000[bB]|\\u001[c-fC-F]|\xc2[\x85\xa0]|\xe1\x9a\x80"
    rb"|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"
)
is_empty: Callable[[Any], object] = re.compile(rb'null|\{\}|\[\]|"(?:' + _SPACES + rb')*"').fullmatch
"""Whether JSON text, as `encode` writes it, is null, {}, [], or text that is blank. One call in C: every output is
looked at."""


def parse_value(text: str) -> Any:
    """A value that a person wrote as JSON; ValueError if it is not JSON, or if a record could not keep it."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON; write null or text")

    try:
        value = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    if (fault := find_fault(value, "it")) is not None:
        raise ValueError(str(fault))
    return value


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1, 1.0 and true differ."""
    return encode(one) == encode(other)


class NotJson(ValueError):
    """`path` is the place inside the value, such as `output.scores[3]`."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} {what}")
        self.path = path
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return (NotJson, (self.path, self.what))


def encode(value: Any, *, name: str = "output") -> bytes:
    """JSON that `decode` turns back into the same value; anything else raises NotJson."""
    try:
        text = orjson.dumps(value, default=_default)
    except (TypeError, ValueError, RecursionError) as error:
        raise find_fault(value, name) or NotJson(name, f"cannot be written as JSON: {error}") from None
    # orjson silently writes NaN and Infinity as null.
    if b"null" in text and (fault := find_fault(value, name)) is not None:
        raise fault
    # JSON nested this deep can be written, but perhaps not read back.
    if text.count(b"[") + text.count(b"{") > DEPTH_LIMIT and (fault := find_fault(value, name)) is not None:
        raise fault
    return text


def decode(text: bytes) -> Any:
    return orjson.loads(text)


def _default(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic models, without importing pydantic
    if callable(dump):
        return dump(mode="json")
    raise TypeError(type(value).__name__)


def find_fault(value: Any, name: str) -> NotJson | None:
    """The first thing in `value` that JSON cannot hold, searched without recursion."""
    todo: list[tuple[Any, str, int]] = [(value, name, 0)]
    while todo:
        part, path, depth = todo.pop()
        if depth > DEPTH_LIMIT:
            return NotJson(name, f"is nested more than {DEPTH_LIMIT} levels deep; flatten it")
        if part is None or isinstance(part, bool):
            continue
        if isinstance(part, str):
            if not is_unicode(part):
                return NotJson(path, "holds a lone surrogate; encode it with errors='replace' first")
        elif isinstance(part, int):
            if not _INT_MIN <= part <= _INT_MAX:
                return NotJson(path, "is an integer beyond 64 bits; return it as text")
        elif isinstance(part, float):
            if not math.isfinite(part):
                return NotJson(path, f"is {part}, which JSON cannot hold; return None or text")
        elif isinstance(part, dict):
            for key, inner in reversed(part.items()):
                if not isinstance(key, str):
                    return NotJson(path, f"has the key {key!r}; JSON keys are text")
                if not is_unicode(key):
                    return NotJson(path, "has a key with a lone surrogate")
                todo.append((inner, f"{path}.{key}", depth + 1))
        elif isinstance(part, list | tuple):
            todo.extend((inner, f"{path}[{n}]", depth + 1) for n, inner in reversed(list(enumerate(part))))
        else:
            try:
                orjson.dumps(part, default=_default)
            except (TypeError, ValueError, RecursionError):
                return NotJson(path, f"is a {type(part).__name__}, which JSON cannot hold")
            # It can be written, but a NaN inside would become null.
            todo.append((_unfolded(part), path, depth + 1))
    return None


def _unfolded(value: Any) -> Any:
    """What is written for an object: the fields of a dataclass or a model, the value of an enum."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    return _default(value) if callable(getattr(value, "model_dump", None)) else None
