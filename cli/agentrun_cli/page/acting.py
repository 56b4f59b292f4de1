"""What the buttons do: messages to the inbox, and the launch of a job that is known here. Nothing else is written."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from agentrun.errors import UsageError
from agentrun.people import desk
from agentrun.people.desk import Posting, Selection
from agentrun.views.finding import KnownJob
from agentrun.views.listing import Listing
from agentrun_cli.background import launch_in_background
from agentrun_cli.page.frame import document
from agentrun_cli.page.markup import h, url
from agentrun_cli.page.visit import Visit, items_mark

_RELOAD = "nothing was posted; go back and reload"


def redo(visit: Visit) -> Response:
    """Start over the items of a cause, or one item."""
    known = visit.job()
    with visit.place.items(known) as listing:
        selection = _selected(visit, listing)
        posting = desk.redo(known, selection, now=True, by=visit.by, agree=_those_shown(visit), listing=listing)
    return _back(visit, known, "redo", posting)


def skip(visit: Visit) -> Response:
    """Settle the items of a cause, or one item, without a result."""
    known, reason = visit.job(), visit.form.get("reason", "").strip()
    with visit.place.items(known) as listing:
        selection = _selected(visit, listing)
        agree = _those_shown(visit)
        posting = desk.skip(known, selection, reason=reason, by=visit.by, agree=agree, listing=listing)
    return _back(visit, known, "skip", posting)


def _selected(visit: Visit, listing: Listing) -> Selection:
    if cause := visit.form.get("cause"):
        return Selection(cause_id=cause)
    view = visit.item(listing)
    # Somebody who wants to run a failed item again has not agreed to give up the result that it has by now.
    if (view.state, str(view.gen)) != (visit.form.get("state"), visit.form.get("generation")):
        raise UsageError(f"the item has changed since this page was made, and is {view.state} now; {_RELOAD}")
    return Selection(indexes=[view.index])


def _those_shown(visit: Visit) -> desk.Agree:
    """What a person agreed to is what the page showed: not more, not fewer, not others."""

    def agree(items: desk.Items) -> bool:
        if visit.form.get("cause") and items_mark(one.key for one in items) != visit.form.get("mark"):
            raise UsageError(
                "the items of this cause are no longer those that the page showed; "
                f"there are {len(items):,} by now; {_RELOAD}"
            )
        return True

    return agree


def _back(visit: Visit, known: KnownJob, what: str, posting: Posting) -> Response:
    """To the page that the form was on."""
    when = "now" if posting.holder is not None and not posting.waits_for_launch else "later"
    at = ["failures"] if visit.form.get("cause") else ["items", str(visit.number("item"))]
    count = len(posting.items)
    return RedirectResponse(url("jobs", known.name, *at, said=what, count=count, when=when), 303)


def resume(visit: Visit) -> Response:
    """Continue the job in the background, as `agentrun resume` would."""
    known, root = visit.job(), visit.place.root
    # In the state folder a name means the job of that name: there are no job files that it could be the path of.
    launched = launch_in_background(["resume", known.name, "--state-dir", str(root), "--if-free"], folder=root)
    if launched.exit_code == 0:
        said = "resume" if visit.place.view(known).status == "running" else "ended"
        return RedirectResponse(url("jobs", known.name, said=said), 303)
    body = h(
        '<h1>It did not start</h1><p class="stands">It ended with exit code {code}, and said:</p>'
        '<pre tabindex="0">{said}</pre><p><a class="button" href="{href}">Back to the job</a></p>',
        code=launched.exit_code,
        said=launched.said.strip(),
        href=url("jobs", known.name),
    )
    return document(f"{known.name}: not started", body, view=visit.place.view(known), status=409)
