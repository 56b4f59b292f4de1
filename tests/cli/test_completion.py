"""Completion: what a shell offers after Tab, asked of a real bash, and of zsh and fish where they are."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

from agentrun_cli.commands import COMMANDS
from agentrun_cli.commands.completion import SCRIPTS
from agentrun_cli.completing import TAKE_FILES, VALUES, shown, split_line
from agentrun_cli.main import build_app
from cli.conftest import COMMAND, environment
from waiting import PATIENCE_SECONDS

from .made import Made

Offered = Callable[[str], list[str]]
DRIVER = """\
PATH="$1:$PATH"
eval "$(agentrun completion bash)"
compopt() { printf 'compopt %s\\n' "$*"; }
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDS=(agentrun)
_agentrun
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def offered(tmp_path: Path) -> Offered:
    """What bash offers at the end of a line, in tmp_path."""

    def ask(line: str) -> list[str]:
        ended = subprocess.run(
            ["bash", "-c", DRIVER, "bash", str(Path(COMMAND).parent), line],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        assert ended.stderr == ""
        return ended.stdout.splitlines()

    return ask


@pytest.fixture
def made(tmp_path: Path) -> Made:
    made = Made(tmp_path, ["ada", "bea: one", "bea's"])
    made.commit(*(made.entry(key) for key in made.keys))
    return made


def test_commands_flags_and_values_are_offered(offered: Offered) -> None:
    assert offered("agentrun st") == ["start", "status", "stop", "step"]
    assert offered("agentrun start --allow-") == ["--allow-failures", "--allow-gone"]
    assert offered("agentrun start x --rerun ") == ["old-agent", "all"]
    assert offered("agentrun start x --items ") == ["compopt -o default"]
    assert offered("agentrun start x -- ") == ["compopt -o default"]
    assert offered("agentrun completion ") == ["bash", "zsh", "fish"]
    assert offered("agentrun nonsense --x") == []


def test_jobs_are_offered_by_name_and_by_file(offered: Offered, made: Made, tmp_path: Path) -> None:
    (tmp_path / "dry").mkdir()
    (tmp_path / "pyproject.toml").touch()
    assert offered("agentrun status dr") == ["drafts", "drafts.toml", "dry/"]
    assert offered("agentrun start ag") == ["agent.py:"]
    assert offered("agentrun resume --limit 3 ") == ["drafts", "drafts.toml", "dry/"]
    assert offered("agentrun status dry") == ["compopt -o nospace", "dry/"]


def test_keys_are_offered_as_the_shell_needs_them(offered: Offered, made: Made) -> None:
    assert offered("agentrun show drafts a") == ["ada"]
    assert offered("agentrun show drafts b") == ["bea:\\ one", "bea\\'s"]
    assert offered("agentrun show drafts bea:") == ["\\ one"], "bash replaces only what is behind the colon"
    assert offered("agentrun show drafts 'bea:") == ["bea: one"]
    assert offered("agentrun redo drafts ada b") == ["bea:\\ one", "bea\\'s"]
    assert offered("agentrun try drafts.toml ad") == ["ada"]
    assert offered("agentrun show nothing ") == [] and offered("agentrun status drafts ") == []


def test_a_damaged_or_foreign_state_offers_nothing_and_says_nothing(offered: Offered, made: Made) -> None:
    (made.folder / "state.json").write_text("{")
    assert offered("agentrun show drafts ") == []
    made.folder.parent.chmod(0o777)
    assert offered("agentrun status dra") == ["drafts.toml"]


def test_a_line_is_split_as_a_shell_does() -> None:
    assert split_line("agentrun show 'a b' c\\ d\"e\" f") == (["agentrun", "show", "a b", "c de"], "f", "")
    assert split_line("agentrun show 'a b") == (["agentrun", "show"], "a b", "'")
    assert split_line("agentrun ") == (["agentrun"], "", "")
    assert list(shown(["x\ny", "a b"], "zsh", "", "")) == ["a b"]


def test_every_flag_with_a_list_of_values_exists() -> None:
    known = {name for command in COMMANDS for name in _options(command)}
    assert {*VALUES, *TAKE_FILES} <= known


def _options(command: str) -> list[str]:
    group = get_command(build_app([command]))
    parameters = getattr(group, "commands")[command].params  # noqa: B009
    return [name for one in parameters if one.param_type_name == "option" for name in one.opts]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_can_read_its_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    subprocess.run([shell, "-n", "-c", SCRIPTS[shell]], check=True, timeout=PATIENCE_SECONDS)
