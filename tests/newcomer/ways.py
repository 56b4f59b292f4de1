"""Five ways to the same summaries, each as a newcomer has it after a first look at README and `agentrun init`.

Three are jobs that `init` wrote, as they are or filled in where their comments say so; two are scripts. All of them
summarise the documents in `items/`, and write `results.jsonl`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

START = ("agentrun", "start")
RESUME = ("agentrun", "resume")
SCRIPT = ("python", "letters.py")

RUN = """\
import sys
from pathlib import Path

import agentrun
from openai import OpenAI

client = OpenAI(timeout=120, max_retries=0)


def summarise(item, ctx):
    response = client.chat.completions.create(
        model="gpt-5-mini", messages=[{"role": "user", "content": "Summarise in one line: " + item.text}]
    )
    ctx.usage(response)
    return {"summary": response.choices[0].message.content}


if __name__ == "__main__":
    letters = sorted(Path("items").glob("*.txt"))
    summary = agentrun.run(summarise, items=letters, name="letters", concurrency=4, output="results.jsonl")
    print(summary)
    sys.exit(summary.exit_code)
"""
ARUN = """\
import asyncio
import sys
from pathlib import Path

import agentrun
from openai import AsyncOpenAI

client = AsyncOpenAI(timeout=120, max_retries=0)


async def summarise(item, ctx):
    response = await client.chat.completions.create(
        model="gpt-5-mini", messages=[{"role": "user", "content": "Summarise in one line: " + item.text}]
    )
    ctx.usage(response)
    return {"summary": response.choices[0].message.content}


async def main():
    letters = sorted(Path("items").glob("*.txt"))
    summary = await agentrun.arun(summarise, items=letters, name="letters", concurrency=4, output="results.jsonl")
    print(summary)
    return summary.exit_code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
"""


def summary_of(text: str) -> object:
    return {"summary": text}


def text_of(text: str) -> object:
    return text


def as_it_is(folder: Path) -> None:
    """What `init` wrote needs no filling in."""


def fill_in_curl(folder: Path) -> None:
    """The script counts words until its example with a model is uncommented."""
    script, job = folder / "agent.sh", folder / "job.toml"
    before, example = script.read_text().split("# With a model, for example", 1)
    before = "".join(line for line in before.splitlines(keepends=True) if not line.startswith("printf"))
    example = "".join(line.removeprefix("#").removeprefix(" ") for line in example.splitlines(keepends=True)[2:])
    script.write_text(before + example.replace("https://api.openai.com/v1", "$OPENAI_BASE_URL"))
    job.write_text(job.read_text().replace("# needs_env", "needs_env"))


def write_script(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "letters.py").write_text(text)

    return write


@dataclass(frozen=True)
class Way:
    """`init` is what the job is made with, and `fill_in` makes it the newcomer's own."""

    name: str
    init: tuple[str, ...] | None
    fill_in: Callable[[Path], None]
    start: tuple[str, ...]
    proceed: tuple[str, ...]
    """The command after a crash."""
    concurrency: int
    output: Callable[[str], object] = summary_of
    """The output of an item, of what the model answers."""


WAYS = {
    way.name: way
    for way in (
        Way("sdk", ("--python", "openai"), as_it_is, START, RESUME, 4),
        Way("curl", ("--command",), fill_in_curl, START, RESUME, 2),
        Way("prompt", ("--prompt",), as_it_is, START, RESUME, 4, text_of),
        Way("run", None, write_script(RUN), SCRIPT, SCRIPT, 4),
        Way("arun", None, write_script(ARUN), SCRIPT, SCRIPT, 4),
    )
}
