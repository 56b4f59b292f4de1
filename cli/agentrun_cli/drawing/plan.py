"""A plan in words: what a launch will keep, run, run again and leave out, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agentrun_cli.terminal import ago, clean, counted, shown_path

if TYPE_CHECKING:
    from agentrun.events import Planned
    from agentrun.item import Item
    from agentrun.job.job import Job
    from agentrun.views.jobs import Summary


_KINDS = {
    "kept": "kept",
    "run": "to run",
    "changed": "changed, run again",
    "again": "run again because the carry before them changes",
    "too_old": "older than max_age, run again",
    "other_params": "made with other params, run again",
    "rerun": "run again on purpose (--rerun)",
    "files_missing": "files of their results are missing or changed, run again",
    "failed": "failed before, retried last",
    "left": "failed before, left (--failed retries them)",
    "kept_changed": "changed, but kept (--keep-changed)",
    "waiting": "waiting for a person",
    "others": "left for another launch (--only)",
    "gone": "gone from the source, left out",
    "moved": "moved, their results kept",
}


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


def opening_lines(planned: Planned) -> Iterator[str]:
    """The lines printed before anything is spent."""
    job, plan, output = planned.job, planned.plan, shown_path(planned.output)
    if not planned.resumed:
        at_a_time = f", {job.concurrency} at a time" if job.concurrency > 1 else ""
        yield f"{job.name}: {counted(plan.total, 'item')}, {agent_of(job)}{at_a_time} → {output}"
        if planned.last is not None:
            yield f"  the last run {last_run(planned.last)}"
        if plan.others:
            yield f"  {_KINDS['others']}: {plan.others:,}"
    else:
        if planned.from_run:
            yield f"{job.name}: a new run, with the results of the run of {began_at(planned.from_run)} → {output}"
        else:
            begun = began_at(planned.run_id)
            yield f"{job.name}: resuming the run of {begun} (launch {planned.launch}) → {output}"
        yield from count_lines(planned)
    for note in planned.notes:
        yield f"  {clean(note)}"


def count_lines(planned: Planned) -> Iterator[str]:
    plan = planned.plan
    yield f"  kept {plan.kept:,}, to run {plan.run:,}"
    if plan.kept_old_agent:
        yield f"  kept, but by an older agent: {plan.kept_old_agent:,} (--rerun old-agent runs them again)"
    for kind, words in _KINDS.items():
        count = getattr(plan, kind)
        if count and kind not in ("kept", "run"):
            yield f"  {words}: {count:,}{_examples(plan.examples.get(kind, ()), count)}"


def _examples(keys: Sequence[str], count: int) -> str:
    if not keys:
        return ""
    shown = ", ".join(clean(key, limit=60) for key in keys)
    return f" ({shown}{', …' if count > len(keys) else ''})"


def limits_of(job: Job) -> str:
    from agentrun.values.units import format_duration as exactly

    def format_duration(seconds: float) -> str:
        return exactly(seconds).replace("m00s", "m").replace("h00m", "h")

    parts = [f"{job.concurrency} at a time"]
    parts.append(f"{format_duration(job.timeout_seconds)} per attempt" if job.timeout_seconds else "no timeout")
    parts.append("no retries" if not job.retries else "1 retry" if job.retries == 1 else f"{job.retries} retries")
    if job.rate is not None:
        parts.append(f"at most {job.rate.count} attempts started in {format_duration(job.rate.per_seconds)}")
    parts.append(f"{job.allow_failures} failures allowed")
    if job.stop_after_failures:
        parts.append(f"stops after {job.stop_after_failures} failures in a row")
    if job.budget is not None:
        parts.append(f"a budget of ${job.budget:,.2f}")
    if job.token_budget is not None:
        parts.append(f"a budget of {job.token_budget:,} tokens")
    parts.append(f"{format_duration(job.grace_seconds)} grace")
    return ", ".join(parts)


def source_of(job: Job) -> str:
    if job.items.kind == "python":
        return "from Python, kept with the run"
    where = "standard input" if job.items.pattern == "-" else clean(job.items.pattern)
    key = f", key {clean(job.items.key)}" if job.items.key else ""
    return f"{job.items.kind} {where}{key}"


def plan_lines(
    planned: Planned, *, argv: Sequence[str] | None, refusal: str, version: str, is_nothing: bool
) -> Iterator[str]:
    """The whole plan, for --plan."""
    import shlex

    job, plan = planned.job, planned.plan
    if is_nothing:
        kept = counted(plan.kept, "result")
        yield f"{job.name}: would run nothing; {kept} are kept from the run of {began_at(planned.from_run)}"
    elif planned.from_run:
        yield f"{job.name}: would start a new run, with the results of the run of {began_at(planned.from_run)}"
    elif planned.resumed:
        yield f"{job.name}: would resume the run of {began_at(planned.run_id)} (launch {planned.launch})"
    else:
        of = f" of {counted(plan.total, 'item')}" if plan.total else ""
        yield f"{job.name}: would start a new run{of}"
        if planned.last is not None:
            yield f"  the last run {last_run(planned.last)}"
    rows = [("items", source_of(job))]
    if plan.first_keys:
        more = ", …" if plan.total > len(plan.first_keys) else ""
        rows.append(("first", ", ".join(clean(key, limit=60) for key in plan.first_keys) + more))
    if argv is not None:
        rows.append(("command", clean(shlex.join(argv), limit=2000)))
    else:
        rows.append(("agent", f"{clean(job.agent or agent_of(job))} (version {version})"))
    rows += [("output", shown_path(planned.output)), ("limits", limits_of(job))]
    for name, text in rows:
        yield f"  {name:<8} {text}"
    if not plan.total:
        yield "  the items are read at the start"
    else:
        yield from count_lines(planned)
    for note in planned.notes:
        yield f"  {clean(note)}"
    if refusal:
        yield f"this launch would be refused: {clean(refusal, limit=2000)}"


def plan_json(
    planned: Planned, *, argv: Sequence[str] | None, refusal: str, version: str, is_nothing: bool
) -> dict[str, Any]:
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
        "run_id": planned.run_id if planned.resumed else None,
        "launch": planned.launch,
        "items": str(job.items),
        "total": plan.total,
        "counts": {kind: getattr(plan, kind) for kind in _KINDS},
        "to_run": plan.to_run,
        "nothing_to_do": is_nothing,
        "kept_old_agent": plan.kept_old_agent,
        "first_keys": plan.first_keys,
        "examples": plan.examples,
        "agent": job.agent,
        "model": job.model if job.prompt is not None else None,
        "argv": list(argv) if argv is not None else None,
        "version": version,
        "output": str(planned.output),
        "limits": limits,
        "notes": list(planned.notes),
        "refused": refusal or None,
    }


def first_argv(job: Job, item: Item | None) -> list[str] | None:
    """The command line for the first item."""
    if job.command is None:
        return None
    if item is None:
        return list(job.command)
    from agentrun.values.templates import argv_for

    return argv_for(job.command, item)
