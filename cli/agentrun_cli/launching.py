"""Run a launch, or show its plan."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from agentrun_cli import loop
from agentrun_cli import terminal as console
from agentrun_cli.flags import Asked, Given, how_to_name

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job
    from agentrun.job.opening import OpenJob
    from agentrun.job.options import Options
    from agentrun.launch.execute import Launch, Store
    from agentrun.views.jobs import Summary


@dataclass(frozen=True)
class Ready:
    """A job, its agent and its environment. Nothing on disk has changed yet."""

    opened: OpenJob
    agent: Agent
    environ: dict[str, str]


def open_asked(asked: Asked, *, fresh: bool = False) -> OpenJob:
    from agentrun.views.finding import open_job

    return open_job(
        asked.ref, found=asked.found, flags=asked.layer, cwd=console.HERE, state_dir=asked.state_dir, fresh=fresh
    )


def make_ready(opened: OpenJob) -> Ready:
    """Change to the job's folder, set the agent's environment, and load the agent."""
    from agentrun.agents.agent import load_agent
    from agentrun.job.opening import agent_environment

    job = opened.job
    environ = agent_environment(job, os.environ)
    os.environ.update(environ)
    os.chdir(job.base)
    # What a module prints while being imported is not data.
    with contextlib.redirect_stdout(sys.stderr):
        return Ready(opened, load_agent(job), environ)


def options_of(given: Given, *, resume: bool) -> Options:
    from agentrun.job.options import Options, rerun_of

    names = ("fresh", "limit", "failed", "allow_gone", "accept_edits", "overwrite", "forget_steps")
    asked = dict(given.of(names))
    if (rerun := given.get("rerun")) is not None:
        asked["rerun"] = rerun_of(rerun)
    # With --if-free, do not wait for the lock.
    return Options(resume=resume, wait_seconds=0.5 if given.get("if_free") else 5.0, **asked)


def launch(asked: Asked, options: Options) -> int:
    """Run one launch, or show its plan; return the exit code."""
    from agentrun.errors import AgentrunError, BusyError
    from agentrun.launch.execute import check_before_import
    from agentrun.views.finding import store_of

    given = asked.given
    loop.exit_on_interrupt()
    opened = open_asked(asked, fresh=options.fresh)
    job, store = opened.job, store_of(opened)
    try:
        if options.resume and (nothing := _nothing_to_resume(job, store)) is not None:
            return _end(nothing, job, store, asked, 0.0, is_resume=True)
        if not given.get("plan"):
            check_before_import(job, store, options)
        ready = make_ready(opened)
        if given.get("plan"):
            show_plan(ready, store, options, as_json=given.get("as_json"))
            return 0
        return _run(ready, store, asked, options)
    except AgentrunError as error:
        if isinstance(error, BusyError) and given.get("if_free"):
            return 0
        raise _with_hints(error, job.name, how_to_name(job.name, store.folder, asked)) from None


def _with_hints(error: Any, name: str, shown: str) -> Any:
    """The error, with the command in its message changed to one that works in the current folder."""
    error.message = re.sub(rf"(agentrun \w+) {re.escape(name)}$", lambda match: f"{match[1]} {shown}", error.message)
    error.args = (error.message,)
    return error


def _nothing_to_resume(job: Job, store: Store) -> Summary | None:
    """The last run's summary if no run is unfinished. Needs neither the lock nor the agent."""
    from agentrun.errors import CheckpointError
    from agentrun.launch.execute import nothing_to_resume

    try:
        with store.reader() as reader:
            return nothing_to_resume(job, reader)
    except CheckpointError:
        return None  # the launch reports it


def _run(ready: Ready, store: Store, asked: Asked, options: Options) -> int:
    import time

    from agentrun.errors import AgentrunError, BusyError
    from agentrun.launch.execute import execute, stop_on_signals
    from agentrun_cli.drawing.live import open_view

    opened, job = ready.opened, ready.opened.job
    began = time.monotonic()
    launched: list[Launch] = []
    view = open_view(job.name, how_to_name(job.name, store.folder, asked), quiet=asked.given.get("quiet"))

    async def main() -> Summary:
        with stop_on_signals(job, lambda: launched[0] if launched else None, exits=True):
            return await execute(
                job,
                ready.agent,
                store,
                options=options,
                watcher=view.watch,
                kept=opened.kept,
                job_json=opened.job_json,
                stdin=None if options.resume else _stdin(job, store, asked),
                environ=ready.environ,
                began=launched.append,
            )

    try:
        with view:
            summary = loop.run(main)
    except AgentrunError as error:
        if not isinstance(error, BusyError) and error.exit_code in (74, 75) and _is_unfinished(store):
            error.resume_with = f"agentrun resume {how_to_name(job.name, store.folder, asked)}"
        raise
    return _end(summary, job, store, asked, time.monotonic() - began, is_resume=options.resume)


def _is_unfinished(store: Store) -> bool:
    from agentrun.errors import CheckpointError

    try:
        with store.reader() as reader:
            return reader.checkpoint is not None
    except CheckpointError:
        return True


def _has_items(store: Store) -> bool:
    """Whether the items of the unfinished run, or of the last one, are kept."""
    with store.reader(accept_edits=True) as reader:
        if reader.checkpoint is not None:
            return bool(reader.checkpoint.context.spool)
        return any(one.spool for one in reader.summaries if one.is_finished)


def _end(summary: Summary, job: Job, store: Store, asked: Asked, seconds: float, *, is_resume: bool) -> int:
    from agentrun_cli.drawing.closing import closing_lines, nothing_lines

    name = how_to_name(job.name, store.folder, asked)
    lines = closing_lines(summary, job.name, name, seconds)
    if summary.nothing_to_do and not is_resume:
        lines = nothing_lines(summary, job.name, name)
    if summary.exit_code or not asked.given.get("quiet"):
        for line in lines:
            console.say(line)
    if asked.given.get("as_json"):
        # The exit code is the run's, even if standard output was closed.
        with contextlib.suppress(console.ReaderGone):
            console.put_json(summary.as_json())
    return summary.exit_code


def _stdin(job: Job, store: Store, asked: Asked) -> BinaryIO | None:
    """Standard input, if items come from it. To resume a run, nobody has to type them again."""
    if job.items.pattern != "-" or sys.stdin is None:
        return None
    is_by_name = asked.found is not None and asked.found.kind == "known" and not asked.given.get("items")
    if is_by_name and _has_items(store):
        return None
    if sys.stdin.isatty():
        if _is_unfinished(store):
            return None
        console.say("reading items from the keyboard, one per line; finish with Ctrl-D")
    return sys.stdin.buffer


# ---- planning without a launch


def show_plan(ready: Ready, store: Store, options: Options, *, as_json: bool) -> None:
    """Print the plan. Takes no lock and changes nothing on disk."""
    from agentrun.launch.execute import plan_launch
    from agentrun_cli.drawing.plan import first_argv, plan_json, plan_lines

    job, version = ready.opened.job, ready.agent.fingerprint
    prospect = plan_launch(job, store, agent=version, options=options)
    planned, refusal = prospect.planned, prospect.refusal
    try:
        argv = first_argv(job, prospect.first)
    except ValueError as error:
        argv, refusal = list(job.command or ()), refusal or f"the first item's command {error}"
    if as_json:
        nothing = prospect.is_nothing
        console.put_json(plan_json(planned, argv=argv, refusal=refusal, version=version, is_nothing=nothing))
        return
    for line in plan_lines(planned, argv=argv, refusal=refusal, version=version, is_nothing=prospect.is_nothing):
        console.put(line)
