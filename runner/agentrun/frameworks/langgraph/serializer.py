"""How the values of a graph's state become bytes: by LangGraph's own serializer."""

from __future__ import annotations

from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

TypeName = tuple[str, ...]
"""Module and name."""


class JournalSerializer:
    """Restores all types that the values name, without LangGraph's warning about each.

    A journal is as trusted as the agent's code: whoever can write the one can write the other. By default LangGraph
    restores every type and warns, and will restore known ones alone; a state would come back with plain dictionaries.
    """

    def __init__(self) -> None:
        self._allowed: set[TypeName] = set()
        self._inner = JsonPlusSerializer(allowed_msgpack_modules=())

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return self._inner.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, content = data
        if kind == "msgpack" and (new := types_in(content) - self._allowed):
            self._allowed |= new
            self._inner = self._inner.with_msgpack_allowlist(new)
        return self._inner.loads_typed(data)


def types_in(content: bytes) -> set[TypeName]:
    """The types that a value names: each of its extensions begins with a module and a name."""
    found: set[TypeName] = set()

    def look(code: int, data: bytes) -> None:
        try:
            parts = ormsgpack.unpackb(data, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
        except ValueError:
            return
        if isinstance(parts, list) and len(parts) > 2 and isinstance(parts[0], str) and isinstance(parts[1], str):
            found.add((parts[0], parts[1]))

    ormsgpack.unpackb(content, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
    return found
