"""A plan in words: what a launch will keep, run, run again and leave out, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agentrun_cli.terminal import ago, clean, counted, shown_path

if TYPE_CHECKING:
    from agentrun.events import Planned
    from agentrun.item import Item
    from agentrun.job.job import Job
    from agentrun.views.giving_up import GivenUp
    from agentrun.views.jobs import Summary


_KINDS = {
    "kept": "kept",
    "run": "to run",
    "changed": "changed, run again",
    "again": "run again because the carry before them changes",
    "too_old": "older than max_age, run again",
    "other_params": "made with other params, run again",
    "rerun": "run again on purpose (--rerun)",
    "redone": "started over on purpose",
    "files_missing": "files of their results are missing or changed, run again",
    "failed": "failed before, retried last",
    "left": "failed before, left (--failed retries them)",
    "kept_changed": "changed, but kept (--keep-changed)",
    "waiting": "waiting for a person",
    "others": "left for another launch",
    "gone": "gone from the source, left out",
    "moved": "moved, their results kept",
}
_SINCE_LAST_RUN = {
    "run": "new",
    "changed": "changed",
    "again": "behind a changed carry",
    "redone": "redo",
    "too_old": "too old",
    "other_params": "other params",
    "rerun": "rerun",
    "files_missing": "files missing",
    "failed": "failed before",
    "left": "failed before and left",
    "kept_changed": "changed but kept",
    "others": "left for another launch",
    "gone": "gone",
}
"""After a finished run: what is not kept, in a word each."""


@dataclass(frozen=True)
class Outlook:
    """What `--plan` shows."""

    planned: Planned
    name: str
    """How to name the job in a command."""
    argv: Sequence[str] | None
    """The first item's command line, for a job that runs a program."""
    version: str
    """The agent's fingerprint."""
    refusal: str = ""
    nothing: Summary | None = None
    """The finished run, if all of it is kept."""
    given_up: GivenUp | None = None
    """What --fresh gives up."""


def agent_of(job: Job) -> str:
    if job.command is not None:
        import shlex

        return f"command {clean(shlex.join(job.command))}"
    if job.prompt is not None:
        return f"a prompt for {clean(job.model)}"
    return f"agent {clean(job.agent)}"


def began_at(run_id: str) -> str:
    """When a run began, from its id: 22:03, or May 4, 22:03."""
    try:
        began = datetime.strptime(run_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).astimezone()
    except ValueError:
        return run_id
    today = datetime.now(UTC).astimezone().date()
    return f"{began:%H:%M}" if began.date() == today else f"{began:%b} {began.day}, {began:%H:%M}"


def last_run(summary: Summary) -> str:
    """The previous run, in a few words."""
    from agentrun.values.clock import age_seconds

    counts = summary.counts
    parts = [f"{counts.get('done', 0):,} done"]
    parts += [f"{counts[kind]:,} {kind}" for kind in ("failed", "skipped") if counts.get(kind)]
    if summary.usage.cost:
        from agentrun.money.usage import format_cost

        parts.append(format_cost(summary.usage.cost))
    return f"{summary.status} {ago(age_seconds(summary.ended_at))}: {', '.join(parts)}"


def opening_lines(planned: Planned, name: str) -> Iterator[str]:
    """The lines printed before anything is spent; `name` names the job in commands."""
    job, plan, output = planned.job, planned.plan, shown_path(planned.output)
    if not planned.resumed:
        at_a_time = f", {job.concurrency} at a time" if job.concurrency > 1 else ""
        yield f"{job.name}: {counted(plan.total, 'item')}, {agent_of(job)}{at_a_time}{cluster_of(job)} → {output}"
        if planned.last is not None:
            yield f"  the last run {last_run(planned.last)}"
        if plan.others:
            yield f"  {_KINDS['others']}: {plan.others:,}"
    else:
        if planned.from_run:
            yield f"{job.name}: a new run, {_share(planned)} to run{cluster_of(job)} → {output}"
        else:
            begun = began_at(planned.run_id)
            yield f"{job.name}: resuming the run of {begun} (launch {planned.launch}){cluster_of(job)} → {output}"
        yield from count_lines(planned, name)
    for note in planned.notes:
        yield f"  {clean(note)}"


