"""Where a job's results go, as written in the job file or after -o, and which form that means. Pure."""

from __future__ import annotations

import os.path
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentrun.values.templates import fill, names_in
from agentrun.values.text import is_unicode

OutputForm = Literal["jsonl", "csv", "folder"]
RUN_NAMES = ("date", "run_id")
"""Placeholders that are known once there is a run."""
ITEM_NAMES = ("key", "index")
"""Placeholders that stand for each item: the output is then a folder with one file an item."""
NAME_MOST_BYTES = 100
"""Of a file's name without the key."""
PART_MOST_BYTES = 200
"""Of each part of the path: with a run's id, `.partial` and what a temporary file adds, it still fits into 255."""


@dataclass(frozen=True, slots=True)
class OutputTemplate:
    """A template of a path, with `{date}`, `{run_id}`, and for one file an item `{key}` or `{index}`."""

    text: str

    @property
    def form(self) -> OutputForm:
        if any(name in ITEM_NAMES for name in names_in(os.path.basename(self.text))):
            return "folder"
        return "csv" if self.text.lower().endswith(".csv") else "jsonl"

    def path(self, base: Path, *, run_id: str, date: str) -> Path:
        """The file of the results, or the folder of their files."""
        where = os.path.dirname(self.text) if self.form == "folder" else self.text
        return base / fill(where, {"run_id": run_id, "date": date})

    def names(self, *, run_id: str, date: str) -> str:
        """The template of the items' file names; empty unless each item has a file."""
        if self.form != "folder":
            return ""
        return fill(os.path.basename(self.text), {"run_id": run_id, "date": date}, keep=ITEM_NAMES)

    def remedy(self, base: Path) -> str:
        """What to write instead, if results cannot be written to this; empty if they can."""
        folder, name = os.path.split(self.text)
        if name in ("", ".", "..") or self.text == "-":
            return 'write the path of a file, such as "out/results.jsonl"'
        if any(one in ITEM_NAMES for one in names_in(folder)):
            return 'write {key} and {index} in the last part only, such as "out/{key}.md"'
        if not is_unicode(self.text):
            return "write it in UTF-8"
        if any(len(part.encode()) > PART_MOST_BYTES for part in self.text.split("/")):
            return f"the name of a file or folder has at most {PART_MOST_BYTES} bytes; shorten it"
        if self.form != "folder":
            return ""
        if base.is_relative_to(_home(base, folder)):
            return 'write a folder of its own for the items\' files, such as "out/{key}.md"'
        literal = fill(name, dict.fromkeys((*RUN_NAMES, *ITEM_NAMES), ""))
        if len(literal.encode()) > NAME_MOST_BYTES:
            return f"besides {{key}} and {{index}}, a file's name has at most {NAME_MOST_BYTES} bytes; shorten it"
        return ""

    def takes_in(self, base: Path, pattern: str) -> bool:
        """Whether the items' files could themselves be matched by this pattern of items."""
        folder, name = os.path.split(self.text)
        parts = pattern.split("/")
        fixed = next((n for n, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts) - 1)
        read_from = os.path.normpath(base / "/".join(parts[:fixed] or ["."]))
        if not Path(read_from).is_relative_to(_home(base, folder)):
            return False  # the folder of the output is never searched for items
        ours, theirs = _tail(name, "}"), _tail(parts[-1], "*?]")
        return ours.endswith(theirs) or theirs.endswith(ours)


def _home(base: Path, folder: str) -> str:
    return os.path.normpath(base / fill(folder, dict.fromkeys(RUN_NAMES, "x")))


def _tail(text: str, signs: str) -> str:
    """What follows the last of these signs."""
    return text[max(text.rfind(sign) for sign in signs) + 1 :]
