"""Run a launch, or show its plan."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from agentrun_cli import detaching, loop
from agentrun_cli import terminal as console
from agentrun_cli.asked import Asked
from agentrun_cli.flags import Given
from agentrun_cli.hints import how_to_name, where_it_runs

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job
    from agentrun.job.opening import OpenJob
    from agentrun.job.options import Options
    from agentrun.launch.execute import Launch, Store
    from agentrun.notices.notices import Notices
    from agentrun.notices.sending import Delivery
    from agentrun.views.jobs import Summary


@dataclass(frozen=True)
class Ready:
    """A job, its agent and its environment. Nothing on disk has changed yet."""

    opened: OpenJob
    agent: Agent
    environ: dict[str, str]
    notices: Notices | None = None


def open_asked(asked: Asked, *, fresh: bool = False) -> OpenJob:
    from agentrun.views.finding import open_job

    _refuse_without_file(asked)
    return open_job(
        asked.ref,
        found=asked.found,
        flags=asked.layer,
        cwd=console.HERE,
        state_dir=asked.state_dir,
        store=asked.store,
        fresh=fresh,
    )


def _refuse_without_file(asked: Asked) -> None:
    """UsageError for a name that a shared store knows, in a folder without the job file that it was started with."""
    found = asked.found
    if found is None or found.kept is None or found.kept.file is None or found.kept.file.is_file():
        return
    from agentrun.errors import UsageError
    from agentrun.views.finding import locate

    known = locate(found.name, console.HERE, asked.state_dir or str(found.root), store=asked.store)
    if known.store.where:
        there = where_it_runs(known)
        where = f"run it in {there.text}" if there is not None else "go to the folder that has it"
        raise UsageError(f"{found.name}: its job file is not here; {where}, or give the job file")


def make_ready(opened: OpenJob, *, tells: bool = False) -> Ready:
    """Change to the job's folder, set the agent's environment, and load the agent.

    With `tells`, the job's notices are checked as well.
    """
    from agentrun.agents.agent import load_agent
    from agentrun.job.address import hide_secrets
    from agentrun.job.opening import agent_environment
    from agentrun.views.finding import address_of

    job = opened.job
    # The store is open by now. Before `env_file` is read: the agent may have a PGPASSWORD of its own there.
    hide_secrets(os.environ, address_of(opened))
    environ = agent_environment(job, os.environ)
    os.environ.update(environ)
    notices = None
    if job.notify is not None and tells:
        from agentrun.notices.notices import Notices

        notices = Notices.open(job, os.environ)
    os.chdir(job.base)
    # What a module prints while being imported is not data.
    with contextlib.redirect_stdout(sys.stderr):
        return Ready(opened, load_agent(job), environ, notices)


def warn_of_shell(job: Job) -> None:
    """Say if a shell would run the items' texts as code."""
    from agentrun.job.shell import shell_warning

    if (warning := shell_warning(job.command or ())) is not None:
        console.say(console.clean(f"{job.name}: warning: {warning}", limit=2000))


def options_of(given: Given, *, resume: bool) -> Options:
    from agentrun.job.options import read_options

    names = ("fresh", "limit", "pilot", "only", "rerun", "until", "max_time", "failed", "allow_gone", "accept_edits")
    asked = dict(given.of((*names, "adopt", "overwrite", "forget_steps", "now", "no_wait")))
    # With --if-free, do not wait for the lock.
    wait = 0.5 if given.get("if_free") else 5.0
    return read_options({**asked, "resume": resume, "wait_seconds": wait}, are_flags=True)


def after_pilot(options: Options, seconds: float) -> Options:
    """The options of the launch that runs the rest; so many seconds of its time are over."""
    limit = options.max_time
    left = max(limit - seconds, 1.0) if isinstance(limit, float) else limit
    return replace(options, pilot=None, resume=True, fresh=False, rerun=None, max_time=left)


