"""agentrun log: what happened to a job, or what an item's attempts printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from agentrun_cli.asking.choosing import KnownJob


_PIECE_BYTES = 1 << 16
_END_BYTES = 64 * 1024


def log(
    job: flags.KnownJob,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="A key, or a path to the item's file.")] = None,
    index: Annotated[int | None, typer.Option("--index", metavar="N", help="The item's position; 0 is first.")] = None,
    lines: Annotated[
        int | None, typer.Option("-n", "--lines", metavar="N", min=1, help="Only the last N lines.")
    ] = None,
    state_dir: flags.StateDir = None,
) -> None:
    """Show the launches and stops of a job; with ITEM, what its attempts printed.

    Inside a program that is an agent, `agentrun log WORDS…` writes a line to its item's log instead.
    """
    from agentrun_cli.asking.choosing import open_known
    from agentrun_cli.drawing.log import event_lines
    from agentrun_cli.terminal import put, say

    known = open_known(job, state_dir)
    if item is not None or index is not None:
        _put_item_log(known, item, index, lines)
        return
    told = list(event_lines(_events(known.folder)))
    for line in told if lines is None else told[-lines:]:
        put(line)
    if not told:
        say(f"{known.folder.name}: nothing has happened yet")


# ---- a job
def _events(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of log.jsonl, the rotated file first. Lines that cannot be read are ignored."""
    import orjson

    for name in ("log.1.jsonl", "log.jsonl"):
        try:
            with (folder / name).open("rb") as file:
                for line in file:
                    try:
                        event = orjson.loads(line)
                    except ValueError:
                        continue
                    if isinstance(event, dict):
                        yield event
        except FileNotFoundError:
            continue


# ---- an item
def _put_item_log(known: KnownJob, ref: str | None, index: int | None, lines: int | None) -> None:
    from agentrun_cli.asking.choosing import choose_view, open_items
    from agentrun_cli.terminal import say

    with open_items(known) as listing:
        view = choose_view(known, listing, ref, index)
    paths = [path for path in log_paths(known.folder, view.key, view.slot) if path.is_file()]
    printed = 0
    for path in paths:
        with path.open("rb") as file:
            if lines is not None:
                _seek_last(file, lines)
            printed += _put_bytes(file)
    if not printed:
        why = {
            "done": "it was dropped when the item was done",
            "running": "it has printed nothing yet",
            "pending": "it has not been run yet",
        }.get(view.state, "it printed nothing")
        say(f"{known.folder.name}: this item has no log; {why}")


def log_paths(folder: Path, key: str, slot: int | None) -> list[Path]:
    """The files with what an item printed: finished attempts, then the running one."""
    from agentrun.outputs.logs import log_name

    logs = folder / "logs"
    return [logs / log_name(key)] + ([logs / f".slot-{slot}.log"] if slot is not None else [])


def read_end(folder: Path, key: str, slot: int | None, count: int) -> tuple[Path | None, list[str]]:
    """The last lines of an item's log, from the running attempt if there is one."""
    for path in reversed(log_paths(folder, key, slot)):
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _END_BYTES))
                text = file.read(_END_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        if text:
            return path, text.rstrip("\n").split("\n")[-count:]
    return None, []


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
