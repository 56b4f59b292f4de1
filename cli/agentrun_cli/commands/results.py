"""agentrun results: the results so far, in item order, as JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from pathlib import Path

    from agentrun.views.item import ItemView
    from agentrun.views.listing import Listing


_PIECE_BYTES = 1 << 18
_WHERE_THERE = ("usage", "edited", "question", "answers", "warning")


def results(
    job: flags.KnownJob,
    full: Annotated[bool, typer.Option("--full", help="With times, attempts, cost and the agent's version.")] = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Print the results so far, as JSON lines in item order."""
    from agentrun_cli.asking.choosing import open_items, open_known
    from agentrun_cli.terminal import say

    known = open_known(job, state_dir)
    if not full and _put_output(known.folder):
        return
    with open_items(known) as listing:
        count = _put_records(listing, full=full)
    if not count:
        say(f"{known.folder.name}: there are no results yet")


def _put_output(folder: Path) -> bool:
    """Print the output of a finished run, byte for byte, if the file is still what the run wrote."""
    import hashlib
    from pathlib import Path

    from agentrun.views.jobs import read_checkpoint, read_summaries
    from agentrun_cli.terminal import put_json_lines

    ended = read_summaries(folder)
    if not ended or not isinstance(output := ended[0].get("output"), dict):
        return False
    checkpoint = read_checkpoint(folder)
    if checkpoint is not None and checkpoint.run_id != ended[0].get("run_id"):
        return False
    try:
        file = Path(output["path"]).open("rb")  # noqa: SIM115
    except OSError:
        return False
    with file:
        if hashlib.file_digest(file, "sha256").hexdigest() != output["sha256"]:
            return False
        # The same open file, so that what was checked is what is printed.
        file.seek(0)
        while piece := file.read(_PIECE_BYTES) + file.readline():
            put_json_lines(piece)
    return True


def _put_records(listing: Listing, *, full: bool) -> int:
    import orjson

    from agentrun.outputs.results import result_line
    from agentrun_cli.terminal import put_json_lines

    count = 0
    for item in listing.items({"done"}):
        assert item.record is not None
        line = result_line(item.index, item.record)
        if full:
            line = orjson.dumps({**orjson.loads(line), **_facts(item, item.record)}) + b"\n"
        put_json_lines(line)
        count += 1
    return count


def _facts(item: ItemView, record: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that may differ from one run to the next; some only where they exist."""
    facts = {
        "at": item.at,
        "seconds": item.seconds,
        "attempts": item.attempts,
        "agent": item.agent,
        "launch": record.get("launch"),
        "generation": record.get("gen", 0),
    }
    if item.cost is not None:
        facts["cost"] = item.cost
    return facts | {name: record[name] for name in _WHERE_THERE if record.get(name)}
