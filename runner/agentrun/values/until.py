"""A time to stop at, as people write it: a time of day, or a date and a time. Without a zone it is local."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

from agentrun.values.clock import seconds_of
from agentrun.values.text import quoted

_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Until:
    """A time of day, which means the next time that the clock shows it; or one moment."""

    text: str
    """As it was written."""
    when: time | datetime

    def after(self, now: float) -> float | None:
        """The moment, in seconds since 1970; None for a date that has passed."""
        if isinstance(self.when, datetime):
            at = self.when.timestamp()
            return at if at > now else None
        today = _local(now).date()
        for days in range(-1, 3):
            for at in _moments(datetime.combine(today + timedelta(days=days), self.when)):
                if at > now:
                    return at
        raise AssertionError("every time of day comes again")


def _moments(local: datetime) -> list[float]:
    """When the local clock shows this: twice, if it is set back over that time. If it is set forward over it, when
    that time would have been."""
    first, second = local.timestamp(), local.replace(fold=1).timestamp()
    return [first, second] if second > first else [first]


def parse_until(value: Any) -> Until:
    """The time, from text such as "07:00" or "2026-11-17T07:00", or from a time of TOML. ValueError has the rest of a
    sentence, as in `values.units`."""
    found: time | datetime | None = None
    if isinstance(value, datetime | time):
        found, value = value, value.isoformat()
    elif isinstance(value, str):
        found = _parse(value.strip())
    if found is None or (isinstance(found, time) and found.tzinfo is not None):
        raise ValueError(f'is {quoted(value)}; write a time such as "07:00", or "2026-11-17T07:00"')
    return Until(value.strip(), found)


def _parse(text: str) -> time | datetime | None:
    try:
        if match := _TIME_OF_DAY.fullmatch(text):
            return time(int(match[1]), int(match[2]), int(match[3] or 0))
        if ":" in text:
            found = datetime.fromisoformat(text)
            # Dates that no clock of this machine can show are refused here.
            found.astimezone(UTC).timestamp()
            return found
    except (ValueError, OverflowError, OSError):
        return None
    return None


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).astimezone()


def pause_words(until: str, reason: str, now: float) -> str:
    """A pause for people: "paused until 02:00: openai's quota". `until` is a time in ISO form."""
    return f"paused until {moment_words(seconds_of(until), now)}: {reason}"


def moment_words(at: float, now: float) -> str:
    """The moment for people, by the local clock: "07:00", "tomorrow 07:00", "2026-11-19 07:00"."""
    local, today = _local(at), _local(now).date()
    clock = f"{local:%H:%M:%S}".removesuffix(":00")
    days = (local.date() - today).days
    return clock if days == 0 else f"tomorrow {clock}" if days == 1 else f"{local.date()} {clock}"
