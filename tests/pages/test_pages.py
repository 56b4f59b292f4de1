"""Every command line of README and docs is run, and prints what the page shows."""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm.server import serve
from pages.page import REPOSITORY, RUN, Block, Hidden, Story, block, blocks, stories
from pages.parser import parse
from pages.shell import Shell, is_shown, reader_environment, shape

NOT_RUN = {
    ("README.md", "installs a command for the user"),
    ("docs/how-to/other-agents.md", "needs Claude Code"),
    ("docs/how-to/colleagues.md", "needs a second machine"),
    ("docs/how-to/overnight.md", "changes the user's systemd units"),
}
"""What cannot be run here. Adding to it is a decision: nobody notices when a block that is not run breaks."""


@pytest.mark.parametrize("story", [one for one in stories() if one.is_run and not one.needs_machines], ids=str)
def test_a_page_shows_what_happens(story: Story, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    if any("samples/" in one.text for one in story.parts):
        ignored = shutil.ignore_patterns(".agentrun", "*.results.*", "__pycache__", "sent")
        shutil.copytree(REPOSITORY / "samples", folder / "samples", ignore=ignored)
    with model(story) as variables, Shell(folder, reader_environment(home, **variables)) as shell:
        for part in story.parts:
            if isinstance(part, Hidden):
                printed, code = shell.run(part.text)
                assert code == 0, f"{story.page}: {part.text}\n{printed}"
            elif part.file is not None:
                write(folder / part.file, part.text)
            elif part.language in RUN and part.reason is None:
                run(part, shell)


@contextlib.contextmanager
def model(story: Story) -> Iterator[dict[str, str]]:
    if not story.needs_model:
        yield {}
        return
    with serve() as llm:
        yield {"OPENAI_BASE_URL": llm.url, "OPENAI_API_KEY": "sk-none"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if text.startswith("#!"):
        path.chmod(0o755)


def run(block: Block, shell: Shell) -> None:
    exits = {0, *map(int, block.marks.get("exits", "0").split(","))}
    varies = [one.strip() for one in block.marks.get("varies", "").split(",") if one.strip()]
    for command, expected in block.steps:
        if "kill when" in block.marks and expected is not None and expected.endswith("Killed"):
            condition = block.marks["kill when"]
            printed, code = shell.run_and_kill(command, lambda state: bool(eval(condition, {"state": state}))), 0  # noqa: B023
        elif "type" in block.marks and command.startswith("agentrun review"):
            printed, code = shell.run_and_type(command, [one.strip() for one in block.marks["type"].split(",")])
        elif "Ctrl-C after" in block.marks and command == block.steps[-1][0]:
            printed, code = shell.run_and_interrupt(command, block.marks["Ctrl-C after"])
        else:
            printed, code = shell.run(command)
        where = f"{block.page}:{block.line}: {command}"
        assert code in exits, f"{where} ended with {code}:\n{printed}"
        if expected is not None and not is_shown(expected, printed, varies):
            # Not by the pattern, so that the difference is seen.
            assert shape(printed) == shape(expected), where


def test_what_is_not_run_is_known() -> None:
    """A block that cannot run here says why, and is listed above."""
    assert {(one.page, one.reason) for one in blocks() if one.reason is not None} == NOT_RUN


def test_what_is_not_run_would_be_understood() -> None:
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    for one in blocks():
        if one.reason is None:
            continue
        for line in one.agentrun_lines:
            parse(shlex.split(line)[1:])
        for target in re.findall(r"^make ([a-z-]+)", one.text, re.MULTILINE):
            assert target in targets, f"{one.page}:{one.line}: make {target}"


def test_code_that_is_only_shown_is_code() -> None:
    from agentrun.job.fields import ITEMS, RUN, TOP

    known: dict[str, tuple[str, ...]] = {"": TOP, "items": ITEMS, "run": RUN}
    for one in blocks():
        if one.language == "python":
            ast.parse(one.text)
        elif one.language == "toml":
            check_keys(tomllib.loads(one.text), known, one)
            commented = "\n".join(re.findall(r"^# (\w+ = .*)$", one.text, re.MULTILINE))
            for name in re.findall(r"^(\w+) =", commented, re.MULTILINE):
                assert name in {*TOP, *ITEMS, *RUN}, f"{one.page}:{one.line}: {name}"


def check_keys(values: dict[str, Any], known: dict[str, tuple[str, ...]], one: Block) -> None:
    for name, value in values.items():
        assert name in known[""], f"{one.page}:{one.line}: {name}"
        for inner in value if name in known else ():
            assert inner in known[name], f"{one.page}:{one.line}: {name}.{inner}"


def test_a_session_that_differs_is_noticed() -> None:
    assert is_shown("kept 86, to run 114", "kept 91, to run 109", ["86", "114"])
    assert not is_shown("kept 86, to run 114", "kept 86, to run 113", ["86"])
    assert is_shown("done: 3 of 3 in 0.2s\n…", "done: 3 of 3 in 12.0s\nand\nmore", [])
    assert not is_shown("done: 3 of 3", "done: 2 of 3", [])


PLAYER = """
import json, sys

LEFT_OUT = ("id", "run_id", "idempotency_key", "dir", "out", "at")

def bare(value):
    if isinstance(value, dict):
        return {name: bare(one) for name, one in value.items() if name not in LEFT_OUT}
    return value

for line in open("talk.txt").read().splitlines():
    if line[0] == "→":
        print(json.dumps({**json.loads(line[2:]), "id": heard["id"]}), flush=True)
    elif line[0] == "←":
        heard = json.loads(sys.stdin.readline())
        if bare(heard) != bare(json.loads(line[2:])):
            sys.exit(f"heard {heard} instead of {line}")
sys.stdin.read()
"""


def test_the_conversation_of_a_program_that_serves_is_what_is_said(tmp_path: Path) -> None:
    """A program that says and expects exactly those lines is parked, answered, and done."""
    talk = block("docs/reference/programs.md", "text", '"type":"item"').text
    first, gap, second = re.split(r"^(….*\n)", talk, flags=re.MULTILINE)
    assert first and gap and second
    (tmp_path / "player.py").write_text(PLAYER)
    (tmp_path / "people.jsonl").write_text('{"id": "ada", "name": "Ada"}\n')
    job = 'command = ["python", "player.py"]\nserve = true\nparams.tone = "kind"\n'
    (tmp_path / "job.toml").write_text(job + '[items]\njsonl = "people.jsonl"\nkey = "id"\n[run]\nretries = 0\n')
    with Shell(tmp_path, reader_environment(tmp_path)) as shell:
        for lines, code in [(first, 3), (second, 0)]:
            (tmp_path / "talk.txt").write_text(lines)
            printed, ended = shell.run("agentrun start job.toml --name talk")
            assert ended == code, printed
            if code == 3:
                assert shell.run("agentrun answer talk ada --yes --by grace")[1] == 0
