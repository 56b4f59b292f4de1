"""What the commands for people share: post to the inbox, then resume the run or say how to."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from agentrun_cli.asking.choosing import KnownJob


Item = Annotated[str | None, typer.Argument(metavar="ITEM", help="A key, or a path to the item's file.")]
ManyItems = Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Keys, or paths to the items' files.")]
Index = Annotated[int | None, typer.Option("--index", metavar="N", help="The item's position; 0 is first.")]
Indexes = Annotated[list[int] | None, typer.Option("--index", metavar="N", help="A position; can be repeated.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Your name, if not the login name.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run at once.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def hand_in(known: KnownJob, messages: Sequence[dict[str, Any]]) -> None:
    from agentrun.people.messages import post

    post(known.folder, messages)


def end(known: KnownJob, what: str, *, go_on: bool = False, at_launch: bool = False) -> None:
    """Say `what` was done and how to continue; or resume, and exit as that launch does.

    `at_launch`: a running launch leaves it to the next one.
    """
    from agentrun.views.jobs import live_holder
    from agentrun_cli.terminal import say

    holder = live_holder(known.folder)
    if holder is not None and not at_launch:
        say(f"{what}; the running launch (pid {holder.pid}) will process it within 2 s")
    elif holder is not None:
        say(f"{what}; this happens at the next launch, after the running one (pid {holder.pid})")
    elif go_on and how_to_go_on(known).startswith("agentrun "):
        say(what)
        raise typer.Exit(_launch(known))
    else:
        say(f"{what}; to continue: {how_to_go_on(known)}")


def how_to_go_on(known: KnownJob) -> str:
    agent = known.job.agent if known.job is not None else None
    said = flags.how_to_go_on(known.name, agent)
    if said.startswith("agentrun ") and not _is_unfinished(known):
        # That run has ended; a message in the inbox opens it again.
        return f"agentrun start {known.name}"
    return said


def _is_unfinished(known: KnownJob) -> bool:
    return os.path.exists(known.folder / "state.json")


def _launch(known: KnownJob) -> int:
    from agentrun_cli.launching import launch, options_of

    given = {"job": known.ref, "state_dir": known.state_dir, "quiet": False, "as_json": False}
    return launch(flags.asked_job(given), options_of(given, resume=_is_unfinished(known)))


def is_conversation() -> bool:
    """Whether a person sees the output and can answer."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()


def asks(prompt: str) -> str | None:
    """What a person types at the prompt; None at the end of input."""
    from agentrun_cli.terminal import fitting

    sys.stdout.write(fitting(prompt, sys.stdout))
    sys.stdout.flush()
    typed = sys.stdin.readline()
    return typed.strip() if typed else None


def confirm(known: KnownJob, question: str, *, yes: bool) -> None:
    """Ask, unless `yes`; exit if the answer is no, or if nobody can answer."""
    from agentrun.errors import UsageError
    from agentrun_cli.terminal import say

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"{known.folder.name}: nothing is posted: this is not a terminal, so nobody can confirm; add --yes"
        )
    say(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say(f"{known.folder.name}: nothing is posted")
        raise typer.Exit(2)


def signed(by: str | None) -> str:
    from agentrun.people.messages import person

    return by or person()


def are(count: int, noun: str) -> str:
    from agentrun_cli.terminal import counted

    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"
