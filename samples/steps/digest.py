"""Says how long a text is, and which is its longest word, in three steps.

`ctx.step(name, function, *arguments)` returns what the function returned when this item did the step before. If it
has not, it calls the function, and returns its result once that is on disk.
"""

import os
import re
import time
from typing import Any

SECONDS = float(os.environ.get("STEPS_SECONDS", "1"))


def digest(item: Any, ctx: Any) -> str:
    words = ctx.step("tidy", tidy, item.text)
    count = ctx.step("count", call, len, words)
    longest = ctx.step("longest", call, find_longest, words)
    ctx.log(count, "words")
    return f"{count} words, the longest is {longest}"


def tidy(text: str) -> list[str]:
    return list(call(re.findall, "[A-Za-z0-9]+", text))


def find_longest(words: list[str]) -> str:
    return max(words, key=len)


def call(function: Any, *arguments: Any) -> Any:
    """As slowly as if it were a call of a model."""
    print("calling", function.__name__)
    time.sleep(SECONDS)
    return function(*arguments)
