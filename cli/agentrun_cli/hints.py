"""Commands that messages suggest, in the shortest form that works where the user stands."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrun_cli.asked import Asked

_WORD = r"('[^']*'|[^\s';]+)"
_HINT = re.compile(f"agentrun ([a-z]+) {_WORD} --state-dir {_WORD}")


def how_to_resume(name: str, agent: str | None) -> str:
    """The command that continues a run; `name` names the job in a command, `agent` is the reference of its agent."""
    from agentrun.agents.loading import RUN_IT_AGAIN, is_held_by_script

    if agent and is_held_by_script(agent):
        return RUN_IT_AGAIN
    return f"agentrun resume {name}"


def how_to_name(name: str, folder: Path | None, asked: Asked | None = None) -> str:
    """How to name the job in a command that is typed where the user stands, as a shell reads it."""
    from agentrun_cli.terminal import HERE

    ref, state_dir, layer = (asked.ref, asked.state_dir, asked.layer) if asked is not None else (None, None, None)
    if asked is not None and asked.store is not None and not (folder is not None and folder.is_dir()):
        # Nothing on this machine says yet where the job is.
        return shlex.join([ref or name, "--store", asked.store])
    was_found_by_name = asked is not None and asked.found is not None and ref == name and state_dir is None
    if folder is None or was_found_by_name or _means(name, folder):
        return shlex.quote(name)
    is_other = layer is not None and (layer.get("params") or layer.get("name"))
    is_file = ref is not None and (ref.endswith(".toml") or (HERE / ref / "job.toml").is_file())
    is_plain_file = is_file and not is_other
    if state_dir is None and ref is not None and is_plain_file:
        return shlex.quote(ref)
    return shlex.join([name, "--state-dir", state_dir or os.path.relpath(folder.parent, HERE)])


def shorten_hints(message: str) -> str:
    """The message with each command for a job in the shortest form that works where the user stands."""

    def shorten(found: re.Match[str]) -> str:
        (name, root) = shlex.split(found[2]) + shlex.split(found[3])
        return f"agentrun {found[1]} {how_to_name(name, Path(root) / name)}"

    return _HINT.sub(shorten, message)


def _means(name: str, folder: Path) -> bool:
    """Whether the plain name means the job in this folder to somebody here."""
    from agentrun.errors import UsageError
    from agentrun.views.finding import find_job
    from agentrun_cli.terminal import HERE

    try:
        found = find_job(name, HERE)
        return (found.root, found.name) == (folder.parent, name)
    except UsageError:
        return False
