"""How long a server asks to wait, by the headers of its response.

Retry-After comes first. Without it, the times at which a limit is renewed count, of those limits that are used up:
`x-ratelimit-reset-requests: 6m0s` (OpenAI and those like it), `anthropic-ratelimit-tokens-reset: 2026-…Z`,
`x-ratelimit-reset: 1763362800`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agentrun.agents.failure import Failure

_PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "google": "google", "mistralai": "mistral"}
_PROVIDERS |= {"cohere": "cohere", "groq": "groq", "boto": "aws", "botocore": "aws", "boto3": "aws"}
_RESET = re.compile(r"(?:x-|anthropic-)?ratelimit-(?:[a-z-]+-)?reset(?:-[a-z-]+)?")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNIT_SECONDS = (86_400.0, 3600.0, 60.0, 1.0, 0.001)
_FIRST_EPOCH, _FIRST_EPOCH_MS = 1e9, 1e12
"""A larger number is a moment, in seconds or milliseconds since 1970, and no duration."""


def asked_by_headers(headers: Mapping[str, Any], *, status: int | None, now: float) -> float | None:
    """Seconds to wait; None if the headers do not say."""
    given = {str(name).lower(): value for name, value in headers.items()}
    if (milliseconds := _number(given.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    if (value := given.get("retry-after")) is not None:
        seconds = _number(value)
        return seconds if seconds is not None else _until_date(str(value), now)
    if status != 429:
        return None  # limits are told in every response, and here they are not the reason
    waits = [_until_renewed(str(value), now) for name, value in given.items() if _is_used_up(name, given)]
    return max((wait for wait in waits if wait is not None), default=None)


def _is_used_up(name: str, given: Mapping[str, Any]) -> bool:
    left = _number(given.get(name.replace("reset", "remaining"))) if _RESET.fullmatch(name) else None
    return left == 0


def _until_renewed(text: str, now: float) -> float | None:
    """From a number of seconds, a duration such as `1m30s`, or a moment."""
    text = text.strip()
    if (number := _number(text)) is not None:
        if number >= _FIRST_EPOCH:
            number = number / (1000 if number >= _FIRST_EPOCH_MS else 1) - now
        return max(0.0, number)
    if text and (match := _DURATION.fullmatch(text)):
        return sum(float(part) * unit for part, unit in zip(match.groups(), _UNIT_SECONDS, strict=True) if part)
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _until_date(text: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _number(value: Any) -> float | None:
    """A number that is finite, and not below 0; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, number) if math.isfinite(number) else None


def whose_quota(failure: Failure) -> str:
    """What is waited for, in a few words: `openai's quota`, or what the agent said."""
    if "agentrun.errors.Stop" in failure.types:
        return failure.message or "the agent asked to stop until then"
    for name in failure.types:
        if (provider := _PROVIDERS.get(name.partition(".")[0])) is not None:
            return f"{provider}'s quota"
    return "the server's quota"
