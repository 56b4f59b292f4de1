"""A notice: what is said of a launch that has ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentrun.job.notify import Notify, Occasion
from agentrun.money.usage import format_cost
from agentrun.values.text import clean
from agentrun.values.units import format_duration

if TYPE_CHECKING:
    from agentrun.checkpoint.summary import Summary

_BY_CODE: dict[int, Occasion] = {0: "finished", 1: "failed", 3: "waiting"}
_TITLES: dict[Occasion, str] = {
    "finished": "finished",
    "failed": "items failed",
    "waiting": "waits for you",
    "stopped": "stopped",
}
_USAGE_ERROR = 2


@dataclass(frozen=True, slots=True)
class Notice:
    """What people get, and what a program gets as JSON."""

    occasion: Occasion
    title: str
    text: str
    details: dict[str, Any]
    """The summary of the launch, and `occasion`, `title`, `text`, `seconds`."""


def occasion_of(summary: Summary) -> Occasion | None:
    """What a launch that ended like this is an occasion for; None if nothing was run, and nothing is to be said."""
    if summary.nothing_to_do or summary.exit_code == _USAGE_ERROR:
        return None
    return _BY_CODE.get(summary.exit_code, "stopped")


def is_due(notify: Notify, summary: Summary, *, seconds: float) -> bool:
    """Whether the end of a launch that took so long is to be told."""
    return occasion_of(summary) in notify.on and seconds >= notify.after_seconds


def write_notice(summary: Summary, *, seconds: float, is_test: bool = False) -> Notice:
    """The notice of a launch; it has no outputs and no items' keys, which are not everybody's to see."""
    occasion = occasion_of(summary) or "finished"
    title = f"{summary.job}: {'a test notice' if is_test else _TITLES[occasion]}"
    text = "Notices of this job arrive here." if is_test else "\n".join(_lines(summary, seconds))
    more = {"occasion": "test" if is_test else occasion, "title": title, "text": text, "seconds": round(seconds, 1)}
    return Notice(occasion, title, text, summary.as_json() | more)


def _lines(summary: Summary, seconds: float) -> list[str]:
    counts = summary.counts
    others = (f", {counts[kind]:,} {kind}" for kind in ("failed", "skipped", "waiting") if counts.get(kind))
    cost = summary.usage.cost
    parts = [f"{counts.get('done', 0):,} of {summary.total:,} done{''.join(others)}"]
    parts += [f"took {format_duration(round(seconds))}", *([format_cost(cost)] if cost is not None else [])]
    lines = [" · ".join(parts)]
    if summary.exit_code not in _BY_CODE and summary.reason:
        lines.append(clean(summary.reason, limit=500))
    return lines
