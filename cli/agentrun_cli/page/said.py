"""What a person just did, said on the page that follows. The address carries which, never the words."""

from __future__ import annotations

from agentrun_cli.page.frame import counted, note
from agentrun_cli.page.markup import NOTHING, Html
from agentrun_cli.page.visit import Visit

_RUNNER = {
    "now": "the runner at work takes it up within two seconds",
    "later": "the next launch does that; Continue starts it",
}


def words_of(visit: Visit) -> Html:
    """A note on what was done; nothing without it."""
    count, when = visit.number("count", 1), _RUNNER.get(visit.query.get("when", ""), "")
    match visit.query.get("said"):
        case "redo":
            return note(f"{counted(count, 'item')} will run again: {when}.", "good")
        case "skip":
            return note(f"{counted(count, 'item')} will be skipped: {when}.", "good")
        case "resume":
            return note("It continues in the background, also when this page is closed.", "good")
        case "ended":
            return note("The launch has ended already. This is how the job stands now.")
        case _:
            return NOTHING
