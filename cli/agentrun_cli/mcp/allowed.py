"""What a client may do besides reading: by the words of --allow, and with which job files, for how much money."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.errors import AgentrunError, ScriptError, UsageError
from agentrun.views.finding import find_job, open_job
from agentrun_cli.mcp.jobs import Jobs
from agentrun_cli.terminal import clean

if TYPE_CHECKING:
    from agentrun.job.opening import OpenJob

WORDS = ("answer", "redo", "skip", "start")
"""What can be allowed; `start` is start and resume."""


def read_allowed(words: Sequence[str]) -> list[str]:
    """The words of --allow, which may be repeated or separated by commas; UsageError for an unknown one."""
    given = [word.strip() for one in words for word in one.split(",")]
    for word in given:
        if word not in WORDS:
            said = f"--allow {clean(word)}: there is no such tool" if word else "--allow has an empty word"
            raise UsageError(f"{said}; allow one or more of {', '.join(WORDS)}, separated by commas")
    return [word for word in WORDS if word in given]


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job file that may be started."""

    named: str
    """As the server was given it."""
    path: Path
    here: Path
    """The folder that the server was started in."""
    state_dir: str | None = None
    store: str | None = None

    def open(self) -> OpenJob:
        """The job as its file has it now."""
        return open_job(str(self.path), cwd=self.here, state_dir=self.state_dir, store=self.store)

    @property
    def name(self) -> str | None:
        """The job's name; None if the file cannot be read by now."""
        try:
            return self.open().job.name
        except AgentrunError:
            return None

    def is_at(self, asked: str) -> bool:
        """Whether somebody in this folder means it by this path."""
        return "\0" not in asked and os.path.realpath(self.here / asked) == os.path.realpath(self.path)

    def __str__(self) -> str:
        return f"{name} ({self.named})" if (name := self.name) else self.named


def read_job_files(named: Sequence[str], here: Path, state_dir: str | None, store: str | None = None) -> list[JobFile]:
    """The job files, each of which can be read; UsageError about one that cannot."""
    files = []
    for one in named:
        if (path := _find_file(one, here, state_dir)) is None:
            raise UsageError(f"--jobs {one}: is not a job file; give the path of one, such as triage/job.toml")
        file = JobFile(one, path, here, state_dir, store)
        file.open()
        files.append(file)
    return files


def _find_file(named: str, here: Path, state_dir: str | None) -> Path | None:
    try:
        return find_job(named, here, state_dir).file
    except ScriptError:
        return None
    except UsageError as error:
        raise UsageError(f"--jobs {error.message}") from None


@dataclass(frozen=True, slots=True)
class Target:
    """A job that may be started: how the command line is asked for it, and what it may cost."""

    ref: str
    state_dir: str | None
    store: str | None
    opened: OpenJob
    file_budget: float | None
    """The job file's own, whatever flags an unfinished run has kept."""

    @classmethod
    def at(cls, ref: str, here: Path, state_dir: str | None, store: str | None = None) -> Target:
        opened = open_job(ref, cwd=here, state_dir=state_dir, store=store)
        alone = open_job(ref, cwd=here, state_dir=state_dir, store=store, fresh=True)
        return cls(ref, state_dir, store, opened, alone.job.budget)

    @property
    def name(self) -> str:
        return self.opened.job.name

    @property
    def words(self) -> list[str]:
        placing = (("--state-dir", self.state_dir), ("--store", self.store))
        return [self.ref, *(word for flag, value in placing if value is not None for word in (flag, value))]

    def budget(self, asked: float | None) -> float | None:
        """The budget to give a launch; None to leave it as it is. UsageError if more is asked for than is allowed.

        The job file's budget is the most that may be spent, also if a person gave the unfinished run a higher one: that
        was meant for their own launch. If the unfinished run's own is lower, that is: nobody raises a limit from here.
        Where there is neither, people have set no limit, and any budget only lowers what may be spent.
        """
        most, in_force = self.file_budget, self.opened.job.budget
        whose = "the job file's"
        if in_force is not None and (most is None or in_force < most):
            most, whose = in_force, "the unfinished run's"
        if asked is not None and most is not None and asked > most:
            raise UsageError(
                f"{self.name}: a budget of ${asked:.15g} is above {whose}, ${most:.15g}; "
                "ask for less, or leave it out; only a person can raise it"
            )
        if asked is None and most is not None and (in_force is None or in_force > most):
            return most
        return asked


def find_target(asked: str, files: Sequence[JobFile], jobs: Jobs) -> Target:
    """The job that is asked for: by its file as it was named, by the file's path, or by the job's name."""
    meant = (
        [one for one in files if one.named == asked]
        or [one for one in files if one.is_at(asked)]
        or [one for one in files if one.name == asked]
    )
    if len({one.path for one in meant}) > 1:
        raise UsageError(f"{asked}: several job files have this name; give one of {_listed(meant)}")
    if meant:
        return Target.at(str(meant[0].path), meant[0].here, meant[0].state_dir, meant[0].store)
    if (target := _find_known(asked, files, jobs)) is not None:
        return target
    raise UsageError(f"{asked[:100]}: not one of the jobs that this server may start; these are {_listed(files)}")


def _find_known(asked: str, files: Sequence[JobFile], jobs: Jobs) -> Target | None:
    """A known job that was started from one of the files under another name: with other params."""
    try:
        place, known = jobs.find(asked)
        target = Target.at(asked, jobs.here, str(place.root), jobs.store)
    except UsageError:
        return None
    # The word may also be a folder with a job file in it, which comes before a name.
    is_same = (target.name, target.opened.root) == (known.name, place.root)
    return target if is_same and target.opened.job.file in [one.path for one in files] else None


def _listed(files: Sequence[JobFile]) -> str:
    return ", ".join(map(str, files))