def count_lines(planned: Planned, name: str) -> Iterator[str]:
    """How many items are kept, and how many run for which reason."""
    plan = planned.plan
    if planned.from_run:
        kept = f"kept from the run of {began_at(planned.from_run)}: {plan.kept:,}"
        counts = [f"{words} {count:,}" for kind, words in _SINCE_LAST_RUN.items() if (count := getattr(plan, kind))]
        if not counts and plan.moved:
            counts = [f"moved {plan.moved:,}"]
        yield f"  {' · '.join([kept, *counts])}"
        yield from old_agent_lines(plan.old_agents, name)
        return
    yield f"  kept {plan.kept:,}, to run {plan.to_run - plan.others:,}"
    for kind, words in _KINDS.items():
        count = getattr(plan, kind)
        if count and kind not in ("kept", "run"):
            yield f"  {words}: {count:,}{_examples(plan.examples.get(kind, ()), count)}"


def old_agent_lines(versions: Mapping[str, int], name: str) -> Iterator[str]:
    """The results that older versions of the agent made, and the command that runs them again."""
    if versions:
        of = ", ".join(f"{count:,} of version {clean(version, limit=40)}" for version, count in versions.items())
        yield f"  by an older agent: {of}"
        yield f"  to run those again: agentrun start {name} --rerun old-agent"


def given_up_words(given_up: GivenUp) -> str:
    """What --fresh gives up, as a list in words."""
    parts = []
    if given_up.finished or given_up.waiting:
        waiting = f" and {given_up.waiting:,} waiting for a person" if given_up.waiting else ""
        finished = counted(given_up.finished, "finished item")
        parts.append(f"the unfinished run of {began_at(given_up.run_id)} with {finished}{waiting}")
    return ", ".join([*parts, given_up.work_of_people] if given_up.work_of_people else parts)


def _share(planned: Planned) -> str:
    plan = planned.plan
    return f"{plan.to_run - plan.others:,} of {counted(plan.total, 'item')}"


def _examples(keys: Sequence[str], count: int) -> str:
    if not keys:
        return ""
    shown = ", ".join(clean(key, limit=60) for key in keys)
    return f" ({shown}{', …' if count > len(keys) else ''})"


def cluster_of(job: Job) -> str:
    """Where the items run, if not on this machine alone."""
    return f" on {clean(job.engine.on)}" if job.engine is not None else ""


def limits_of(job: Job) -> str:
    from agentrun.values.units import format_duration as exactly

    def format_duration(seconds: float) -> str:
        return exactly(seconds).replace("m00s", "m").replace("h00m", "h")

    parts = [f"{job.concurrency} at a time{cluster_of(job)}"]
    parts.append(f"{format_duration(job.timeout_seconds)} per attempt" if job.timeout_seconds else "no timeout")
    parts.append("no retries" if not job.retries else "1 retry" if job.retries == 1 else f"{job.retries} retries")
    if job.rate is not None:
        parts.append(f"at most {job.rate.count} attempts started in {format_duration(job.rate.per_seconds)}")
    if job.tokens is not None:
        parts.append(f"at most {job.tokens.count:,} tokens in {format_duration(job.tokens.per_seconds)}")
    parts.append(f"{job.allow_failures} failures allowed")
    if job.stop_after_failures:
        parts.append(f"stops after {job.stop_after_failures} failures in a row")
    if job.budget is not None:
        parts.append(f"a budget of ${job.budget:,.2f}")
    if job.token_budget is not None:
        parts.append(f"a budget of {job.token_budget:,} tokens")
    if job.item_budget is not None:
        parts.append(f"${job.item_budget:,.2f} per item")
    if job.item_token_budget is not None:
        parts.append(f"{job.item_token_budget:,} tokens per item")
    if job.until is not None:
        parts.append(f"until {job.until.text}")
    if job.max_time_seconds is not None:
        parts.append(f"for {format_duration(job.max_time_seconds)}")
    parts.append(f"{format_duration(job.grace_seconds)} grace")
    return ", ".join(parts)


def source_of(job: Job) -> str:
    if job.items.kind == "python":
        return "from Python, kept with the run"
    where = "standard input" if job.items.pattern == "-" else ", ".join(map(clean, job.items.patterns))
    key = f", key {clean(job.items.key)}" if job.items.key else ""
    without = f", without {', '.join(map(clean, job.items.exclude))}" if job.items.exclude else ""
    return f"{job.items.kind} {where}{key}{without}"


