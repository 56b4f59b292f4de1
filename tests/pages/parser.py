"""The command line's own parser, without running anything."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer

from agentrun_cli.main import TAKE_A_COMMAND, build_app


@cache
def group() -> Any:
    return typer.main.get_command(build_app())


def commands() -> dict[str, Any]:
    return dict(group().commands)


def flags_of(command: str) -> set[str]:
    """All names of the options of a command."""
    return {name for one in commands()[command].params for name in (*one.opts, *one.secondary_opts) if name[:1] == "-"}


def parse(words: list[str]) -> None:
    """Raise what the command line would refuse these words with."""
    if words[0] in TAKE_A_COMMAND and "--" in words:
        words = words[: words.index("--")]
    try:
        context = group().make_context("agentrun", list(words))
    except typer.Exit:  # --version
        return
    name, command, rest = group().resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, rest, parent=context)
