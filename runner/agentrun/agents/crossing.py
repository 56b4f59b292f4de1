"""Values that cross to another process as JSON."""

from __future__ import annotations

from typing import Any

import msgspec


class Crossing(msgspec.Struct, frozen=True):
    """A value with a JSON form of the same fields. Whoever reads it ignores fields that it does not know."""

    def as_json(self) -> dict[str, Any]:
        form: dict[str, Any] = msgspec.to_builtins(self)
        return form
