"""What to do next, as commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentrun.agents.loading import RUN_IT_AGAIN, is_held_by_script
from agentrun.people.selecting import means_cause
from agentrun.report.report import Advice, Tone
from agentrun.values.clock import local_clock, now_seconds, seconds_until
from agentrun.values.text import clean
from agentrun.values.until import pause_words
from agentrun.views.causes import VARIES, CauseGroup
from agentrun.views.jobs import JobView

_CAUSE_CHARACTERS = 90


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands for one job. `name` names it in a command, as a shell reads it."""

    name: str
    reference: str = ""
    """Where its agent is."""

    def of(self, verb: str, flags: str = "") -> str:
        return f"agentrun {verb} {self.name} {flags}".rstrip()

    @property
    def is_held(self) -> bool:
        """Whether only the script or notebook that started it can continue it."""
        return bool(self.reference) and is_held_by_script(self.reference)

    def redo(self, group: CauseGroup) -> str:
        """The command that runs the items of a cause again; empty if no words for it can be typed."""
        whole, shape = clean(group.example, limit=2000), clean(group.shape, limit=2000)
        cut = f"{shape[:_CAUSE_CHARACTERS].rstrip()}{VARIES}"
        for words in (shape, whole, cut):
            if len(words) <= _CAUSE_CHARACTERS + 1 and words.isprintable() and means_cause(words, group.example):
                from shlex import quote

                between = "=" if words.startswith("-") else " "
                now = "" if self.is_held else " --now"
                return self.of("redo", f"--cause{between}{quote(words)}{now}")
        return ""


def advise(view: JobView, commands: Commands) -> Iterator[Advice]:
    """What is left for people to do, the most important first."""
    counts = view.counts
    if view.status == "moved":
        undo = commands.of("export", "--undo")
        yield Advice("Resume it where it was imported; or, if it runs nowhere else, have it back here", undo)
        return
    if waiting := counts.get("waiting"):
        yield Advice(f"Answer {_counted(waiting, 'question')}", commands.of("review"))
    if view.status == "running":
        state = "paused" if view.paused is not None else "at work"
        yield Advice(f"It is {state}; watch it", commands.of("status", "--watch"))
        return
    if view.status == "finished":
        yield from _after_the_end(view, commands)
    else:
        yield from _to_continue(view, commands)
    if view.empty:
        yield Advice(f"Look at {_counted(view.empty, 'empty output')}", commands.of("items", "--empty"))


def _to_continue(view: JobView, commands: Commands) -> Iterator[Advice]:
    counts, stopped = view.counts, view.stopped
    failed, pending = counts.get("failed", 0), counts.get("pending", 0)
    flags = stopped.flags if stopped is not None else ""
    resume = RUN_IT_AGAIN if commands.is_held else commands.of("resume", flags)
    if pending:
        later = ""
        if stopped is not None and seconds_until(stopped.resume_at):
            later = f", from {local_clock(stopped.resume_at)} on"
        also = f"; {_counted(failed, 'failed item')} will be retried" if failed else ""
        yield _do(f"Run {_counted(pending, 'item')} that {'is' if pending == 1 else 'are'} left{later}{also}", resume)
    elif failed:
        yield _do(f"Fix what went wrong, then retry {_counted(failed, 'failed item')}", resume)
    elif counts.get("waiting"):
        yield _do("Then continue with the answers", resume)
    elif view.posted:
        yield _do("Apply what was posted", resume)
    if failed and not pending:
        them = "it" if failed == 1 else "them"
        yield Advice(f"Or finish without {them}", commands.of("skip", "--failed"))


def _after_the_end(view: JobView, commands: Commands) -> Iterator[Advice]:
    if failed := view.counts.get("failed"):
        again = RUN_IT_AGAIN if commands.is_held else commands.of("start")
        yield _do(f"Retry {_counted(failed, 'failed item')} in a new run", again)
    if view.posted and not commands.is_held:
        yield Advice("Apply what was posted", commands.of("resume"))
    if view.counts.get("done"):
        yield Advice("Look at the results", commands.of("results"))


def _do(words: str, command: str) -> Advice:
    return Advice(f"{words}: {command}") if command == RUN_IT_AGAIN else Advice(words, command)


def judge(view: JobView) -> tuple[str, Tone]:
    """The run in a word or two."""
    counts = view.counts
    if view.status == "running":
        return ("paused", "warn") if view.paused is not None else ("at work", "busy")
    if view.status == "finished":
        return ("finished, some failed", "warn") if counts.get("failed") else ("finished", "good")
    if view.status == "moved":
        return "moved", "warn"
    if counts.get("waiting") or (counts.get("failed") and not counts.get("pending")):
        return "needs you", "warn"
    return "interrupted", "warn"


def describe(view: JobView) -> str:
    """How it stands, in a sentence."""
    at = local_clock(view.updated_at)
    if view.paused is not None:
        words = pause_words(view.paused.until, view.paused.reason, now_seconds())
        return f"P{words[1:]}. It continues by itself."
    if view.status == "running":
        return f"At work; the last checkpoint is of {at}."
    if view.status == "finished":
        return f"Finished at {at}."
    if view.moved is not None:
        # As a sentence: `was moved to …`.
        return f"The job {view.moved.words}."
    when = local_clock(view.stopped.at) if view.stopped is not None else at
    hint = f"; {view.stopped.hint}" if view.stopped is not None and view.stopped.hint else ""
    return f"Stopped at {when}: {view.why}{hint}." if view.why else f"Stopped at {when}."


def _counted(count: int, noun: str) -> str:
    return f"the {noun}" if count == 1 else f"the {count:,} {noun}s"
