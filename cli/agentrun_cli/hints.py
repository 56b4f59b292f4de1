"""Commands that messages suggest, in the shortest form that works where the user stands."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrun.views.finding import KnownJob
    from agentrun_cli.asked import Asked

_WORD = r"('[^']*'|[^\s';]+)"
_HINT = re.compile(f"agentrun ([a-z]+) {_WORD} --state-dir {_WORD}")
_COMMAND = re.compile(r"agentrun [a-z]+ [^;]+")
PLACING = ("--store", "--state-dir")
"""The flags that say where a job's state is."""


def how_to_resume(name: str, agent: str | None, known: KnownJob | None = None) -> str:
    """The command that continues a run; `name` names the job in a command, `agent` is the reference of its agent.

    With `known`: where to continue it, in words that do not begin with a command, if a launch here would be refused.
    """
    from agentrun.agents.loading import RUN_IT_AGAIN, is_held_by_script

    if agent and is_held_by_script(agent):
        return RUN_IT_AGAIN
    if known is not None and (there := where_it_runs(known)) is not None:
        return there.how_to_resume(name)
    return f"agentrun resume {name}"


@dataclass(frozen=True)
class There:
    """Another place than this one, in which a job in a shared store was launched last."""

    text: str
    """Its host and folder."""
    can_adopt: bool
    """Whether the job can be launched here, too: its job file is here."""

    def how_to_resume(self, name: str) -> str:
        there = f"go to {self.text}"
        return f"{there}, or take it over with: agentrun resume {name} --adopt" if self.can_adopt else there


def where_it_runs(known: KnownJob) -> There | None:
    """Where a job in a shared store was launched last; None if that was here, or is not known."""
    from agentrun.errors import AgentrunError
    from agentrun.job.home import shared_place
    from agentrun.job.kept import JOB_JSON, decode_job_json

    store = known.store
    if not store.where or store.folder is None:
        return None
    try:
        text = b"".join(store.fetch(JOB_JSON) or ())
        kept = decode_job_json(text, root=store.folder.parent)
        with store.reader(accept_edits=True) as reader:
            ended = next(iter(reader.summaries), None)
            last = reader.checkpoint.context.place if reader.checkpoint is not None else ended.place if ended else ""
    except AgentrunError:
        return None
    if not last or last == shared_place(kept.base):
        return None
    return There(last, can_adopt=kept.file is not None and kept.file.is_file())


def how_to_name(name: str, folder: Path | None, asked: Asked | None = None) -> str:
    """How to name the job in a command that is typed where the user stands, as a shell reads it."""
    from agentrun_cli.terminal import HERE

    ref, state_dir, layer = (asked.ref, asked.state_dir, asked.layer) if asked is not None else (None, None, None)
    is_other = layer is not None and (layer.get("params") or layer.get("name"))
    is_file = ref is not None and (ref.endswith(".toml") or (HERE / ref / "job.toml").is_file())
    if asked is not None and asked.store is not None and not _is_noted(name, folder, asked.store):
        # Nothing on this machine says yet where the job is.
        return shlex.join([*(_as_typed(asked) if is_file else [name]), *_placing(asked)])
    was_found_by_name = asked is not None and asked.found is not None and ref == name and state_dir is None
    if folder is None or was_found_by_name or _means(name, folder):
        return shlex.quote(name)
    is_plain = state_dir is None and not is_other
    if asked is not None and is_file and (is_plain or not folder.is_dir()):
        return shlex.join([*_as_typed(asked), *_placing(asked)])
    return shlex.join([name, "--state-dir", state_dir or os.path.relpath(folder.parent, HERE)])


def _as_typed(asked: Asked) -> list[str]:
    """The words that say which job of a job file is meant."""
    name, settings = asked.given.get("name"), asked.given.get("settings") or []
    words = [word for one in settings for word in ("--set", one)]
    return [asked.ref or "job.toml", *words, *(["--name", name] if name else [])]


def _placing(asked: Asked) -> list[str]:
    given = zip(PLACING, (asked.store, asked.state_dir), strict=True)
    return [word for flag, value in given if value is not None for word in (flag, value)]


def _is_noted(name: str, folder: Path | None, store: str) -> bool:
    """Whether the job's folder on this machine notes that its state is in this store."""
    from agentrun.errors import AgentrunError
    from agentrun.views.finding import asked_store, catalogue_near
    from agentrun_cli.terminal import HERE

    try:
        asked = asked_store(store, HERE)
        if folder is None or asked is None:
            return False
        here = catalogue_near(HERE, str(folder.parent))
        noted = here.noted(name)
        return noted.place == asked.place if noted is not None else asked.is_folder and name in here.names_here()
    except AgentrunError:
        return False


def shorten_hints(message: str, typed: Sequence[str] = ()) -> str:
    """The message with each command for a job in the shortest form that works where the user stands.

    `typed` are the words of the command that has failed: they say where the job's state is, if nothing here does.
    """

    def shorten(found: re.Match[str]) -> str:
        (name, root) = shlex.split(found[2]) + shlex.split(found[3])
        return f"agentrun {found[1]} {how_to_name(name, Path(root) / name)}"

    message = _HINT.sub(shorten, message)
    placing = _typed_placing(typed)
    name = message.partition(": ")[0]

    def place(found: re.Match[str]) -> str:
        words = found[0].split()
        is_placed = any(word in PLACING for word in words)
        if is_placed or shlex.quote(name) not in found[0] or _is_known(name):
            return found[0]
        return f"{found[0]} {shlex.join(placing)}"

    return _COMMAND.sub(place, message) if placing else message


def _typed_placing(typed: Sequence[str]) -> list[str]:
    """The flags that say where the job's state is, among the words of a command."""
    words = list(typed)
    found: list[str] = []
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in PLACING and (equals or at + 1 < len(words)):
            found += [flag, value if equals else words[at + 1]]
    return found


def _is_known(name: str) -> bool:
    from agentrun.errors import AgentrunError
    from agentrun.views.finding import find_job
    from agentrun_cli.terminal import HERE

    try:
        return find_job(name, HERE).name == name
    except AgentrunError:
        return False


def _means(name: str, folder: Path) -> bool:
    """Whether the plain name means the job in this folder to somebody here."""
    from agentrun.errors import AgentrunError
    from agentrun.views.finding import is_known_as
    from agentrun_cli.terminal import HERE

    try:
        return is_known_as(name, HERE, folder.parent)
    except AgentrunError:
        return False
