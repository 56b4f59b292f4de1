"""Values that cross to another process as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec


class Crossing(msgspec.Struct, frozen=True):
    """A value with a JSON form of the same fields."""

    def as_json(self) -> dict[str, Any]:
        form = msgspec.to_builtins(self)
        assert isinstance(form, dict)
        return form

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Unknown fields are ignored; msgspec.ValidationError (a ValueError) for missing ones and wrong types."""
        return msgspec.convert(given, cls)
