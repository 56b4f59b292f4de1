"""agentrun edit: correct an output, or the carry, by hand."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming


def edit(
    job: flags.KnownJob,
    item: confirming.Item = None,
    index: confirming.Index = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="JSON", help="The new output, or @file; otherwise your editor.")
    ] = None,
    carry: Annotated[bool, typer.Option("--carry", help="Edit the carry after the last settled item.")] = False,
    by: confirming.By = None,
    resume: confirming.Resume = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Correct an output in $EDITOR; its item is not run again.

    The output is marked as edited and kept, even if its item changes.

    \b
    agentrun edit triage documents/0007.txt
    agentrun edit triage documents/0007.txt --output '{"category": "urgent"}'
    """
    from agentrun.errors import UsageError
    from agentrun.people import desk
    from agentrun.values.json import is_same
    from agentrun_cli.asking.choosing import open_known, select, warn
    from agentrun_cli.asking.editing import UNCHANGED, edit_value
    from agentrun_cli.terminal import clean, say

    if carry and (item is not None or index is not None):
        raise UsageError("--carry edits the carry after the last settled item; leave out the item")
    known = open_known(job, state_dir, store)
    if resume:
        confirming.check_can_resume(known)
    editable = desk.to_edit(known, None if carry else select(item, index), warn=warn)
    value, name = editable.value, editable.name
    new = _given(output, value) if output is not None else edit_value(value, name=name)
    if new is UNCHANGED or is_same(new, value):
        say(f"{clean(name)}: unchanged")
        return
    posting = desk.edit(editable, new, by=by or "")
    confirming.end(
        known, posting, f"{clean(name)}: your edit is posted", ref=job, state_dir=state_dir, store=store, resume=resume
    )


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
