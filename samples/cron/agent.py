"""A digest of one log file: how much of each level, and the most frequent errors."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from agentrun import Fail, Item

LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d) (DEBUG|INFO|WARNING|ERROR) (.+)")


def digest(item: Item) -> dict[str, Any]:
    lines = [match.groups() for line in item.text.splitlines() if (match := LINE.fullmatch(line))]
    if not lines:
        raise Fail("no line of it is a log line: TIME LEVEL MESSAGE")
    # Messages that differ only in numbers are one message.
    errors = Counter(re.sub(r"\d+", "N", message) for _, level, message in lines if level == "ERROR")
    return {
        "from": min(lines)[0],
        "to": max(lines)[0],
        "levels": dict(sorted(Counter(level for _, level, _ in lines).items())),
        "errors": [{"message": message, "count": count} for message, count in errors.most_common(3)],
    }
