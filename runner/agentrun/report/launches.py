"""The launches of a run: when each began, how many items it settled, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agentrun.report.report import LaunchFacts, Pause
from agentrun.report.tally import LaunchTally
from agentrun.values.clock import now_seconds, seconds_of
from agentrun.views.jobs import HistoryEvent, JobView

KILLED = "killed, or the machine stopped"


@dataclass(slots=True)
class _Seen:
    began: float
    ended: float = 0.0
    """The last sign of it."""
    reason: str | None = None
    """Why it stopped; None if it did not say."""
    settled: int = 0
    pauses: list[Pause] = field(default_factory=list)
    pausing: HistoryEvent | None = None
    """How the pause began in which it is."""

    def end_pause(self, at: float) -> None:
        if self.pausing is not None:
            began = seconds_of(self.pausing.at)
            self.pauses.append(Pause(max(at - began, 0.0), self.pausing.reason or ""))
            self.pausing = None


def launches_of(
    view: JobView, history: Iterable[HistoryEvent], tallied: Mapping[int, LaunchTally]
) -> list[LaunchFacts]:
    """The launches that the log or the records still know of, in order."""
    seen = _read(history, view.run_id)
    last = max(view.launches, *seen, *tallied) if seen or tallied else view.launches
    found = []
    for number in range(1, last + 1):
        logged, tally = seen.get(number), tallied.get(number)
        if logged is None and tally is None:
            continue
        began = logged.began if logged is not None else tally.began if tally is not None else 0.0
        ends = [one.ended for one in (logged, tally) if one is not None and one.ended]
        if logged is not None and logged.reason is not None:
            ends = [logged.ended]
        how, is_crash = _how(view, logged, is_last=number == last)
        ended = seconds_of(view.updated_at) if is_crash and number == last else max(ends, default=began)
        pauses = logged.pauses if logged is not None else ()
        if logged is not None:
            logged.end_pause(now_seconds() if view.status == "running" and number == last else ended)
        settled = tally.settled if tally is not None else 0
        found.append(LaunchFacts(number, began, ended, settled, how, is_crash, pauses))
    return found


def _how(view: JobView, logged: _Seen | None, *, is_last: bool) -> tuple[str, bool]:
    """How it ended, and whether it was killed."""
    if logged is not None and logged.reason is not None:
        return logged.reason or "stopped", False
    if not is_last:
        return (KILLED, True) if logged is not None else ("no longer in the log", False)
    if view.status == "running":
        return "at work", False
    if view.status == "finished":
        return "finished", False
    if view.stopped is not None:
        return view.stopped.reason, False
    return view.why or KILLED, bool(view.why)


def _read(history: Iterable[HistoryEvent], run_id: str) -> dict[int, _Seen]:
    seen: dict[int, _Seen] = {}
    current: _Seen | None = None
    before = last = 0.0
    for event in history:
        at = seconds_of(event.at)
        if event.event in ("launch", "restore"):
            if current is not None and current.reason is None:
                # The first checkpoint of a launch is logged just before the launch itself.
                current.ended = before or current.ended
            current = None
            if event.run_id == run_id and event.launch is not None:
                current = seen[event.launch] = _Seen(at, at)
            before = last = 0.0
        elif current is not None and event.event == "stop":
            current.ended, current.reason = at, event.reason or ""
            current.end_pause(at)
            current = None
        elif current is not None and event.event == "pause":
            current.pausing = event
        elif current is not None and event.event == "continue":
            current.end_pause(at)
        elif event.event == "checkpoint":
            before, last = last, at
            if current is not None:
                current.ended = max(current.ended, at)
                if event.settled is not None and event.settled != current.settled:
                    # A server that was down is back: nothing else says so.
                    current.end_pause(at)
                    current.settled = event.settled
    return seen
