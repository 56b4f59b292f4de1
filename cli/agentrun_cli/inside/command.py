"""What the commands for use inside a program share: `step`, `ask`, `usage`, and `log`.

Shell scripts start them often, so they import neither typer nor anything else that takes long to load.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from agentrun.executors.programs.runner_connection import RunnerConnection


COMMANDS = ("step", "ask", "usage")
WRONG, FOR_GOOD, LATER, BROKEN_PIPE = 2, 65, 75, 141
"""Exit codes: the arguments are wrong; the runner refuses; the runner cannot be reached; nobody reads the output."""


class Left(Exception):
    """Ends the command with this exit code; the text is for people."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def is_ours(words: list[str]) -> bool:
    """Whether a command line is for one of these commands. A request for help is not: that may take longer."""
    command, *rest = words or [""]
    if command == "log":
        from agentrun.executors.programs.protocol import CHANNEL_VARIABLE

        return bool(os.environ.get(CHANNEL_VARIABLE)) and rest not in (["-h"], ["--help"])
    options = rest[: rest.index("--")] if "--" in rest else rest
    return command in COMMANDS and "-h" not in options and "--help" not in options


def run(command: str, words: list[str]) -> int:
    """Run the command of that name, and return its exit code."""
    from importlib import import_module

    from agentrun.executors.programs.runner_connection import CallError

    module = import_module(f"agentrun_cli.inside.{command}")
    try:
        return int(module.main(words))
    except Left as left:
        say(command, str(left))
        return left.code
    except CallError as error:
        say(command, str(error))
        return FOR_GOOD if error.is_refusal else LATER
    except BrokenPipeError:
        return BROKEN_PIPE


def connect() -> RunnerConnection:
    """A connection to the runner of this program."""
    from agentrun.executors.programs.runner_connection import RunnerConnection, is_inside

    if not is_inside():
        rule = (
            "this command is for programs that agentrun runs as agents; they have AGENTRUN_CHANNEL in the environment"
        )
        raise Left(WRONG, f"not inside such a program: {rule}")
    return RunnerConnection()


def new_parser(command: str) -> ArgumentParser:
    from argparse import ArgumentParser

    class Parser(ArgumentParser):
        def error(self, message: str) -> None:  # type: ignore[override]
            raise Left(WRONG, f"{message}; see: agentrun {command} --help")

    return Parser(prog=f"agentrun {command}", add_help=False, allow_abbrev=False)


def say(command: str, why: str) -> None:
    from agentrun_cli import terminal as console

    console.prepare_streams()
    console.say(f"agentrun {command}: {console.clean(why, limit=4000)}")


def as_text(word: str) -> str:
    """A command-line argument as text; bytes that are not UTF-8 are escaped."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def write(data: bytes) -> None:
    """Write all of the bytes to standard output."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def read_file(path: str) -> bytes:
    """The bytes of a file, or of standard input for `-`."""
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
            return file.read()
    except OSError as error:
        raise Left(WRONG, f"{path} cannot be read: {error.strerror}") from None
