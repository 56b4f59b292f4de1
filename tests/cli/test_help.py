"""Every --help: 80 columns, examples first, nothing cut."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from agentrun_cli.commands import COMMANDS, INSIDE
from agentrun_cli.flags import GROUPS, OTHER
from agentrun_cli.main import MEANT, build_app

Run = Callable[..., subprocess.CompletedProcess[str]]
ONE_SCREEN, SHORT = 24, 10
"""A command with at most so many options is described on one screen."""


def page(*words: str) -> list[str]:
    ended = CliRunner().invoke(build_app(), [*words, "--help"], prog_name="agentrun", env={"COLUMNS": "200"})
    assert ended.exit_code == 0, ended.output
    return ended.output.rstrip("\n").split("\n")


@pytest.mark.parametrize("command", [*COMMANDS, *INSIDE])
def test_the_help_of_a_command_fits_and_begins_with_examples(command: str) -> None:
    lines = page(command)
    assert lines[0].startswith(f"Usage: agentrun {command}")
    assert max(map(len, lines)) <= 80
    first = lines.index("Examples:")
    assert any(f"agentrun {command} " in f"{line} " for line in lines[first + 1 :])
    headings = [number for number, line in enumerate(lines) if re.fullmatch(r"\w[\w ]*:", line)]
    assert headings[0] == first, "something comes before the examples"
    if sum(line.startswith("  -") for line in lines) <= SHORT:
        assert len(lines) <= ONE_SCREEN, f"{len(lines)} lines"


def test_all_commands_are_in_a_list_and_none_is_cut() -> None:
    lines = page()
    assert max(map(len, lines)) <= 80 and "Examples:" in lines
    listed = lines[lines.index("Commands:") + 1 :]
    rows = listed[: listed.index("")]
    assert [row.split()[0] for row in rows] == [*COMMANDS, *INSIDE], "a description takes more than a line"
    assert all(row.endswith(".") and not row.endswith("..") for row in rows)


@pytest.mark.parametrize("command", ["start", "resume"])
def test_the_options_of_a_launch_stand_under_headings(command: str) -> None:
    lines = page(command)
    headings = [line.removesuffix(":") for line in lines if re.fullmatch(r"\w[\w ]*:", line)]
    expected = [name for name in GROUPS if command == "start" or name != "Items"]
    assert [name for name in headings if name in expected] == expected
    group: Any = get_command(build_app([command]))
    options = [one for one in group.commands[command].params if one.param_type_name == "option"]
    shown = {name for line in lines for name in re.findall(r"^  (?:-\w, )?(--[\w-]+)", line)}
    assert {one.opts[-1] for one in options} == shown
    assert OTHER not in headings, "a flag has no heading: name it in flags.GROUPS"


def test_words_of_other_programs_are_pointed_to_the_command_they_mean(agentrun: Run) -> None:
    ended = agentrun("run", "job.toml")
    assert ended.returncode == 2 and "did you mean start?" in ended.stderr
    assert not set(MEANT) & {*COMMANDS, *INSIDE} and set(MEANT.values()) <= set(COMMANDS)
