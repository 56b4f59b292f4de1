"""agentrun edit: correct an output, or the carry, by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming as handing_in

if TYPE_CHECKING:
    from agentrun.views.item import ItemView
    from agentrun.views.listing import Listing
    from agentrun_cli.asking.choosing import KnownJob


def edit(
    job: flags.KnownJob,
    item: handing_in.Item = None,
    index: handing_in.Index = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="JSON", help="The new output, or @file; otherwise your editor.")
    ] = None,
    carry: Annotated[bool, typer.Option("--carry", help="Edit the carry after the last settled item.")] = False,
    by: handing_in.By = None,
    resume: handing_in.Resume = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Correct an output in $EDITOR; its item is not run again.

    The output is marked as edited and kept, even if its item changes.

    \b
    agentrun edit triage documents/0007.txt
    agentrun edit triage documents/0007.txt --output '{"category": "urgent"}'
    """
    from agentrun.errors import UsageError
    from agentrun.people.messages import carry_message, edit_message, run_of
    from agentrun.values.json import is_same
    from agentrun_cli.asking.choosing import choose_view, open_items, open_known
    from agentrun_cli.asking.editing import UNCHANGED, edit_value
    from agentrun_cli.terminal import clean, say

    if carry and (item is not None or index is not None):
        raise UsageError("--carry edits the carry after the last settled item; leave out the item")
    known, who = open_known(job, state_dir), handing_in.signed(by)
    with open_items(known) as listing:
        run_id = run_of(listing, known.folder.name)
        view = _last_settled(known, listing) if carry else choose_view(known, listing, item, index)
    _check_done(known, view)
    assert view.record is not None
    value = view.record.get("carry" if carry else "output")
    name = f"the carry after {view.key}" if carry else view.key
    new = _given(output, value) if output is not None else edit_value(value, name=name)
    if new is UNCHANGED or is_same(new, value):
        say(f"{clean(name)}: unchanged")
        return
    make: Any = {"carry": new} if carry else {"output": new}
    message = (carry_message if carry else edit_message)(view, run_id, by=who, **make)
    handing_in.hand_in(known, [message])
    handing_in.end(known, f"{clean(name)}: your edit is posted", go_on=resume, at_launch=carry)


def _check_done(known: KnownJob, view: ItemView) -> None:
    from agentrun.errors import UsageError
    from agentrun_cli.asking.choosing import words_for

    if view.state == "done":
        return
    command = f"{known.name} {words_for(view.key, view.index)}"
    what = {
        "waiting": f"answer it with: agentrun answer {command}",
        "failed": f"run it again with: agentrun redo {command}; or settle it with: agentrun skip {command}",
        "skipped": f"run it again with: agentrun redo {command}",
    }.get(view.state, "edit it once it is done")
    raise UsageError(f"{known.folder.name}: {view.key} is {view.state} and has no output to edit; {what}")


def _last_settled(known: KnownJob, listing: Listing) -> ItemView:
    """The item whose carry the next one gets."""
    from agentrun.errors import UsageError

    name, last = known.folder.name, None
    if known.job is not None and not known.job.carry:
        raise UsageError(f"{name}: this job has no carry; that needs carry = true in the job file")
    for view in listing.items():
        if view.state not in ("done", "failed", "skipped"):
            break
        last = view
    if last is None:
        raise UsageError(f"{name}: no item is settled yet, so there is no carry")
    return last


def _given(output: str, value: Any) -> Any:
    """The value of --output: JSON, or @file. A file that replaces text is text, unless its name ends in .json."""
    from agentrun.errors import UsageError
    from agentrun.values.json import parse_value
    from agentrun_cli.terminal import HERE, shown_path

    where, text = "--output", output
    if output.startswith("@"):
        where = shown_path(HERE / output[1:])
        try:
            text = (HERE / output[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{where}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
        if isinstance(value, str) and not output.endswith(".json"):
            return text
    try:
        return parse_value(text)
    except ValueError as error:
        raise UsageError(f'{where}: {error}; text must be JSON too: "…"') from None
