"""agentrun review: the waiting items one by one, or a list of their questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming

if TYPE_CHECKING:
    from agentrun.views.finding import KnownJob
    from agentrun.views.listing import Listing


def review(
    job: flags.KnownJob,
    as_list: Annotated[
        bool, typer.Option("--list", help="List the questions, with the commands that answer them.")
    ] = False,
    as_json: flags.AsJson = False,
    by: confirming.By = None,
    resume: confirming.Resume = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Answer the questions of waiting items, one by one.

    \b
    agentrun review drafts
    agentrun review drafts --resume
    agentrun review drafts --list --json     one line for each question
    """
    from agentrun.people import desk
    from agentrun_cli.asking.choosing import open_items, open_known
    from agentrun_cli.asking.reviewing import Review
    from agentrun_cli.terminal import put, say

    known = open_known(job, state_dir, store)
    if resume:
        confirming.check_can_resume(known)
    desk.check_here(known)
    with open_items(known) as listing:
        waiting = listing.counts["waiting"]
        if not waiting:
            say(f"{known.name}: no items are waiting for an answer")
            return
        if as_list or as_json or not confirming.is_conversation():
            _list(known, listing, as_json=as_json)
            if not (as_list or as_json):
                say("not on a terminal, so the questions are only listed; answer them with the commands above")
            return
        review, interrupted = Review(known, listing, by or ""), False
        try:
            review.talk(waiting)
        except KeyboardInterrupt:
            # Answers given so far are posted already.
            interrupted = True
    put("")
    left = waiting - review.answered
    rest = f", {left:,} still waiting" if left else ""
    if review.posting is not None and review.posted:
        what, resume = f"{confirming.are(review.posted, 'answer')} posted{rest}", resume and not interrupted
        confirming.end(known, review.posting, what, ref=job, state_dir=state_dir, store=store, resume=resume)
    else:
        say(f"{known.name}: nothing answered{rest}")
    if interrupted:
        raise typer.Exit(130)


def _list(known: KnownJob, listing: Listing, *, as_json: bool) -> None:
    import orjson

    from agentrun.people import desk
    from agentrun_cli.drawing.questions import how_to_answer, question_lines
    from agentrun_cli.terminal import clean, put, put_json_lines, say

    for one in desk.questions(known, listing):
        command = how_to_answer(known, one.key, one.index)
        if as_json:
            put_json_lines(orjson.dumps(one.as_json() | {"command": f"{command} --yes"}) + b"\n")
            continue
        put(clean(one.key, limit=1100) + (" (answered, not processed yet)" if one.is_answered else ""))
        for line in question_lines(one.question, one.steps):
            put(line)
        if not one.is_answered:
            put(f"  {command} --yes   (or --no, --text, --json)")
        put("")
    if not as_json:
        say(f"one by one: agentrun review {known.shown}; all at once: agentrun answer {known.shown} --all --yes")
