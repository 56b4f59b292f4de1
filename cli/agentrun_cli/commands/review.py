"""agentrun review: the waiting items one by one, or a list of their questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming as handing_in

if TYPE_CHECKING:
    from agentrun.views.listing import Listing
    from agentrun_cli.asking.choosing import KnownJob


def review(
    job: flags.KnownJob,
    as_list: Annotated[
        bool, typer.Option("--list", help="List the questions, with the commands that answer them.")
    ] = False,
    as_json: flags.AsJson = False,
    by: handing_in.By = None,
    resume: handing_in.Resume = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Answer the questions of waiting items, one by one.

    --list --json: one line per question.
    """
    from agentrun.people.messages import run_of
    from agentrun_cli.asking.choosing import open_items, open_known
    from agentrun_cli.asking.reviewing import Review
    from agentrun_cli.terminal import put, say

    known = open_known(job, state_dir)
    with open_items(known) as listing:
        waiting = listing.counts["waiting"]
        if not waiting:
            say(f"{known.folder.name}: no items are waiting for an answer")
            return
        if as_list or as_json or not handing_in.is_conversation():
            _list(known, listing, as_json=as_json)
            if not (as_list or as_json):
                say("not on a terminal, so the questions are only listed; answer them with the commands above")
            return
        done, interrupted = Review(known, listing, run_of(listing, known.folder.name), handing_in.signed(by)), False
        try:
            done.talk(waiting)
        except KeyboardInterrupt:
            # Answers given so far are posted already.
            interrupted = True
    put("")
    left = waiting - done.answered
    rest = f", {left:,} still waiting" if left else ""
    if done.posted:
        what = f"{handing_in.are(done.posted, 'answer')} posted{rest}"
        handing_in.end(known, what, go_on=resume and not interrupted)
    else:
        say(f"{known.folder.name}: nothing answered{rest}")
    if interrupted:
        raise typer.Exit(130)


def _list(known: KnownJob, listing: Listing, *, as_json: bool) -> None:
    import orjson

    from agentrun.people.messages import answered, posted, question_of
    from agentrun_cli.drawing.questions import how_to_answer, question_json, question_lines
    from agentrun_cli.terminal import clean, put, put_json_lines, say

    before = answered(posted(known.folder))
    for view in listing.items({"waiting"}):
        steps, is_answered = listing.steps(view), question_of(view) in before
        if as_json:
            put_json_lines(orjson.dumps(question_json(known, view, steps, answered=is_answered)) + b"\n")
            continue
        put(clean(view.key, limit=1100) + (" (answered, not processed yet)" if is_answered else ""))
        for line in question_lines(view, steps):
            put(line)
        if not is_answered:
            put(f"  {how_to_answer(known, view)} --yes   (or --no, --text, --json)")
        put("")
    if not as_json:
        say(f"one by one: agentrun review {known.name}; all at once: agentrun answer {known.name} --all --yes")
