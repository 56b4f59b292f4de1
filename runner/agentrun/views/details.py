"""One item in full: what it was given, what happened, what came of it, and what it printed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from agentrun.errors import AgentrunError
from agentrun.item import Item
from agentrun.outputs.logs import log_paths, read_end
from agentrun.outputs.workspace import Workspace
from agentrun.system.disk import open_to_read
from agentrun.values.clock import time_text
from agentrun.views.elsewhere import ran_elsewhere
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView, StepView
from agentrun.views.listing import Listing, read_item

INPUT_CHARACTERS = 2000
LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class InputView:
    """What the agent gets: the value itself, or a file and how it begins."""

    path: Path | None = None
    bytes: int = 0
    begins: str = ""
    problem: str = ""
    """Why the file cannot be read."""
    text: str | None = None
    data: Any = None

    @classmethod
    def of(cls, item: Item, *, characters: int = INPUT_CHARACTERS) -> InputView:
        if item.path is None:
            return cls(text=item.line, data=item.data)
        try:
            # A link to a file is one; a pipe, which a path may have become, would be waited for.
            with open_to_read(os.path.realpath(item.path)) as file:
                size, begins = os.fstat(file.fileno()).st_size, file.read(characters).decode("utf-8", "replace")
        except OSError as error:
            return cls(item.path, problem=error.strerror or str(error))
        return cls(item.path, size, begins)

    def as_json(self) -> dict[str, Any]:
        if self.problem:
            return {"path": str(self.path), "problem": self.problem}
        if self.path is not None:
            return {"path": str(self.path), "bytes": self.bytes, "begins": self.begins}
        return {"text": self.text} if self.text is not None else {"data": self.data}


@dataclass(frozen=True, slots=True)
class ItemDetails:
    """Everything known about one item."""

    job: str
    total: int
    """How many items the job has."""
    view: ItemView
    agent_now: str
    """The fingerprint of the agent in the last launch."""
    given: InputView | None
    """None if the source no longer has the item."""
    steps: tuple[StepView, ...]
    log_path: Path | None
    log_lines: tuple[str, ...]
    """The end of what its last attempt printed."""
    ran_elsewhere: str = ""
    """Where the last launch was, if not here: inputs and logs are there."""

    def as_json(self) -> dict[str, Any]:
        view, record = self.view, self.view.record
        return {
            "job": self.job,
            "index": view.index,
            "total": self.total,
            "key": view.key,
            "state": view.state,
            "changed": view.changed,
            "generation": view.gen,
            "launch": record.launch if record is not None else None,
            "failed_launches": (record.failed_launches or None) if record is not None else None,
            "agent": view.agent or None,
            "agent_now": self.agent_now or None,
            "input": self.given.as_json() if self.given is not None else None,
            "attempts": [to_builtins(one) | {"at": time_text(one.at)} for one in view.tries],
            "error": to_builtins(view.failure),
            "output": view.output,
            "files": to_builtins([one.as_result for one in view.files]),
            "usage": view.usage.as_json() if view.usage is not None else None,
            "edited": to_builtins(view.edited),
            "by": (record.by or None) if record is not None else None,
            "warning": (record.warning or None) if record is not None else None,
            "question": to_builtins(view.question),
            "steps": [step.as_json() for step in self.steps],
            "ran_elsewhere": self.ran_elsewhere or None,
            "log": {"path": str(self.log_path), "lines": list(self.log_lines)} if self.log_path else None,
        }


def read_details(
    known: KnownJob, listing: Listing, view: ItemView, *, input_characters: int = INPUT_CHARACTERS
) -> ItemDetails:
    """Everything known about an item of the listing; of a file that it is given, as much as is asked for."""
    path, lines = read_end(item_logs(known, view), LOG_LINES)
    item = _find_input(known, view)
    return ItemDetails(
        job=known.name,
        total=listing.total,
        view=view,
        agent_now=listing.agent,
        given=InputView.of(item, characters=input_characters) if item is not None else None,
        steps=tuple(listing.steps(view)),
        log_path=path,
        log_lines=tuple(lines),
        ran_elsewhere=ran_elsewhere(known.store, listing.reader),
    )


def item_logs(known: KnownJob, view: ItemView) -> list[Path]:
    """The files with what the item printed: finished attempts, then the running one."""
    return log_paths(Workspace(known.store).logs, view.key, view.slot)


def _find_input(known: KnownJob, view: ItemView) -> Item | None:
    """The item itself, if the source still has it."""
    if known.job is None:
        return None
    try:
        return read_item(known.store, known.job, view)
    except AgentrunError:
        return None
