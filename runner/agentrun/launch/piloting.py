"""The end of a launch that is limited to some items: of a pilot, with what its items say about the rest."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence

from agentrun.checkpoint.record import Record
from agentrun.launch.stopping import StopReason
from agentrun.money.budget import DOLLARS
from agentrun.money.estimate import Estimate, Sample, estimate
from agentrun.money.usage import format_cost
from agentrun.runs.only import Pilot, Selection
from agentrun.runs.run import Run


async def selection_is_over(
    run: Run, only: Selection, read: Callable[[Sequence[int]], Awaitable[Sequence[Record]]]
) -> tuple[StopReason, Estimate | None]:
    """Why the launch stops, and after a pilot the estimate. `read` gives the records at some refs."""
    if isinstance(only, Pilot):
        found = estimate_rest(run, await read(only.refs(run.ledger)))
        return pilot_is_over(run, found), found
    return StopReason(4, f"the items of --only are settled; {_others(run)}", by=only.by), None


def _others(run: Run) -> str:
    left = run.ledger.counts["pending"]
    return f"{left:,} other{'s are' if left > 1 else ' is'} pending"


def estimate_rest(run: Run, records: Iterable[Record]) -> Estimate:
    """What the pending items will take, if they are like those of these records."""
    job = run.job
    return estimate(
        [_sample(record) for record in records],
        rest=run.ledger.counts["pending"],
        concurrency=job.concurrency,
        seconds_between=job.rate.per_seconds / job.rate.count if job.rate is not None else 0.0,
        seed=run.run_id,
    )


def _sample(record: Record) -> Sample:
    seconds = record.seconds
    if len(tries := record.tries) > 1:
        # From the first attempt to the last, with the waits between them.
        seconds = max(sum(one.seconds for one in tries), tries[-1].at + tries[-1].seconds - tries[0].at)
    cause = record.error.cause if record.kind == "failed" and record.error is not None else ""
    return Sample(record.kind, seconds, record.usage, cause)


def pilot_is_over(run: Run, found: Estimate) -> StopReason:
    """Why the launch stops: the items of the pilot are settled; or the budget is below what the rest takes at least."""
    text = f"the pilot of {found.items:,} is over; {_others(run)}"
    flags = []
    for measure, limit in run.purse.limits:
        rest, spent = found.cost if measure is DOLLARS else found.tokens, measure.total_in(run.purse.totals)
        if rest is None or spent + rest.low <= limit:
            continue
        if measure is DOLLARS:
            what = f"{format_cost(limit)}, with {format_cost(spent)} spent, and the rest takes {format_cost(rest.low)}"
            flags.append(f"--budget {math.ceil(100 * (spent + rest.high)) / 100:g}")
        else:
            what = f"{limit:,.0f} tokens, with {spent:,.0f} used, and the rest takes {rest.low:,.0f}"
            flags.append(f"--token-budget {math.ceil(spent + rest.high)}")
        text = f"the budget is too low for the rest: it is {what} or more"
    return StopReason(4, text, "raise it to continue" if flags else "", flags=" ".join(flags), by="pilot")
