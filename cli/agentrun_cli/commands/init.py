"""agentrun init: write a job to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JOB = """\
# A job: which items, which agent, which limits. Run it with: agentrun start
# Paths are relative to this file. Every value can also be given as a flag.

agent = "agent.py:agent"            # file:function; or any program:
# command = ["./agent.sh", "{path}"]    # the item is on its standard input too, as JSON
output = "results.jsonl"            # one JSON line per item, in item order
# env_file = ".env"                 # variables for the agent, such as keys; written nowhere
# needs_env = ["OPENAI_API_KEY"]    # a missing one is reported before the first item

[items]
files = "items/*.txt"               # or jsonl = "items.jsonl", csv = "items.csv", lines = "urls.txt"
# key = "id"                        # jsonl and csv: the field that identifies an item

[run]
concurrency = 2                     # items in flight at a time
timeout = "30m"                     # per attempt
retries = 3                         # after the first attempt, for errors that may be temporary
allow_failures = 0                  # how many items may fail: N or "N%"
stop_after_failures = 10            # stop the run after this many in a row
"""
AGENT = '''\
"""The agent: called once for each item. What it returns is the item's output."""

from agentrun import Fail, Item


def agent(item: Item) -> dict[str, object]:
    # item.text is the content, item.path the file, item.key its name. Call your model here.
    words = item.text.split()
    if not words:
        # This item fails for good, and the others continue. Other errors are retried first.
        raise Fail("the file is empty")
    return {"words": len(words), "longest": max(words, key=len), "first": item.text.splitlines()[0]}
'''
FILES = {
    "job.toml": JOB,
    "agent.py": AGENT,
    "items/1-harbour.txt": "The harbour at six\nA gull, two boats, and somebody hammering far away.\n",
    "items/2-kettle.txt": "On kettles\nIt sings before it boils, and falls silent when it does.\n",
    "items/3-letter.txt": "Dear Ada\nThe parcel came. The clock inside it still goes.\n",
}


def init(
    folder: Annotated[str, typer.Argument(metavar="[FOLDER]", help="Where to write it; created if missing.")] = ".",
) -> None:
    """Write a job file and a small agent to start from.

    \b
    agentrun init
    agentrun init triage
    """
    from agentrun.errors import DiskError, UsageError
    from agentrun_cli.terminal import clean, say, shown_path

    root = Path(folder)
    there = [root / name for name in FILES if (root / name).exists() or (root / name).is_symlink()]
    if there:
        raise UsageError(f"{clean(there[0])}: already exists and is left unchanged; give another folder")
    try:
        for name, text in FILES.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{clean(error.filename)}: already exists and is left unchanged") from None
    except OSError as error:
        raise DiskError(f"{clean(error.filename or folder)}: cannot be written: {error.strerror}") from None
    job = root / "job.toml"
    say(f"wrote {shown_path(job)}, {shown_path(root / 'agent.py')} and three items; run it with:")
    say(f"  agentrun start {_quoted(job)}")


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
