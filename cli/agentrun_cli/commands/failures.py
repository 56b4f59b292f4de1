"""agentrun failures: the failed items, by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentrun_cli import flags
from agentrun_cli.hints import how_to_resume

if TYPE_CHECKING:
    from agentrun.views.listing import Listing


def failures(
    job: flags.KnownJob, as_json: flags.AsJson = False, state_dir: flags.StateDir = None, store: flags.Store = None
) -> None:
    """Show the failed items by cause.

    \b
    agentrun failures triage
    agentrun failures triage --json     one line for each item
    """
    from agentrun.agents.loading import RUN_IT_AGAIN
    from agentrun.people.selecting import words_for
    from agentrun.views.causes import group_failures
    from agentrun_cli.asking.choosing import open_items, open_known
    from agentrun_cli.drawing.causes import cause_lines
    from agentrun_cli.terminal import clean, counted, put, say

    known = open_known(job, state_dir, store)
    with open_items(known) as listing:
        if as_json:
            _put_json(listing)
            return
        groups = group_failures(listing.items({"failed"}))
        total, ended = listing.total, not listing.is_unfinished
    count = sum(group.count for group in groups)
    if not count:
        say(f"{known.name}: no items have failed")
        return
    causes = counted(len(groups), "cause")
    put(f"{clean(known.name)}: {count:,} of {counted(total, 'item')} failed, from {causes}")
    for line in cause_lines(groups):
        put(line)
    say()
    say(f"one item:     agentrun show {known.shown} {words_for(groups[0].keys[0], groups[0].index)}")
    if ended:
        say(f"retry:        agentrun start {known.shown}   (this run is finished; a new one starts)")
    else:
        again = how_to_resume(known.shown, known.job.agent if known.job is not None else None, known)
        failed = "failed=True" if again == RUN_IT_AGAIN else "--failed"
        say(f"retry:        {again}   ({failed}: also items that failed in three launches)")


def _put_json(listing: Listing) -> None:
    import orjson

    from agentrun.views.causes import FailureView
    from agentrun_cli.terminal import put_json_lines

    for item in listing.items({"failed"}):
        put_json_lines(orjson.dumps(FailureView(item).as_json()) + b"\n")
