"""What `start` asks: before people's work is given up, and whether results of an older agent should run again,
whether the rest should run after a pilot."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from agentrun_cli import terminal as console
from agentrun_cli.asking.confirming import agrees, confirm, is_answerable

if TYPE_CHECKING:
    from agentrun.job.job import Job
    from agentrun.views.giving_up import GivenUp
    from agentrun.views.jobs import Summary
    from agentrun_cli.flags import Given


def confirm_fresh(name: str, given_up: GivenUp, given: Given) -> None:
    """Say what --fresh gives up, and ask if a person is there. Without one, people's work, and a job that was moved
    away, need --yes (exit 2)."""
    from agentrun_cli.drawing.plan import given_up_words

    if not given_up:
        return
    needs_yes = given_up.needs_agreement or is_answerable()
    yes = bool(given.get("yes")) or not needs_yes
    if not (yes and given.get("quiet")):
        if given_up.moved:
            console.say(console.clean(f"{name}: {given_up.moved}; --fresh starts it over here", limit=2000))
        if words := given_up_words(given_up):
            console.say(f"{name}: --fresh gives up {words}")
    confirm(name, "start over?", yes=yes, otherwise="nothing was started")


def wants_rerun(summary: Summary, job: Job, given: Given) -> bool:
    """Whether a person wants the results of an older agent run again; asked only if nothing else was run."""
    if summary.exit_code or summary.ran or not summary.kept_old_agent or not _is_heard(given, job):
        return False
    results = console.counted(summary.kept_old_agent, "result")
    are, them = ("is", "it") if summary.kept_old_agent == 1 else ("are", "them")
    return agrees(f"{results} {are} by an older agent; run {them} again?")


def wants_rest(summary: Summary, job: Job, given: Given) -> bool:
    """Whether the rest is to run after a pilot: --yes, or a person agrees. Not if the budget is too low for it."""
    if summary.estimate is None or summary.flags:
        return False
    return continues_unasked(summary, given) or (_is_heard(given, job) and agrees("continue?"))


def continues_unasked(summary: Summary, given: Given) -> bool:
    """Whether the rest runs without a question: --yes, and the pilot ended well enough for an estimate."""
    found = summary.estimate
    return bool(given.get("yes")) and found is not None and not found.why_not and not summary.flags


def _is_heard(given: Given, job: Job) -> bool:
    """Whether somebody sees the question and can answer: not where standard input is the items."""
    is_quiet = given.get("quiet") or given.get("as_json") or job.items.pattern == "-"
    streams = (sys.stdin, sys.__stderr__)
    return not is_quiet and all(stream is not None and stream.isatty() for stream in streams)
