"""Recovery: from what is on disk and in the source to where a run stands. It changes nothing on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.ledger import OWN, PENDING, Ledger
from agentrun.checkpoint.message import AnswerMessage
from agentrun.checkpoint.record import BESIDE
from agentrun.checkpoint.summary import Summary
from agentrun.errors import ItemsError, PlanError
from agentrun.item import key_digest
from agentrun.items.open import Source, open_source
from agentrun.job.fields import AGENTS
from agentrun.job.job import STANDARD_INPUT, Job
from agentrun.job.naming import same_value
from agentrun.job.options import Options
from agentrun.outputs.claim import claim_path
from agentrun.outputs.files import files_folder
from agentrun.outputs.output import Output, open_output
from agentrun.runs.carry import CarryChain, go_back
from agentrun.runs.intake import Kept, Taken, forget, is_for, look_up, mark_edits, start_over, take
from agentrun.runs.only import Only, Pilot, Selection
from agentrun.runs.places import Place, check_same_place
from agentrun.runs.plan import (
    EXAMPLES,
    Plan,
    bucket_of,
    identify_items,
    is_mostly_again,
    is_tried_again,
    list_items,
    recount,
    too_much_gone,
)
from agentrun.runs.reuse import Keeping, count_kept, miss_files
from agentrun.runs.run import Run
from agentrun.store.port import Posted, Store
from agentrun.system.process import boot_id
from agentrun.values.clock import now_seconds
from agentrun.values.text import quoted


def recover(
    kept: Kept,
    job: Job,
    source: Source,
    checkpoint: Checkpoint,
    *,
    agent: str,
    options: Options,
    finished: Summary | None = None,
    place: Place | None = None,
) -> Run:
    """Work out what is done from the records, and what is to be done from the source.

    `kept` has the records of an unfinished run, or those of the run `finished`, which the new run continues. `place`
    is where the job is, for a store that has a folder.
    """
    is_resumed = bool(checkpoint.seq)
    if is_resumed:
        check_same_job(job, checkpoint.context.identity, "an unfinished run")
        check_same_place(job, place, checkpoint.context.place, "an unfinished run", options)
    elif finished is not None:
        check_same_task(job, finished)
        check_same_place(job, place, finished.place, "the last run", options)
    total = finished.total if finished is not None else checkpoint.total
    ledger, chain = Ledger(total, run=checkpoint.context.number), CarryChain()
    has_records = is_resumed or finished is not None
    keeping = Keeping.of(job, options, agent=agent, now=now_seconds(), is_new_run=not is_resumed)
    newest_seq = _apply_records(kept, ledger, chain if job.carry else None, keeping) if has_records else 0
    if finished is not None:
        checkpoint.seq = newest_seq
        miss_files(ledger, kept, checkpoint.context.files_from)

    def tries_again(row: int) -> bool:
        return is_tried_again(ledger, row, agent=agent, retry_all=options.failed, carries=job.carry)

    posted = kept.inbox() if has_records else []
    mark_edits(ledger, posted, kept)
    left_out = {ledger.find(bytes.fromhex(digest)) for digest in finished.gone} if finished is not None else set()
    only = Only(options.only) if options.only else None
    plan = list_items(
        source, ledger, tries_again=tries_again, keep_changed=job.keep_changed, left_out=left_out, only=only
    )
    if finished is not None and plan.moved and ledger.order_digest() == finished.order:
        # Their records name older positions: they moved while that run was unfinished.
        plan.moved = 0
        del plan.examples["moved"]
    plan.examples["gone"] = [record.key for record in kept.read(plan.gone_refs)]
    check_plan(plan, source, accepted=checkpoint.context.gone, options=options, is_new_run=not is_resumed)
    if only is not None:
        check_only(job, plan, only)
    run = Run(job, agent, checkpoint, is_resumed, ledger, plan, only)
    if has_records:
        _take_in(kept, run, posted, chain, tries_again, forget_steps=options.forget_steps)
    if is_resumed:
        run.taken += start_over(run, kept)
    if job.carry:
        _find_carry(kept, run, chain, retry_failed=options.failed)
        if finished is not None:
            check_carry(job, plan)
    run.to_retry = {row for row in ledger.failed_launches if ledger.is_listed(row) and tries_again(row)}
    if is_resumed:
        _count_deaths(run)
        _note_versions(run)
    if options.pilot is not None:
        check_pilot(job)
        run.only = Pilot(_to_run(run), options.pilot, seed=run.run_id)
    if run.only is not None:
        _leave_others(run, run.only)
    if finished is not None:
        counted = count_kept(run)
        plan.kept_old_agent, plan.old_agents = counted.old_agent, dict(counted.old_agents)
    return run


def _apply_records(kept: Kept, ledger: Ledger, chain: CarryChain | None, keeping: Keeping | None) -> int:
    """Work out what is done from the records; returns the highest of their numbers."""
    newest = 0
    for ref, record in kept.scan():
        row = ledger.apply(ref, record)
        if chain is not None:
            chain.note(row, record)
        if record.seq > newest:
            newest = record.seq
        if keeping is not None:
            ledger.origins[row] = keeping.origin(record, is_earlier=ledger.origins[row] != OWN)
    for row in [row for row in ledger.usages if ledger.origins[row] != OWN]:
        # What earlier runs paid is in their own totals.
        del ledger.usages[row]
    return newest


def has_messages(finished: Summary | None, posted: Sequence[Posted]) -> bool:
    """Whether people want something of the finished run redone, edited or skipped."""
    if finished is None:
        return False
    messages = [one.message for one in posted if one.message is not None]
    series = finished.series or finished.run_id
    return any(is_for(one, finished.run_id, series) and not isinstance(one, AnswerMessage) for one in messages)


def _take_in(
    kept: Kept,
    run: Run,
    posted: Sequence[Posted],
    chain: CarryChain,
    tries_again: Callable[[int], bool],
    *,
    forget_steps: bool,
) -> None:
    """Count in what people have posted, so that the plan shows it. It is committed when the launch begins."""
    newest, steps = look_up(run, kept, posted)
    run.taken = take(run, posted, newest=newest, steps=steps, is_launch=True)
    taken = [one for one in run.taken if isinstance(one, Taken)]
    if forget_steps:
        begun = {one.row for one in taken}
        taken += (forgotten := forget(run, [row for row in run.ledger.steps if row not in begun], kept))
        run.taken += forgotten
    for one in taken:
        record = one.records[0]
        run.refs_before[one.row] = run.ledger.refs[one.row]
        before = "kept_changed" if one.row in run.plan.contents_now else bucket_of(run.ledger, one.row, tries_again)
        run.count(one.row, record)
        is_kept = one.row in run.plan.contents_now
        after = "kept_changed" if is_kept else bucket_of(run.ledger, one.row, tries_again)
        recount(run.plan, record.key, before, "redone" if record.kind == "redo" else after)
        if run.job.carry and record.kind not in BESIDE:
            # What follows an edited carry is run again: no record comes after this seq.
            chain.note(one.row, structs.replace(record, as_=-1) if record.as_ is None else record)
            if record.as_ is None:
                run.carry_row = one.row
    counts = Counter(_DONE_BY_PEOPLE[kind] for one in taken if (kind := one.records[0].kind) in _DONE_BY_PEOPLE)
    run.notes += [f"{what}: {count}" for what, count in counts.items()]


_DONE_BY_PEOPLE = {
    "answer": "answered, so they continue",
    "done": "edited by hand",
    "skipped": "skipped by hand",
}


def open_items(
    job: Job, checkpoint: Checkpoint, *, ended: Sequence[Summary], folder: Path | None, spool: Path | None
) -> Source | None:
    """The job's items, never its own results or state; None if they come from outside and none were kept yet.

    `folder` is where the job's state is, `spool` the local file that items from outside were written to.
    """
    if spool is None and (job.items.kind == "python" or job.items.pattern == STANDARD_INPUT):
        return None
    when = {"run_id": checkpoint.run_id, "date": checkpoint.context.date}
    own = [job.output_path(**when), *(Path(one.output.path) for one in ended if one.output is not None)]
    own += [job.partial_path(**when), *map(files_folder, own), *map(claim_path, own)]
    return open_source(job.items, job.base, exclude=[*([folder] if folder else []), *own], spool=spool)


def run_output(job: Job, store: Store, checkpoint: Checkpoint, *, options: Options) -> Output:
    """Where the run puts its results."""
    context = checkpoint.context
    overwrite = options.overwrite or context.overwrite
    return open_output(job, store, run_id=checkpoint.run_id, date=context.date, overwrite=overwrite)


def check_run_output(output: Output, checkpoint: Checkpoint, *, ended: Sequence[Summary], options: Options) -> None:
    """Check before the first item runs that the results can be written, and may be."""
    context = checkpoint.context
    output.check(
        ended=ended,
        # Renamed into place by a launch that died before its summary could say so.
        is_own=context.completing == str(output.path),
        is_first_launch=not context.launches and not options.fresh,
    )


def check_item_files(run: Run, source: Source, output: Output) -> None:
    """The same for the file of each item, where they have one each; what is odd about their names is noted."""
    if output.form == "folder":
        found = partial(identify_items, source, run.ledger)
        run.notes += output.check_items(lambda: ((index, one[1]) for index, one in enumerate(found())))


def check_same_job(
    job: Job, was: Mapping[str, Any], which: str, names: Sequence[str] = ("items", "exclude", "key", *AGENTS, "params")
) -> None:
    """Another item pattern, agent or params under the name of an unfinished run: somebody would lose results."""
    now = job.identity()
    if was.get("prompt") is True and now.get("prompt"):
        # Older versions wrote down only that there was one.
        was = {**was, "prompt": now["prompt"]}
    for name in names if was else ():
        if same_value(name, was.get(name), job.base) != same_value(name, now.get(name), job.base):
            raise PlanError(
                f"{job.name}: {which} of this name has {name} = {quoted(was.get(name))}, "
                f"but this one has {quoted(now.get(name))}; give this one a name of its own with --name, "
                f"or start over with --fresh"
            )


def check_same_task(job: Job, finished: Summary) -> None:
    """A job file may change in any way after a finished run. Without one, another task is another job, whose results
    must not be mixed with those of the last run."""
    if job.file is None and finished.identity:
        check_same_job(job, finished.identity, "the last run", tuple(AGENTS))
        items = finished.identity.get("items")
        was, now = str(items[0] if isinstance(items, list) else items).partition(":")[0], job.items.kind
        if was != now:
            raise PlanError(
                f"{job.name}: the items of the last run of this name were {was}, but now they are {now}; "
                f"give this job a name of its own with --name, or start over with --fresh"
            )


def check_carry(job: Job, plan: Plan) -> None:
    """With a carry, one change runs everything behind it again: after a finished run that takes a word."""
    if is_mostly_again(plan):
        raise PlanError(
            f"{job.name}: {plan.to_run} items would run again, because items changed that the carry passes through; "
            f"run everything again with --fresh, or put the items back"
        )


def check_plan(plan: Plan, source: Source, *, accepted: int, options: Options, is_new_run: bool) -> None:
    if not plan.total:
        raise ItemsError(f"{source.describe()}; there is nothing to run")
    # A new run over an inbox that was emptied and filled again is as it should be.
    is_replaced = is_new_run and plan.run
    if not options.allow_gone and not is_replaced and too_much_gone(plan, accepted=accepted):
        examples = ", ".join(plan.examples.get("gone", []))
        more = ", …" if plan.gone > EXAMPLES else ""
        raise PlanError(
            f"{plan.gone} of {plan.finished} finished items are no longer in the source ({examples}{more}) and would "
            f"be left out of the results; bring them back, or continue without them with --allow-gone"
        )


def check_only(job: Job, plan: Plan, only: Only) -> None:
    """A pattern that matches nothing is a slip; and with a carry, items cannot be picked."""
    if job.carry:
        raise PlanError(
            f"{job.name}: --only cannot be used with carry = true, because each item gets the carry of the one before "
            f"it; limit this launch with --limit"
        )
    if only.unmatched:
        more = ", …" if plan.total > len(plan.first_keys) else ""
        raise PlanError(
            f"{job.name}: no item matches --only {quoted(only.unmatched[0])}; keys are such as "
            f"{', '.join(plan.first_keys)}{more}"
        )


def check_pilot(job: Job) -> None:
    if job.carry:
        raise PlanError(
            f"{job.name}: --pilot cannot be used with carry = true, because each item gets the carry of the one before "
            f"it; run the first few with --limit"
        )


def _to_run(run: Run) -> Iterator[int]:
    """The rows that a launch without limits would run, in the items' order."""
    ledger = run.ledger
    return (row for row in ledger.order if ledger.states[row] == PENDING or row in run.to_retry if row not in run.dead)


