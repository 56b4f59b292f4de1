"""How a launch ended, for the one who called `run`: the public `Summary`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import orjson

from agentrun.errors import AgentrunError, RunError
from agentrun.money.budget import lost_words
from agentrun.money.usage import format_cost
from agentrun.outputs.results import result_line
from agentrun.values.text import clean
from agentrun.views.causes import CauseGroup, group_failures
from agentrun.views.item import ItemView

_NOT_DONE = ("failed", "skipped", "waiting")
_CAUSES_SHOWN, _KEYS_SHOWN = 3, 3


def _no_items() -> Iterator[ItemView]:
    return iter(())


def _items_elsewhere() -> Iterator[ItemView]:
    raise RuntimeError("this summary comes from another process; read the run's items in the process that made it")


@dataclass(frozen=True, slots=True)
class Summary:
    """How a launch ended. `ok` means that the run completed cleanly."""

    job: str
    run_id: str
    exit_code: int
    counts: Mapping[str, int]
    total: int
    reason: str = ""
    output: Path | None = None
    """The results, once the run is complete."""
    partial: Path | None = None
    """The results so far, if the launch ran out of work without completing the run."""
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _items: Callable[[], Iterator[ItemView]] = field(default=_no_items, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # The store stays behind, so that a RunError, which carries a summary, crosses processes.
        values = [getattr(self, one.name) for one in fields(self)]
        return (Summary, (*values[:-1], _items_elsewhere))

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def results(self) -> Iterator[dict[str, Any]]:
        """The results there are, in item order: index, key and output, whatever the form of the output."""
        written = self.details.get("output") or {}
        if self.output is not None and written.get("form", "jsonl") == "jsonl":
            with self.output.open("rb") as file:
                for line in file:
                    yield orjson.loads(line)
            return
        for item in self._items():
            if item.state == "done" and item.record is not None:
                yield orjson.loads(result_line(item.index, item.record))

    def failures(self) -> Iterator[ItemView]:
        """The failed items, each with its `key`, `cause` and number of `attempts`."""
        return (item for item in self._items() if item.state == "failed")

    def causes(self) -> list[CauseGroup]:
        """Why items failed: each cause with its `example`, `count` and `keys`, the most frequent first."""
        return group_failures(self.failures()) if self.counts.get("failed") else []

    def __str__(self) -> str:
        """How the launch ended, where the results are, why items failed, and what to do next."""
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return f"<Summary of {self.job}: {self._counted()}, exit code {self.exit_code}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In a notebook, the last value of a cell is shown in full."""
        printer.text(str(self))

    def _counted(self) -> str:
        others = (f", {self.counts[kind]:,} {kind}" for kind in _NOT_DONE if self.counts.get(kind))
        return f"{self.counts.get('done', 0):,} of {self.total:,} done{''.join(others)}"

    def _lines(self) -> Iterator[str]:
        # Failed and waiting items are in the counts already.
        reason = f"; {clean(self.reason, limit=1000)}" if self.exit_code not in (0, 1, 3) and self.reason else ""
        yield f"{self.job}: {self._counted()}{reason}"
        if self.output is not None or self.partial is not None:
            where = ("results:", self.output) if self.output is not None else ("so far:", self.partial)
            yield f"  {where[0]:<10} {where[1]}"
        try:
            causes = self.causes()
        except (AgentrunError, OSError, RuntimeError):
            causes = []  # the run is in another process, or has been cleared since
        for group in causes[:_CAUSES_SHOWN]:
            keys = ", ".join(clean(key, limit=60) for key in group.keys[:_KEYS_SHOWN])
            more = ", …" if group.count > _KEYS_SHOWN else ""
            yield f"  {'failed:':<10} {group.count:,} with {clean(group.example, limit=200)} ({keys}{more})"
        if len(causes) > _CAUSES_SHOWN:
            yield f"  {'':<10} and {len(causes) - _CAUSES_SHOWN:,} more causes; summary.failures() has every item"
        usage = self.details.get("usage", {})
        if (cost := usage.get("cost")) is not None:
            lost = lost_words(usage)
            yield f"  {'cost:':<10} {format_cost(cost)}{f' ({lost})' if lost else ''}"
        if hint := self.details.get("hint"):
            yield f"  {'to do:':<10} {clean(hint)}"
        if not self.ok:
            yield f"  {'to resume:':<10} run it again; finished items are not run again"

    def check(self) -> Summary:
        """Raise RunError unless the run completed cleanly."""
        if self.ok:
            return self
        raise RunError(f"{self.job}: {self.reason or 'the run is not complete'}", summary=self)
