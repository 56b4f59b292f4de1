"""One item as anyone may see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentrun.agents.failure import Failure

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item: its state, and the newest record that counts, if it has one."""

    index: int
    key: str
    state: str
    record: dict[str, Any] | None = None
    changed: bool = False
    """Pending because its content is another than that of its last record."""
    slot: int | None = None
    """While it runs: its slot, and so the log that it writes to."""
    gen: int = 0
    """How often it was begun anew on purpose."""

    @property
    def question(self) -> dict[str, Any] | None:
        """Of a waiting item: `n`, `text`, `details`, `at`."""
        asked = self.record.get("question") if self.record is not None and self.state == "waiting" else None
        return asked if isinstance(asked, dict) else None

    @property
    def usage(self) -> dict[str, Any]:
        """What this generation has used, as far as that was reported: tokens, requests, cost."""
        return dict(self.record.get("usage") or {}) if self.record else {}

    @property
    def cost(self) -> float | None:
        cost = self.usage.get("cost")
        return float(cost) if cost is not None else None

    @property
    def edited(self) -> dict[str, Any] | None:
        """Of an output that was corrected by hand: `by`, `at`."""
        return self.record.get("edited") if self.record else None

    @property
    def files(self) -> list[dict[str, Any]]:
        """What it left as files: `path`, `size`, `sha256`."""
        return list(self.record.get("files") or []) if self.record else []

    @property
    def seconds(self) -> float:
        """How long its last attempt took."""
        return float(self.record.get("seconds", 0.0)) if self.record else 0.0

    @property
    def attempts(self) -> int:
        """In the launch that settled it."""
        # Of many only the last are kept; they are numbered.
        return int(self.tries[-1].get("number", len(self.tries))) if self.record else 0

    @property
    def tries(self) -> list[dict[str, Any]]:
        """The attempts that are kept: `launch`, `number`, `at`, `seconds`, and `cause` where it failed."""
        if self.record is None:
            return []
        one = {"launch": self.record.get("launch", 1), "number": 1, "at": self.at, "seconds": self.seconds}
        return list(self.record.get("tries") or [one])

    @property
    def at(self) -> float:
        """When its first attempt began, in seconds since the epoch."""
        return float(self.record.get("at", 0.0)) if self.record else 0.0

    @property
    def ended_at(self) -> float:
        """When its last attempt ended, in seconds since the epoch; 0 without one."""
        if self.record is None:
            return 0.0
        last = self.tries[-1]
        return float(last["at"]) + float(last["seconds"])

    @property
    def agent(self) -> str:
        return str(self.record.get("agent", "")) if self.record else ""

    @property
    def failure(self) -> Failure | None:
        """The facts, of an item that failed or was skipped."""
        error = self.record.get("error") if self.record else None
        return Failure.from_json(error) if error else None

    @property
    def cause(self) -> str:
        return failure.cause if (failure := self.failure) else ""
