"""The tools that start and resume jobs: in the background, and only from the job files that the server was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from agentrun.errors import UsageError
from agentrun_cli.background import launch_in_background
from agentrun_cli.mcp import shapes
from agentrun_cli.mcp.allowed import JobFile, find_target
from agentrun_cli.mcp.jobs import Jobs
from agentrun_cli.mcp.texts import CUT_CHARACTERS
from agentrun_cli.terminal import clean_text

JobOrFile = Annotated[
    str, Field(description="The job's name, or its job file as the server was given it. Other jobs are refused.")
]
Budget = Annotated[
    float | None,
    Field(
        gt=0,
        allow_inf_nan=False,
        description="US dollars that the whole run may cost; at most what the job file, or the unfinished run, allows.",
    ),
]
Limit = Annotated[int | None, Field(ge=1, description="Start at most so many items in this launch.")]


class Starting:
    """The tools that start and resume. Each method is a tool, and its docstring is what a model reads about it."""

    def __init__(self, jobs: Jobs, files: Sequence[JobFile]) -> None:
        self._jobs = jobs
        self._files = files

    def start(self, job: JobOrFile, budget: Budget = None, limit: Limit = None) -> shapes.Launch:
        """Start a job in the background, or continue it: runs what is new, changed, failed or unfinished. It may cost
        money.

        Finished items keep their results and are not run again. Returns when the run has begun, or says why it cannot
        be started; watch it with `status`.
        """
        return self._launch("start", job, budget, limit)

    def resume(self, job: JobOrFile, budget: Budget = None, limit: Limit = None) -> shapes.Launch:
        """Continue the unfinished run of a job in the background, for example after answering its questions.

        Unlike `start` it never begins a new run. It may cost money. Watch it with `status`.
        """
        return self._launch("resume", job, budget, limit)

    def _launch(self, verb: str, job: str, budget: float | None, limit: int | None) -> shapes.Launch:
        target = find_target(job, self._files, self._jobs)
        words = [verb, *target.words]
        if (allowed := target.budget(budget)) is not None:
            words += ["--budget", f"{allowed!r}"]
        if limit is not None:
            words += ["--limit", f"{limit}"]
        launched = launch_in_background(words)
        said = clean_text(launched.said).strip()[:CUT_CHARACTERS]
        if launched.exit_code:
            raise UsageError(f"{target.name}: {verb} ended with exit code {launched.exit_code}: {said}")
        return shapes.Launch(job=target.name, said=said, message=f"watch it with status(job={target.name!r})")
