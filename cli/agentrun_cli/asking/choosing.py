"""Which job and which items a person means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrun.people.selecting import Selection
    from agentrun.views.finding import KnownJob
    from agentrun.views.listing import Listing


def open_known(ref: str, state_dir: str | None, store: str | None = None) -> KnownJob:
    """The job to look at; from its records alone, saying why, if its description cannot be read."""
    from dataclasses import replace

    from agentrun.views import finding
    from agentrun_cli.asked import Asked
    from agentrun_cli.hints import how_to_name
    from agentrun_cli.terminal import HERE, clean, say

    known = finding.open_known(ref, HERE, state_dir, store=store)
    if known.problem:
        say(f"{clean(known.problem)}; using only what is on record")
    asked = Asked(ref, state_dir=state_dir, store=store)
    return replace(known, command_name=how_to_name(known.name, known.store.folder, asked))


def open_items(known: KnownJob) -> Listing:
    """The job's items. What is odd about them is said."""
    from agentrun.people import desk

    return desk.open_items(known, warn=warn)


def warn(text: str) -> None:
    """Say what the desk warns of."""
    from agentrun_cli.terminal import clean, say

    say(clean(text))


def select(refs: Sequence[str] | str | None = None, indexes: Sequence[int] | int | None = None) -> Selection:
    """The items that were named on the command line."""
    from agentrun.people.selecting import Selection
    from agentrun_cli.terminal import HERE

    refs = [refs] if isinstance(refs, str) else refs or []
    indexes = [indexes] if isinstance(indexes, int) else indexes or []
    return Selection(items=refs, indexes=indexes, here=HERE)
