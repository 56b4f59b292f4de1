"""agentrun log: what happened to a job, or what an item's attempts printed."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from agentrun.people.selecting import Selection
    from agentrun.views.finding import KnownJob


_PIECE_BYTES = 1 << 16


def log(
    job: flags.KnownJob,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="A key, or a path to the item's file.")] = None,
    index: Annotated[int | None, typer.Option("--index", metavar="N", help="The item's position; 0 is first.")] = None,
    lines: Annotated[
        int | None, typer.Option("-n", "--lines", metavar="N", min=1, help="Only the last N lines.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Follow it, until Ctrl-C; an item until it is settled.")
    ] = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Show a job's launches and stops, or what an item printed.

    \b
    agentrun log triage
    agentrun log triage documents/0007.txt -n 20
    agentrun log triage documents/0007.txt -f

    Inside a program that is an agent, `agentrun log WORDS…` writes a line to its item's log instead.
    """
    from agentrun.views.elsewhere import ran_elsewhere
    from agentrun_cli.asking.choosing import open_known, select
    from agentrun_cli.drawing.log import event_lines
    from agentrun_cli.terminal import put, say

    known = open_known(job, state_dir, store)
    if follow:
        from agentrun_cli.drawing.following import follow_item, follow_job

        is_item = item is not None or index is not None
        with suppress(KeyboardInterrupt):
            follow_item(known, select(item, index), lines) if is_item else follow_job(known, lines)
        return
    if item is not None or index is not None:
        _put_item_log(known, select(item, index), lines)
        return
    with known.store.reader() as reader:
        told, elsewhere = list(event_lines(reader.history())), ran_elsewhere(known.store, reader)
    for line in told if lines is None else told[-lines:]:
        put(line)
    if not told:
        say(f"{known.name}: {_logged_on(elsewhere) if elsewhere else 'nothing has happened yet'}")


def _put_item_log(known: KnownJob, selection: Selection, lines: int | None) -> None:
    from agentrun.people.selecting import select_one
    from agentrun.views.details import item_logs
    from agentrun.views.elsewhere import ran_elsewhere
    from agentrun_cli.asking.choosing import open_items
    from agentrun_cli.terminal import say

    with open_items(known) as listing:
        view = select_one(known, listing, selection)
        elsewhere = ran_elsewhere(known.store, listing.reader)
    printed = 0
    for path in item_logs(known, view):
        if path.is_file():
            with path.open("rb") as file:
                if lines is not None:
                    _seek_last(file, lines)
                printed += _put_bytes(file)
    if not printed and elsewhere and view.state != "pending":
        say(f"{known.name}: {_logged_on(elsewhere)}")
    elif not printed:
        why = {
            "done": "it printed nothing, or its log is no longer kept (keep_logs in the job file)",
            "running": "it has printed nothing yet",
            "pending": "it has not been run yet",
        }.get(view.state, "it printed nothing")
        say(f"{known.name}: this item has no log; {why}")


def _logged_on(elsewhere: str) -> str:
    """Where to look for a log that is not here."""
    from agentrun_cli.terminal import clean

    return f"its logs are not here, but where it ran: the last launch was on {clean(elsewhere, limit=300)}"


def _seek_last(file: BinaryIO, lines: int) -> None:
    """Seek to the start of the last `lines` lines. Logs are bounded, so the whole file is read."""
    data = file.read()
    at = len(data.rstrip(b"\n"))
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            break
    file.seek(at + 1)


def _put_bytes(file: BinaryIO) -> int:
    """Print the file; on a terminal without control codes."""
    from agentrun_cli.terminal import clean_text, put_bytes

    printed = 0
    for line in file:
        printed += len(line)
        if sys.stdout.isatty():
            line = clean_text(line[:_PIECE_BYTES].decode("utf-8", "replace")).encode()
        put_bytes(line)
    return printed
