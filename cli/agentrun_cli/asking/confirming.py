"""What the commands for people share: confirm, say what was posted, then resume the run or say how to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.asked import asked_job
from agentrun_cli.hints import how_to_resume, where_it_runs

if TYPE_CHECKING:
    from agentrun.people.desk import Posting
    from agentrun.views.finding import KnownJob

Item = Annotated[str | None, typer.Argument(metavar="ITEM", help="A key, or a path to the item's file.")]
ManyItems = Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Keys, or paths to the items' files.")]
Index = Annotated[int | None, typer.Option("--index", metavar="N", help="The item's position; 0 is first.")]
Indexes = Annotated[list[int] | None, typer.Option("--index", metavar="N", help="A position; can be repeated.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Your name, if not the login name.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run at once.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def end(
    known: KnownJob,
    posting: Posting,
    what: str,
    *,
    ref: str,
    state_dir: str | None,
    store: str | None = None,
    resume: bool = False,
) -> None:
    """Say `what` was posted and how to continue; or resume, and exit as that launch does."""
    from agentrun_cli.terminal import say

    holder = posting.holder
    if holder is not None and not posting.waits_for_launch:
        say(f"{what}; the running launch (pid {holder.pid}) will process it within 2 s")
    elif holder is not None:
        say(f"{what}; this happens at the next launch, after the running one (pid {holder.pid})")
    elif resume and how_to_continue(known, is_unfinished=True).startswith("agentrun "):
        say(what)
        raise typer.Exit(_launch(ref, state_dir, store, is_unfinished=posting.is_unfinished))
    else:
        say(f"{what}; to continue: {how_to_continue(known, is_unfinished=posting.is_unfinished)}")


def check_can_resume(known: KnownJob) -> None:
    """Before anything is posted with --resume: UsageError if a launch here would be refused."""
    from agentrun.errors import UsageError

    if (there := where_it_runs(known)) is not None:
        raise UsageError(
            f"{known.name}: nothing is posted: --resume cannot run it here; {there.how_to_resume(known.shown)}"
        )


def how_to_continue(known: KnownJob, *, is_unfinished: bool) -> str:
    said = how_to_resume(known.shown, known.job.agent if known.job is not None else None, known)
    if said.startswith("agentrun ") and not is_unfinished:
        # That run has ended; what was posted opens it again.
        return f"agentrun start {known.shown}"
    return said


def _launch(ref: str, state_dir: str | None, store: str | None, *, is_unfinished: bool) -> int:
    from agentrun_cli.launching import launch, options_of

    given = flags.Given({"job": ref, "state_dir": state_dir, "store": store, "quiet": False, "as_json": False})
    return launch(asked_job(given), options_of(given, resume=is_unfinished))


def is_conversation() -> bool:
    """Whether a person sees the output and can answer."""
    return is_answerable() and sys.stdout is not None and sys.stdout.isatty()


def is_answerable() -> bool:
    """Whether a question can be answered: standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def asks(prompt: str) -> str | None:
    """What a person types at the prompt; None at the end of input."""
    from agentrun_cli.terminal import fitting

    sys.stdout.write(fitting(prompt, sys.stdout))
    sys.stdout.flush()
    typed = sys.stdin.readline()
    return typed.strip() if typed else None


def confirm(name: str, question: str, *, yes: bool, otherwise: str) -> None:
    """Ask, unless `yes`; exit if the answer is no, or if nobody can answer. `otherwise` says what did not happen."""
    from agentrun.errors import UsageError
    from agentrun_cli.terminal import say

    if yes:
        return
    if not is_answerable():
        raise UsageError(f"{name}: {otherwise}: this is not a terminal, so nobody can confirm; add --yes")
    if not agrees(question):
        say(f"{name}: {otherwise}")
        raise typer.Exit(2)


def agrees(question: str, *, yes: bool = False) -> bool:
    """Ask, unless `yes`; where nobody can answer, say what to add."""
    from agentrun_cli.terminal import say

    if yes:
        return True
    if not is_answerable():
        say(f"{question} this is not a terminal, so nobody can confirm; add --yes")
        return False
    say(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def are(count: int, noun: str) -> str:
    from agentrun_cli.terminal import counted

    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"
