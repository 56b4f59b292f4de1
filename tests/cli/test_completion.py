"""Completion: what a shell offers after Tab, asked of a real bash, and with a real Tab in bash, zsh and fish."""

from __future__ import annotations

import shlex
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
from needs import require_program
from waiting import PATIENCE_SECONDS, eventually

from .made import Made
from .tmux import Tmux

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
    assert offered("agentrun start ag") == ["compopt -o nospace", "agent.py:"]
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


# ---- with a real Tab

SHELLS = {
    "bash": (("bash", "--norc", "--noprofile"), "PS1='$ '; PATH={path}:$PATH; {eval}"),
    "zsh": (("zsh", "-f"), "PS1='$ '; PATH={path}:$PATH; autoload -U compinit && compinit -D; {eval}"),
    "fish": (
        ("fish", "--no-config"),
        "set -g fish_autosuggestion_enabled 0; function fish_prompt; printf '$ '; end; "
        "set PATH {path} $PATH; agentrun completion fish | source",
    ),
}
"""By name: how it is started, and what its user has in the configuration."""


class Person:
    """Somebody at a shell, whose cursor is at the end of the only line on the screen."""

    def __init__(self, tmux: Tmux, shell: str) -> None:
        self._tmux = tmux
        set_up = SHELLS[shell][1].format(
            path=shlex.quote(str(Path(COMMAND).parent)), eval=f'eval "$(agentrun completion {shell})"'
        )
        tmux.enter(f"{set_up}; clear")
        self._sees("$")

    def types(self, text: str, *, then_sees: str) -> None:
        """Type it, press Tab, and wait for the line to be so."""
        self._tmux.type(text)
        self._tmux.press("Tab")
        self._sees(f"$ {then_sees}")

    def starts_over(self) -> None:
        self._tmux.press("C-u")
        self._sees("$")

    def _sees(self, line: str) -> None:
        # Below it, shells list what may follow.
        eventually(lambda: [one.rstrip() for one in self._tmux.shown()][:1] == [line], f"{line!r}, on the screen")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_tab_completes_in_every_shell(made: Made, tmp_path: Path, shell: str) -> None:
    require_program(shell)
    (tmp_path / "dry").mkdir()
    (tmp_path / "dry" / "one job.toml").touch()
    with Tmux(tmp_path, *SHELLS[shell][0]) as tmux:
        person = Person(tmux, shell)
        person.types("agentrun comple", then_sees="agentrun completion")
        person.types("z", then_sees="agentrun completion zsh")
        person.starts_over()
        person.types("agentrun start --progr", then_sees="agentrun start --progress-every")
        person.starts_over()
        person.types("agentrun show drafts bea:", then_sees="agentrun show drafts bea:\\ one")
        person.types("a", then_sees="agentrun show drafts bea:\\ one ada")
        person.starts_over()
        # What is not a whole word yet has no space after it.
        person.types("agentrun status dry", then_sees="agentrun status dry/")
        person.types("o", then_sees="agentrun status dry/one\\ job.toml")
        person.starts_over()
        person.types("agentrun start agent", then_sees="agentrun start agent.py:")
        person.types("agent --items ite", then_sees="agentrun start agent.py:agent --items items.txt")
        person.starts_over()
        person.types("ID=7 agentrun edi", then_sees="ID=7 agentrun edit")


def test_zsh_also_finds_the_script_as_a_file_of_its_own(made: Made, tmp_path: Path) -> None:
    require_program("zsh")
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "_agentrun").write_text(SCRIPTS["zsh"] + "\n")
    with Tmux(tmp_path, "zsh", "-f") as tmux:
        tmux.enter("fpath=($PWD/functions $fpath)")
        person = Person(tmux, "zsh")
        person.types("agentrun comple", then_sees="agentrun completion")
        person.types("z", then_sees="agentrun completion zsh")
