"""How many finished calls do agents of frameworks repeat, when the run is killed 20 times?

    make repeats                            all frameworks; some twenty minutes on two cores
    make repeats ONLY=langgraph SEED=7
    make repeats WRITE=docs/page.md         also into a page, between <!-- repeats --> and <!-- end of repeats -->

20 items of 4 model and 3 tool calls, 4 at a time, by the real command; `kill -9` after a random number of calls, and
again until the run is complete. A framework's agent is run in three ways: in a plain function, with the framework's
own checkpointer, and itself, with agentrun's adapter. What counts as finished, and as repeated, is said in
`llm/repeats.py`.

Times play no part, so other work on the machine does no harm. Where something fails the table says so, and the exit
code is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.bench import say
from benchmarks.table import markdown
from crash.harness import Plan, kill_at_random
from crash.scenarios import frameworks
from crash.scenarios.frameworks import CONCURRENCY, ITEMS, WAYS

KILLS = 20
HEAD = ("framework", "plain function", "its own checkpointer", "agentrun")
BEGIN, END = "<!-- repeats -->", "<!-- end of repeats -->"


@dataclass(frozen=True)
class Row:
    title: str
    package: str
    own: str
    """Its own checkpointer, and how it is used."""


ROWS = {
    "langgraph": Row("LangGraph", "langgraph", 'AsyncSqliteSaver, durability "async" (its default)'),
    "openai_agents": Row("OpenAI Agents SDK", "openai-agents", "SQLiteSession, continued without an input"),
    "pydantic_ai": Row("pydantic-ai", "pydantic-ai-slim", "has none"),
}


def main() -> int:
    # Nothing is registered for `status --all`.
    os.environ.setdefault("XDG_STATE_HOME", os.devnull)
    options = _options()
    say(f"seed {options.seed}")
    lines, is_right = [HEAD], True
    for framework in options.only:
        cells = []
        for way in ("plain", "own", "ours"):
            found = _kill(framework, way, options) if way in WAYS[framework] else None
            cells.append(cell(found, ROWS[framework].own if way == "own" else ""))
            is_right &= found is None or not found["faults"]
        row = ROWS[framework]
        lines.append((f"{row.title} {version(row.package)}", cells[0], cells[1], cells[2]))
    text = f"{_caption(options.kills)}\n\n{markdown(lines)}\n"
    print(text, end="")
    if options.write:
        write(Path(options.write), text)
    return 0 if is_right else 1


def _kill(framework: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    say(f"{framework}, {way}: {options.kills} kills")
    scenario = frameworks.make(framework=framework, way=way)
    # All ways of all frameworks are killed after the same numbers of calls.
    found = kill_at_random(scenario, Plan(options.kills, seed=options.seed))
    say(f"  {found}")
    return found


def cell(found: dict[str, Any] | None, note: str) -> str:
    if found is None:
        return f"- ({note})"
    if found["faults"]:
        return f"**failed**: {found['faults'][0][:200]}"
    return f"{found['repeated']} ({note})" if note else str(found["repeated"])


def _caption(kills: int) -> str:
    return (
        f"Finished model and tool calls that were made again, in {kills} kills of runs of {ITEMS} items, each with\n"
        f"4 model and 3 tool calls, {CONCURRENCY} at a time. What is in flight at a kill (at most {CONCURRENCY}\n"
        "calls) is made again in every column, and is not counted."
    )


def write(path: Path, text: str) -> None:
    """Only between the marks: the rest of a page is somebody's."""
    page = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    found = re.search(f"{BEGIN}\n.*?{END}", page, re.DOTALL)
    if found is None:
        raise SystemExit(f"{path} has no place for the table; add the lines {BEGIN} and {END}")
    path.write_text(f"{page[: found.start()]}{BEGIN}\n{text}{END}{page[found.end() :]}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make repeats", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=_names, default=list(ROWS), metavar="NAME,NAME", help=", ".join(ROWS))
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help="of each way of each framework")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the moments of the kills")
    parser.add_argument("--write", metavar="FILE", help="the table goes here as well")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in ROWS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown) or 'name'}; there are {', '.join(ROWS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