def _leave_others(run: Run, only: Selection) -> None:
    """The other items stay as they are in this launch."""
    run.plan.others = only.left_out(run.ledger) + sum(row not in only for row in run.to_retry)
    run.to_retry = {row for row in run.to_retry if row in only}
    run.suspects = {row for row in run.suspects if row in only}


def _find_carry(kept: Kept, run: Run, chain: CarryChain, *, retry_failed: bool) -> None:
    ledger = run.ledger
    at = chain.first_break(ledger, retry_failed=retry_failed)
    go_back(ledger, run.plan, at)
    if at:
        row = ledger.order[at - 1]
        # An edited one is not on disk yet; the seq of an edited carry is known when it is.
        edited = next((one.records[0] for one in run.taken if isinstance(one, Taken) and one.row == row), None)
        record = edited or next(kept.read([ledger.refs[row]]))
        run.carry, run.last_seq = record.carry, record.seq if record.as_ is None else record.as_


def _count_deaths(run: Run) -> None:
    """Each item that was in flight when the last launch died has one death more; not after a reboot."""
    limit, ledger, context = run.job.crash_limit, run.ledger, run.context
    if not limit:
        return
    deaths = dict(context.deaths)
    if context.boot == boot_id():
        for item in run.checkpoint.running:
            deaths[item.key] = deaths.get(item.key, 0) + 1
    for key, count in deaths.items():
        row = ledger.find(key_digest(key))
        if row < 0 or not ledger.is_listed(row) or not (ledger.states[row] == PENDING or row in run.to_retry):
            continue
        run.deaths[key] = count
        # With a carry every item runs alone, and in its place: its turn has come only when it is the next one.
        if count >= limit and (not run.job.carry or ledger.positions[row] == ledger.last_completed + 1):
            run.dead[row] = key
        elif count >= limit - 1 and not run.job.carry:
            run.suspects.add(row)
    if run.suspects:
        run.notes.append(f"in flight at {limit - 1} crashes, so run alone and last: {len(run.suspects)}")


def _note_versions(run: Run) -> None:
    was, versions = run.context.agent, run.ledger.versions
    if was and was != run.agent and versions:
        of = ", ".join(f"{count} of {name}" for name, count in versions.items())
        run.notes.append(f"the agent has changed (now version {run.agent}); results span versions: {of}")
