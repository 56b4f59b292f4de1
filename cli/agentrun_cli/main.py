"""The command `agentrun`: registers the commands and turns every error into one line and an exit code."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NoReturn, TextIO

import typer

from agentrun.errors import AgentrunError, ScriptError, TrustError
from agentrun_cli import terminal as console
from agentrun_cli.bugs import describe_bug
from agentrun_cli.commands import COMMANDS, INSIDE
from agentrun_cli.hints import shorten_hints
from agentrun_cli.inside import command as inside
from agentrun_cli.loop import leave
from agentrun_cli.parsing import Command, Group

OUR_BUG, BROKEN_PIPE, INTERRUPTED = 70, 141, 130
TAKE_A_COMMAND = ("start", "try")
FUNCTIONS = {"try": "try_items", "import": "import_job"}
"""Commands whose names are words of Python, and the functions that they are."""
LAUNCH = ("start", "resume")
"""Ctrl-C ends these at once, without an exception, until the launch handles it: see `loop.exit_on_interrupt`."""
EXAMPLES = """agentrun start triage/job.toml      run a job, or resume it
agentrun status                     what is going on, and what stopped
agentrun start --help               a command's options, with examples
eval "$(agentrun completion bash)"  complete commands, jobs, items with Tab"""
EXITS = """Exit codes, where several apply the first of 74, 65, signals, 75, 4, 1, 3:
    0  clean completion, nothing to do, or handed over (--detach)
    1  ran to the end, but more items failed than allowed; can be resumed
    2  the command line or the job is wrong; nothing was run
    3  waiting for a person; nothing else is left to do
    4  stopped by a limit (budget, failures in a row, --limit, --until), or by
       something a person must fix: a key, an account without credit
   65  the checkpoint is damaged, edited, or from a newer version
   74  the disk failed or is full
   75  try again later: another runner has the job, the provider says when its
       quota is renewed, the source is being changed
  129, 130, 143  stopped by a signal; checkpointed, can be resumed
"""

MEANT = {
    "run": "start", "begin": "start", "continue": "resume", "retry": "resume", "test": "try", "ps": "status",
    "list": "status", "ls": "status", "kill": "stop", "cancel": "stop", "logs": "log", "errors": "failures",
    "approve": "review", "rerun": "redo", "rm": "clear", "delete": "clear", "new": "init",
}  # fmt: skip
"""What people type who know other programs, and the command they mean."""


def build_app(words: Sequence[str] = ()) -> typer.Typer:
    """The command line; only the command that `words` begin with, if they do: the others take longer than it does."""
    app = typer.Typer(
        cls=Group,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Importing rich for help takes longer than most commands take to run.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(agentrun)
    only = words[0] if words and words[0] in COMMANDS else None
    for name in COMMANDS if only is None else [only]:
        function = FUNCTIONS.get(name, name)
        module = import_module(f"agentrun_cli.commands.{function}")
        app.command(name, cls=Command)(getattr(module, function))
    for name in INSIDE if only is None else ():
        # Only for --help: `_main` handles these before typer sees them.
        module = import_module(f"agentrun_cli.inside.{name}")
        app.command(name, cls=Command, help=module.HELP, options_metavar=module.USAGE)(lambda: None)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        from agentrun import __version__

        console.put(f"agentrun {__version__}")
        raise typer.Exit


def agentrun(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Run an agent over a batch of items, unattended, and never pay twice for the same item."""


def main() -> NoReturn:
    console.prepare_streams()
    code = _main(sys.argv[1:])
    if not _is_flushed(sys.__stdout__):
        code = code or BROKEN_PIPE
    _is_flushed(sys.__stderr__)
    leave(code)


def _is_flushed(stream: TextIO | None) -> bool:
    """Flush; False if the reader is gone. The rest is then dropped, or the interpreter would exit with 120."""
    try:
        if stream is not None:
            stream.flush()
    except (OSError, ValueError):
        assert stream is not None
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)
        return False
    return True


def _main(arguments: list[str]) -> int:
    if inside.is_ours(arguments):
        return inside.run(arguments[0], arguments[1:])
    if arguments and (meant := MEANT.get(arguments[0])):
        console.say(f"agentrun: no such command '{arguments[0]}'; did you mean {meant}? See: agentrun {meant} --help")
        return 2
    again = shlex.join(["agentrun", *arguments])
    command: list[str] | None = None
    if arguments[:1] and arguments[0] in TAKE_A_COMMAND and "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    try:
        # Not before: an interrupt outside of this block would print a traceback.
        is_launch = bool(arguments) and arguments[0] in LAUNCH
        if not is_launch and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if not os.path.isdir("."):
            console.say("the current folder no longer exists; change to one that does")
            return 2
        code = int(build_app(arguments)(arguments, prog_name="agentrun", obj=command, standalone_mode=False) or 0)
        if not code:
            console.flush_data()
        return code
    except AgentrunError as error:
        if trace := getattr(error, "traceback", ""):
            console.say(console.clean_text(trace).rstrip())
        console.say(console.clean(shorten_hints(error.message, arguments), limit=4000))
        if isinstance(error, ScriptError) and command is None:
            console.say(f"  to run it:    {console.clean(_how_to_run(error, arguments), limit=4000)}")
        if isinstance(error, TrustError):
            console.say(f"  if you trust it:  {error.setting} {console.clean(again, limit=4000)}")
        if error.resume_with:
            console.say(f"  to resume:    {error.resume_with}")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        console.say()
        return INTERRUPTED
    except (console.ReaderGone, BrokenPipeError):
        _is_flushed(sys.__stdout__)
        return BROKEN_PIPE
    except Exception as error:
        if hasattr(error, "format_message"):  # from the parser: the command line is wrong
            return _say_usage(error)
        return _say_bug(error)


def _how_to_run(error: ScriptError, arguments: Sequence[str]) -> str:
    """The command that was typed, with the program after -- instead of as the job."""
    verb, *words = arguments if arguments[0] in TAKE_A_COMMAND else ["start"]
    if error.ref in words:
        words.remove(error.ref)
    typed = shlex.join(["agentrun", verb, *words])
    items = "" if any(word.partition("=")[0] == "--items" for word in words) else " --items …"
    return f"{typed}{items} -- {shlex.join(error.argv)} {{}}"


def _say_usage(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "agentrun"
    text = str(error.format_message())  # type: ignore[attr-defined]
    if type(error).__name__ == "NoArgsIsHelpError":
        console.say(text)
    else:
        text = console.clean(text[:1].lower() + text[1:]).rstrip(".").replace("'. Did", "'; did")
        console.say(f"{path}: {text}{' See' if text.endswith('?') else '; see'}: {path} --help")
    return int(getattr(error, "exit_code", 2))


def _say_bug(error: Exception) -> int:
    console.say(describe_bug(error))
    console.say("finished work is on disk; run the same command again to continue")
    return OUR_BUG
