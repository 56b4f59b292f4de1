"""Times as text."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime


def now_seconds() -> float:
    """Seconds since 1970, to the millisecond."""
    return time.time_ns() // 1_000_000 / 1000


def now_text() -> str:
    """UTC, to the millisecond: 2026-05-04T22:03:11.042Z"""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_text(seconds: float) -> str:
    """Seconds since 1970 as `now_text` writes a time; empty for none, and for what is no time."""
    try:
        text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds") if seconds else ""
    except (OverflowError, OSError, ValueError):
        return ""
    return text.replace("+00:00", "Z")


def new_run_id() -> str:
    """A new run id, which sorts by time, even within a second: 20260504T220311-0a2f19f3a1c"""
    now = datetime.now(UTC)
    return f"{now:%Y%m%dT%H%M%S}-{now.microsecond:05x}{secrets.token_hex(3)}"


def age_seconds(text: str) -> float:
    """Seconds since `text`, a time as `now_text` writes it; 0 if it cannot be read."""
    return max(0.0, _seconds_since(text))


def seconds_until(text: str) -> float:
    """Seconds from now to `text`, a time in ISO form; 0 if it has passed, or cannot be read."""
    return max(0.0, -_seconds_since(text))


def _seconds_since(text: str) -> float:
    try:
        # A time without a zone is local.
        return (datetime.now(UTC) - datetime.fromisoformat(text).astimezone(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return 0.0


def seconds_between(start: str, end: str) -> float:
    """Seconds from one time to a later one, as `now_text` writes them; 0 if either cannot be read."""
    try:
        return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def local_clock(text: str) -> str:
    """The local time of day of `text`, a time as `now_text` writes it: 22:03"""
    try:
        return f"{datetime.fromisoformat(text).astimezone():%H:%M}"
    except ValueError:
        return text


def seconds_of(text: str) -> float:
    """Seconds since 1970 of `text`, a time as `now_text` writes it; 0 if it cannot be read."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def local_time(seconds: float) -> datetime:
    """Seconds since 1970 as a time of the machine's zone; what is no time is 1970."""
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return datetime.fromtimestamp(0, UTC).astimezone()