def plan_lines(outlook: Outlook) -> Iterator[str]:
    """The whole plan, for --plan."""
    import shlex

    planned, argv, given_up = outlook.planned, outlook.argv, outlook.given_up
    job, plan = planned.job, planned.plan
    if outlook.nothing is not None:
        from agentrun_cli.drawing.closing import nothing_lines

        yield from nothing_lines(outlook.nothing, job, outlook.name)
    elif planned.from_run:
        yield f"{job.name}: would start a new run, {_share(planned)} to run"
    elif planned.resumed:
        yield f"{job.name}: would resume the run of {began_at(planned.run_id)} (launch {planned.launch})"
    else:
        of = f" of {counted(plan.total, 'item')}" if plan.total else ""
        yield f"{job.name}: would start a new run{of}"
        if planned.last is not None:
            yield f"  the last run {last_run(planned.last)}"
    if given_up:
        asks = "it asks first, or needs --yes" if given_up.needs_agreement else "on a terminal it asks first"
        # A move is among the notes.
        words = given_up_words(given_up)
        yield f"  --fresh gives up {words}; {asks}" if words else f"  --fresh starts over; {asks}"
    rows = [("items", source_of(job))]
    if plan.first_keys:
        more = ", …" if plan.total > len(plan.first_keys) else ""
        rows.append(("first", ", ".join(clean(key, limit=60) for key in plan.first_keys) + more))
    if argv is not None:
        rows.append(("command", clean(shlex.join(argv), limit=2000)))
    else:
        rows.append(("agent", f"{clean(job.agent or agent_of(job))} (version {outlook.version})"))
    rows += [("output", shown_path(planned.output)), ("limits", limits_of(job))]
    for name, text in rows:
        yield f"  {name:<8} {text}"
    if not plan.total:
        yield "  the items are read at the start"
    elif outlook.nothing is None:
        yield from count_lines(planned, outlook.name)
        yield from _example_lines(planned)
    for note in planned.notes:
        yield f"  {clean(note)}"
    if outlook.refusal:
        yield f"this launch would be refused: {clean(outlook.refusal, limit=2000)}"


def _example_lines(planned: Planned) -> Iterator[str]:
    """A few keys for each count of a line that has none."""
    plan = planned.plan
    for kind, words in _SINCE_LAST_RUN.items() if planned.from_run else ():
        if keys := plan.examples.get(kind):
            more = ", …" if getattr(plan, kind) > len(keys) else ""
            yield f"    {words}: {', '.join(clean(key, limit=60) for key in keys)}{more}"


def plan_json(outlook: Outlook) -> dict[str, Any]:
    planned, argv = outlook.planned, outlook.argv
    job, plan = planned.job, planned.plan
    limits = {
        "concurrency": job.concurrency,
        "timeout_seconds": job.timeout_seconds,
        "retries": job.retries,
        "rate": f"{job.rate.count}/{job.rate.per_seconds:g}s" if job.rate else None,
        "allow_failures": str(job.allow_failures),
        "stop_after_failures": job.stop_after_failures,
        "budget": job.budget,
        "token_budget": job.token_budget,
        "grace_seconds": job.grace_seconds,
    }
    return {
        "job": job.name,
        "resumed": planned.resumed,
        "from_run": planned.from_run or None,
        "run_id": planned.run_id if planned.resumed and not planned.from_run else None,
        "launch": planned.launch,
        "items": job.items.identity()["items"],
        "total": plan.total,
        "counts": {
            **{kind: getattr(plan, kind) for kind in _KINDS},
            # Of those to run: which the last run did not have.
            "new": plan.run if planned.from_run else 0,
        },
        "to_run": plan.to_run - plan.others,
        "nothing_to_do": outlook.nothing is not None,
        "kept_old_agent": plan.kept_old_agent,
        "old_agents": plan.old_agents,
        "gives_up": outlook.given_up.as_json() if outlook.given_up else None,
        "first_keys": plan.first_keys,
        "examples": plan.examples,
        "agent": job.agent,
        "model": job.model if job.prompt is not None else None,
        "argv": list(argv) if argv is not None else None,
        "version": outlook.version,
        "output": str(planned.output),
        "limits": limits,
        "notes": list(planned.notes),
        "refused": outlook.refusal or None,
    }


def first_argv(job: Job, item: Item | None) -> list[str] | None:
    """The command line for the first item."""
    if job.command is None:
        return None
    if item is None:
        return list(job.command)
    from agentrun.values.templates import argv_for

    return argv_for(job.command, item)