def launch(asked: Asked, options: Options) -> int:
    """Run one launch, or show its plan; return the exit code."""
    from agentrun.errors import AgentrunError, BusyError
    from agentrun.launch.execute import check_before_import
    from agentrun.views.finding import check_not_copied, check_one_place, store_of
    from agentrun_cli.asking.starting import confirm_fresh, wants_rerun, wants_rest

    given = asked.given
    if given.get("detach") and not given.get("plan") and not detaching.is_detached():
        return detaching.detach(sys.argv[1:])
    if given.get("plain"):
        console.be_plain()
    every_seconds = _every_seconds(given)
    began = time.monotonic()
    loop.exit_on_interrupt()
    opened = open_asked(asked, fresh=options.fresh)
    job, store = opened.job, store_of(opened)
    if not options.fresh:
        check_one_place(opened)
        check_not_copied(opened)
    try:
        if options.resume and (nothing := _nothing_to_resume(job, store)) is not None:
            _refuse_what_needs_a_run(job, options)
            return _end_without_run(nothing, job, store, asked)
        if options.fresh and not given.get("plan"):
            from agentrun.views.giving_up import given_up

            confirm_fresh(job.name, given_up(store), given)
        if not given.get("plan"):
            check_before_import(job, store, options)
        if not given.get("quiet"):
            warn_of_shell(job)
        ready = make_ready(opened, tells=not given.get("plan"))
        if given.get("plan"):
            show_plan(ready, store, options, asked)
            return 0
        summary = _run(ready, store, asked, options, every_seconds=every_seconds)
        if not options.resume:
            # The launch has put its own handlers back.
            loop.exit_on_interrupt()
            if wants_rerun(summary, job, given):
                summary = _run(ready, store, asked, replace(options, rerun="old-agent"), every_seconds=every_seconds)
            elif wants_rest(summary, job, given):
                summary = _run(
                    ready, store, asked, after_pilot(options, time.monotonic() - began), every_seconds=every_seconds
                )
        return summary.exit_code
    except AgentrunError as error:
        if isinstance(error, BusyError) and given.get("if_free"):
            return 0
        raise _with_hints(error, job.name, how_to_name(job.name, store.folder, asked)) from None


def _with_hints(error: Any, name: str, shown: str) -> Any:
    """The error, with the commands in its message changed to ones that work in the current folder."""
    named = "|".join(map(re.escape, {name, shlex.quote(name)}))
    hint = rf"(agentrun \w+) (?:{named})(?=$|;|(?: --fresh)? --adopt)"
    error.message = re.sub(hint, lambda match: f"{match[1]} {shown}", error.message)
    error.args = (error.message,)
    return error


def _nothing_to_resume(job: Job, store: Store) -> Summary | None:
    """The last run's summary if no run is unfinished. Needs neither the lock nor the agent. UsageError if the job was
    moved away."""
    from agentrun.errors import CheckpointError
    from agentrun.launch.execute import nothing_to_resume
    from agentrun.people.desk import check_here
    from agentrun.views.finding import KnownJob

    try:
        with store.reader() as reader:
            if (nothing := nothing_to_resume(job, reader)) is not None:
                check_here(KnownJob(job.name, store), reader.run_id)
            return nothing
    except CheckpointError:
        return None  # the launch reports it


def _refuse_what_needs_a_run(job: Job, options: Options) -> None:
    from agentrun.errors import UsageError

    flags = {"--failed": options.failed, "--limit": options.limit is not None, "--only": options.only}
    for given in [flag for flag, is_given in flags.items() if is_given][:1]:
        raise UsageError(f"{given} needs an unfinished run, and there is none; use: agentrun start {job.name}")


def _end_without_run(summary: Summary, job: Job, store: Store, asked: Asked) -> int:
    """Say when the last run ended, and what is new or changed since."""
    from agentrun.errors import AgentrunError
    from agentrun.job.home import shared_place
    from agentrun.views.since import changes_since
    from agentrun_cli.drawing.closing import resume_lines

    since, problem = None, ""
    try:
        since = changes_since(store, job)
    except AgentrunError as error:
        problem = error.message
    if not asked.given.get("quiet"):
        name = how_to_name(job.name, store.folder, asked)
        if store.where and summary.place not in ("", shared_place(job.base)):
            name += " --adopt"
        for line in resume_lines(summary, job.name, name, since, problem):
            console.say(line)
    if asked.given.get("as_json"):
        console.put_json(summary.as_json() | {"since": since.as_json() if since is not None else None})
    return 0


def _every_seconds(given: Given) -> float | None:
    """The least time between two plain lines of progress; None if it was not given."""
    from agentrun.errors import UsageError
    from agentrun.values.units import parse_duration

    if (text := given.get("progress_every")) is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--progress-every {error}") from None


