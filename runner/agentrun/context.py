"""The context: what an agent that asks for `ctx` is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from agentrun.jsontext import NotJson, decode, encode

if TYPE_CHECKING:
    from agentrun.executors.port import Attempt
    from agentrun.item import Item

CARRY_LIMIT_BYTES = 64 * 1024
NAMESPACE = "6f0a3c5e-2b8d-5d0e-9a53-5f8f6b1c7d24"


def idempotency_key(run_id: str, key: str, generation: int, name: str = "") -> str:
    """The same UUID in every attempt and launch of a run; another for another item, generation or name."""
    from uuid import UUID, uuid5

    # A JSON array, so that no two lists of parts read the same.
    return str(uuid5(UUID(NAMESPACE), json.dumps([run_id, key, generation, name])))


class Link(Protocol):
    """The attempt's end of the channel, as the agent's kind can use it."""

    def log(self, text: str) -> None:
        """Into the attempt's log, in order with what it prints."""

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message whose answer does not matter."""

    def call(self, message: dict[str, Any]) -> Any:
        """The answer; for an agent on the event loop, an awaitable of it."""


class Context:
    """One attempt, seen from inside. After the attempt it refuses to be used."""

    def __init__(self, attempt: Attempt, link: Link, *, carries: bool) -> None:
        self._attempt = attempt
        self._link: Link | None = link
        self._carries = carries
        self._carry_before = encode(attempt.carry, name="ctx.carry") if carries else b""
        self._carry: Any = None
        self._carry_used = False
        self.params: Mapping[str, Any] = MappingProxyType(dict(attempt.params))

    @property
    def item(self) -> Item:
        return self._attempt.item

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._attempt.number

    @property
    def run_id(self) -> str:
        return self._attempt.run_id

    def key(self, name: str = "") -> str:
        """An idempotency key for a side effect of this item: the same in every attempt and launch."""
        return idempotency_key(self.run_id, self.item.key, self._attempt.generation, name)

    def log(self, *values: object) -> None:
        """A line in the item's log."""
        self._open_link().log(" ".join(map(str, values)) + "\n")

    def progress(self, text: str) -> None:
        """What this item is at, for people who watch."""
        self._open_link().tell({"type": "progress", "text": str(text)})

    @property
    def carry(self) -> Any:
        """What the items before left; changed in place or set, it goes on with this item's checkpoint."""
        self._check_carries()
        if not self._carry_used:
            # A copy: what a failed attempt did to it must not be seen by the next one.
            self._carry, self._carry_used = decode(self._carry_before), True
        return self._carry

    @carry.setter
    def carry(self, value: Any) -> None:
        self._check_carries()
        self._carry, self._carry_used = value, True

    def carry_message(self) -> dict[str, Any] | None:
        """What to send before a settled attempt's outcome, if the carry was changed. Raises NotJson."""
        if not self._carry_used:
            return None
        text = encode(self._carry, name="ctx.carry")
        if len(text) > CARRY_LIMIT_BYTES:
            raise NotJson("ctx.carry", f"is {len(text):,} bytes of JSON; it may be {CARRY_LIMIT_BYTES:,} at most")
        return None if text == self._carry_before else {"type": "carry", "value": decode(text)}

    def close(self) -> None:
        """The attempt is over: what still runs of it may not speak for it any more."""
        self._link = None

    def _open_link(self) -> Link:
        if self._link is None:
            raise RuntimeError(f"this attempt (item {self.item.key!r}, attempt {self.attempt}) is over")
        return self._link

    def _check_carries(self) -> None:
        if not self._carries:
            raise AttributeError("ctx.carry needs `carry = true` in the job (and concurrency 1)")
