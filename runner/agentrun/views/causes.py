"""Failures by cause: messages that differ only in numbers, ids, quoted names and paths are one cause."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from agentrun.agents.failure import Failure
from agentrun.agents.failure import Place as Place
from agentrun.values.clock import time_text

if TYPE_CHECKING:
    from agentrun.views.item import ItemView


VARIES = "…"
"""Stands for what differs from item to item. One sign for all of it: an id may look like a number, or a word."""
_COMPARED_CHARACTERS = 1000
_PROSE_SPACES = 3
# A quote inside a word is an apostrophe.
_QUOTED = re.compile(
    r"""(?<!\w)(?:[bru]?'((?:[^'\\\n]|\\.|(?<=\w)'(?=\w))*)'(?!\w)|[bru]?"((?:[^"\\\n]|\\.)*)"|`([^`\n]*)`|“([^”\n]*)”|«([^»\n]*)»)"""
)
_KEY_BEFORE = re.compile(r"""['"]\s*:\s*$""")
_KEY_AFTER = re.compile(r"\s*:\s")
_URL = re.compile(r"""\b([a-z][a-z0-9+.-]*://[^\s/?#'"<>()]*)(?:[/?#][^\s'"<>()]*)?""", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PATH = re.compile(
    r"""(?<![\w/.~\\-])(?:
          (?:~|\.{1,2})?/(?!/)[^\s'"<>(),;:]+                 # /a, ~/a, ./a, ../a
        | [A-Za-z]:\\[^\s'"<>(),;:]+                     # C:\a
        | (?:[\w.@+-]+/)+[\w@+-]*\.[\w.@+-]*\w           # a/b.c
        | (?:[\w.@+-]+/){2,}[\w.@+-]*                    # a/b/c
        )""",
    re.VERBOSE,
)
_FILE = re.compile(
    r"(?<![\w/.-])[\w.+-]+\.(?:txt|md|rst|html?|xml|jsonl?|ndjson|csv|tsv|ya?ml|toml|ini|cfg|log|pdf|docx?|xlsx?|pptx?|"
    r"odt|eml|msg|png|jpe?g|gif|webp|tiff?|svg|mp3|mp4|wav|zip|gz|tar|parquet|sqlite|db|py|js|ts|sh|sql|tmp|bin)\b",
    re.IGNORECASE,
)
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_HEX = re.compile(r"\b(?:0x[0-9a-f]+|[0-9a-f]{8,})\b", re.IGNORECASE)
# A word with a digit in it, with a sign before it: 7, -3, 12ms, item42, 011CSHoEeqs5C. What such words make up
# together (a fraction, a time, an address, a longer id) is one by `_RUN`.
_NUMBER = re.compile(r"(?:(?<![\w.)\]…])[-+])?[^\W_]*\d[^\W_]*")
_RUN = re.compile(f"{VARIES}(?:[-+_.,:/ ]?{VARIES})+")
_SPACE = re.compile(r"\s+")
_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?(?:\n {4}\s*(?P<code>\S.*))?',
    re.MULTILINE,
)


def cause_shape(text: str) -> str:
    """What is the same in all messages of one cause, with `…` for what differs from item to item."""
    return _shape(text[:_COMPARED_CHARACTERS])


@lru_cache(maxsize=8192)
def _shape(text: str) -> str:
    """Remembered: thousands of items fail with the same words, and pages show them again and again."""
    text = _QUOTED.sub(_shape_of_quoted, text)
    text = _URL.sub(rf"\1{VARIES}", text)
    for pattern in (_EMAIL, _PATH, _FILE, _UUID, _HEX, _NUMBER):
        text = pattern.sub(VARIES, text)
    return _RUN.sub(VARIES, _SPACE.sub(" ", text)).strip()


def _shape_of_quoted(match: re.Match[str]) -> str:
    """A quoted name varies. In a quoted object, as SDKs put the reply into a message, keys and sentences do not."""
    said = next((group for group in match.groups() if group is not None), "")
    if _KEY_BEFORE.search(match.string, max(0, match.start() - 8), match.start()):
        return said if said.count(" ") >= _PROSE_SPACES else VARIES
    is_key = match.string[: match.start()].rstrip().endswith(("{", ",")) and _KEY_AFTER.match(match.string, match.end())
    return said if is_key else VARIES


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """The failed items of one cause."""

    shape: str
    example: str
    """The cause of its first item, in full."""
    id: str = ""
    """What `cause_id` gives for each of its items."""
    index: int = 0
    """Of its first item."""
    keys: tuple[str, ...] = ()
    """In item order."""
    indexes: tuple[int, ...] = ()
    """Of the same items."""
    raised: Place | None = None
    """The user's own line that raised it, of the first item; None if it is not known."""

    @property
    def where(self) -> str:
        """That line in short, `agent.py:12, in triage`, or nothing."""
        return str(self.raised) if self.raised is not None else ""

    @property
    def count(self) -> int:
        return len(self.keys)

    def as_json(self) -> dict[str, Any]:
        """`group` and `cause` are those of a `FailureView`."""
        return {
            "group": self.shape,
            "cause": self.example,
            "where": self.where,
            "raised": self.raised.as_json() if self.raised is not None else None,
            "count": self.count,
            "index": self.index,
            "keys": list(self.keys),
        }


@dataclass(frozen=True, slots=True)
class FailureView:
    """A failed item, with all facts about its failure."""

    view: ItemView

    @property
    def group(self) -> str:
        """The shape of its cause: the same for all items that failed alike."""
        return cause_shape(self.view.cause)

    def as_json(self) -> dict[str, Any]:
        """What a list of failures shows."""
        view = self.view
        return {
            "index": view.index,
            "key": view.key,
            "cause": view.cause,
            "group": self.group,
            "attempts": view.attempts,
            "ended_at": time_text(view.ended_at) or None,
            "agent": view.agent,
            "error": view.failure.as_json() if view.failure is not None else None,
        }


def cause_id(failure: Failure) -> str:
    """The same for all failures that one group shows, and for no others."""
    # Facts, not wording: 404 and 500 differ in more than a number.
    same = (cause_shape(failure.cause), failure.origin, failure.types[:1], failure.status, failure.exit_code)
    return sha256(repr(same).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def group_failures(items: Iterable[ItemView]) -> list[CauseGroup]:
    """The failed among `items` by cause: the most frequent first, then the one that comes first in item order."""
    groups: dict[str, CauseGroup] = {}
    members: dict[str, list[tuple[str, int]]] = {}
    for item in items:
        failure = item.failure
        if item.state != "failed" or failure is None:
            continue
        same = cause_id(failure)
        if same not in groups:
            shape = cause_shape(failure.cause)
            groups[same] = CauseGroup(shape, failure.cause, same, item.index, raised=raised_at(failure))
        members.setdefault(same, []).append((item.key, item.index))
    whole = []
    for same, group in groups.items():
        keys, indexes = zip(*members[same], strict=True)
        whole.append(replace(group, keys=keys, indexes=indexes))
    return sorted(whole, key=lambda group: -group.count)


def raised_at(failure: Failure) -> Place | None:
    """The last of the user's own lines that it passed through. Older records have it only in their traceback."""
    from agentrun.agents.exceptions import is_library

    if failure.raised is not None:
        return failure.raised
    frames = [frame for frame in _FRAME.finditer(failure.traceback) if not is_library(frame["file"])]
    if not frames:
        return None
    frame = frames[-1]
    function = frame["function"] or ""
    return Place(frame["file"], int(frame["line"]), "" if function == "<module>" else function, frame["code"] or "")