def _run(ready: Ready, store: Store, asked: Asked, options: Options, *, every_seconds: float | None) -> Summary:
    from agentrun.errors import AgentrunError, BusyError
    from agentrun.events import Began, Event
    from agentrun.launch.execute import execute, stop_on_signals
    from agentrun_cli.drawing.live import open_view

    opened, job = ready.opened, ready.opened.job
    began = time.monotonic()
    launched: list[Launch] = []
    name, quiet = how_to_name(job.name, store.folder, asked), asked.given.get("quiet")
    view = open_view(job.name, name, quiet=quiet, every_seconds=every_seconds)

    def watch(event: Event) -> None:
        view.watch(event)
        if isinstance(event, Began) and store.folder is not None:
            # Not the name from above: the job may be known only now, by its first checkpoint.
            detaching.hand_over(
                job.name,
                how_to_name(job.name, store.folder, asked),
                store.folder,
                quiet=bool(quiet),
                as_json=bool(asked.given.get("as_json")),
                asks_later=options.pilot is not None and not asked.given.get("yes"),
            )

    async def main() -> Summary:
        with stop_on_signals(job, lambda: launched[0] if launched else None, exits=True):
            return await execute(
                job,
                ready.agent,
                store,
                options=options,
                watcher=watch,
                kept=opened.kept,
                job_json=opened.job_json,
                stdin=None if options.resume else _stdin(job, store, asked),
                environ=ready.environ,
                began=launched.append,
                terminal=view.terminal,
            )

    try:
        with view:
            summary = loop.run(main)
    except Exception as error:
        if ready.notices is not None:
            _say_undelivered(ready.notices.tell_error(error, store, seconds=time.monotonic() - began), job)
        is_later = isinstance(error, AgentrunError) and error.exit_code in (74, 75)
        if is_later and not isinstance(error, BusyError) and _is_unfinished(store):
            assert isinstance(error, AgentrunError)
            error.resume_with = f"agentrun resume {how_to_name(job.name, store.folder, asked)}"
        if not isinstance(error, BusyError):
            _write_report(job, store, asked)
        raise
    seconds = time.monotonic() - began
    _end(summary, job, store, asked, seconds, is_resume=options.resume)
    _write_report(job, store, asked)
    if ready.notices is not None:
        _say_undelivered(ready.notices.tell_end(summary, seconds=seconds), job)
    return summary


def _say_undelivered(deliveries: Sequence[Delivery], job: Job) -> None:
    """Say which notices were not sent, also with -q: somebody waits for them."""
    for one in deliveries:
        if one.problem:
            console.say(console.clean(f"{job.name}: notice to {one.to} {one.problem}", limit=1000))


def _write_report(job: Job, store: Store, asked: Asked) -> None:
    """The report that the job file asks for. One that cannot be written does not change the exit code."""
    if job.report is None:
        return
    from agentrun.report.writing import report_after
    from agentrun.views.finding import KnownJob

    known = KnownJob(job.name, store, job, command_name=how_to_name(job.name, store.folder, asked))
    path, problem = report_after(job, known, here=console.HERE)
    if problem:
        console.say(f"{job.name}: the report could not be written: {console.clean(problem, limit=1000)}")
    elif path is not None and not asked.given.get("quiet"):
        console.say(f"  report:       {console.shown_path(path)}")


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
    from agentrun_cli.asking.starting import continues_unasked
    from agentrun_cli.drawing.closing import closing_lines, nothing_lines

    if summary.nothing_to_do and is_resume:
        return _end_without_run(summary, job, store, asked)
    name = how_to_name(job.name, store.folder, asked)
    lines = closing_lines(summary, job.name, name, seconds)
    if summary.nothing_to_do:
        lines = nothing_lines(summary, job, name)
    if summary.exit_code or not asked.given.get("quiet"):
        for line in lines:
            console.say(line)
    if asked.given.get("as_json") and not continues_unasked(summary, asked.given):
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


def show_plan(ready: Ready, store: Store, options: Options, asked: Asked) -> None:
    """Print the plan. Takes no lock and changes nothing on disk."""
    from agentrun.launch.execute import plan_launch
    from agentrun.views.giving_up import given_up
    from agentrun_cli.drawing.plan import Outlook, first_argv, plan_json, plan_lines

    job, version = ready.opened.job, ready.agent.fingerprint
    prospect = plan_launch(job, store, agent=version, options=options)
    refusal = prospect.refusal
    try:
        argv = first_argv(job, prospect.first)
    except ValueError as error:
        argv, refusal = list(job.command or ()), refusal or f"the first item's command {error}"
    outlook = Outlook(
        prospect.planned,
        how_to_name(job.name, store.folder, asked),
        argv,
        version,
        refusal,
        prospect.nothing,
        given_up(store) if options.fresh else None,
    )
    if asked.given.get("as_json"):
        console.put_json(plan_json(outlook))
        return
    for line in plan_lines(outlook):
        console.put(line)
