"""agentrun try: a few items in the foreground, one at a time, without state."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from agentrun.executors.port import Attempt, Outcome
    from agentrun.item import Item
    from agentrun.opening import OpenJob
    from agentrun.sources import Source
    from agentrun_cli.launching import Ready

HOW_MANY = 3


def try_items(
    ctx: typer.Context,
    job: flags.JobRef = None,
    wanted: Annotated[list[str] | None, typer.Argument(metavar="[ITEM]...", help="Keys, or paths of items.")] = None,
    index: Annotated[list[int] | None, typer.Option("--index", metavar="N", help="The item at this index.")] = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, help="How many, from the first on.")] = HOW_MANY,
    items: flags.Items = None,
    kind: flags.Kind = None,
    key: flags.Key = None,
    settings: flags.Settings = None,
    parse: flags.Parse = None,
    env_file: flags.EnvFile = None,
    needs_env: flags.NeedsEnv = None,
    carry: flags.Carry = False,
    name: flags.Name = None,
    state_dir: flags.StateDir = None,
) -> None:
    """Run a few items in the foreground, without state.

    One at a time, attempted once, without a timeout; breakpoint() works. Outputs go to standard output.
    """
    from agentrun_cli.launching import make_ready, open_asked

    opened = open_asked(flags.asked_job(ctx.params, ctx.obj), fresh=False)
    with contextlib.ExitStack() as stack:
        source = _open(opened, stack)
        found = list(_pick(source, wanted or [], index or [], count))
        ready = make_ready(opened)
        if not sys.__stdout__ or not sys.__stdout__.isatty():
            # On a terminal prints are left as they are; in a pipe they are not data.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        trial = stack.enter_context(Trial(ready))
        failed = [item.key for item in found if not trial.run(item)]
    raise typer.Exit(1 if failed else 0)


# ---- which items


def _open(opened: OpenJob, stack: ExitStack) -> Source:
    """The job's items; standard input is kept for as long as this lasts."""
    from agentrun.errors import ItemsError
    from agentrun.sources import open_source
    from agentrun.views import read_checkpoint
    from agentrun_cli.launching import open_items

    job = opened.job
    if job.items.pattern == "-" and not sys.stdin.isatty():
        import shutil
        import tempfile

        spool = stack.enter_context(tempfile.NamedTemporaryFile(prefix="agentrun-try-"))  # noqa: SIM115
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        return open_source(job.items, job.base, spool=Path(spool.name))
    checkpoint = read_checkpoint(opened.folder)
    context = checkpoint.context if checkpoint is not None else {}
    source = open_items(opened, spool=context.get("spool"), date=context.get("date", ""))
    if source is None:
        raise ItemsError(f"{job.name}: its items come from outside, and no run has kept them; give them with --items")
    return source


def _pick(source: Source, wanted: list[str], indexes: list[int], count: int) -> Iterator[Item]:
    """The items asked for, in item order; the first few where none are."""
    from agentrun.errors import ItemsError, UsageError
    from agentrun_cli.console import HERE, clean

    paths = {os.path.realpath(HERE / word): word for word in wanted}
    missing, left, total = set(wanted), set(indexes), 0
    for item in _listed(source):
        total += 1
        word = item.key if item.key in missing else None
        if word is None and item.path is not None:
            word = paths.get(os.path.realpath(item.path))
        if word is not None or item.index in left:
            missing.discard(word or "")
            left.discard(item.index)
            yield item
        elif not wanted and not indexes and item.index < count:
            yield item
        if not missing and not left and (wanted or indexes or total >= count):
            return
    if not total:
        raise ItemsError(f"{source.describe()}; there is nothing to run")
    if missing:
        raise UsageError(f"{clean(sorted(missing)[0])}: no item has that key, and it leads to no item's file")
    if left:
        raise UsageError(f"--index {sorted(left)[0]}: there are {total} items, counted from 0")


def _listed(source: Source) -> Iterator[Item]:
    from agentrun.item import key_digest
    from agentrun.plan import RepeatedKeys

    repeats, seen = RepeatedKeys(), set[bytes]()
    for index, raw in enumerate(source):
        key = source.identify(raw).key
        digest = key_digest(key)
        if digest in seen:
            key, digest = repeats.next_free(key, lambda one: one not in seen)
        seen.add(digest)
        yield source.item(raw, index, key)


# ---- running them


class Trial:
    """Attempts in this thread: a function is called, a program is waited for."""

    def __init__(self, ready: Ready) -> None:
        self._job, self._agent = ready.opened.job, ready.agent
        self._carry: Any = None
        self._runner: Any = None
        self._target: Any = None

    def __enter__(self) -> Trial:
        if self._agent.is_async:
            import asyncio

            self._runner = asyncio.Runner()
        if self._agent.kind == "class":
            from agentrun.errors import AgentError
            from agentrun.executors.facts import user_traceback

            try:
                self._target = self._agent.target()
            except Exception as error:
                message = f"{self._job.agent}: it cannot be made: {type(error).__name__}: {error}"
                raise AgentError(message, traceback=user_traceback(error)) from None
        else:
            self._target = self._agent.target
        return self

    def __exit__(self, *_: object) -> None:
        if self._agent.kind == "class":
            from agentrun.executors.calls import close_agent

            if self._runner is not None:
                self._runner.run(close_agent(self._target))
            elif callable(close := getattr(self._target, "close", None)):
                close()
        if self._runner is not None:
            self._runner.close()

    def run(self, item: Item) -> bool:
        """One attempt; whether it went well."""
        from agentrun.executors.port import Attempt

        attempt = Attempt(
            item=item,
            generation=0,
            launch=0,
            number=1,
            run_id="try",
            params=self._job.params,
            carry=self._carry,
            timeout_seconds=None,
            log_path=Path(os.devnull),
        )
        outcome = self._run_program(attempt) if self._agent.kind == "command" else self._call(attempt)
        return self._tell(item, outcome)

    def _call(self, attempt: Attempt) -> Outcome:
        from agentrun.context import Context
        from agentrun.executors.calls import perform, perform_async

        context = Context(attempt, self._sync_link(), carries=self._job.carry)
        wants_ctx = self._agent.wants_ctx
        if self._runner is None:
            return perform(self._target, context, self._sync_link(), wants_ctx=wants_ctx)
        outcome: Outcome = self._runner.run(
            perform_async(self._target, context, _AsyncLink(self._take), wants_ctx=wants_ctx)
        )
        return outcome

    def _sync_link(self) -> _Link:
        return _Link(self._take)

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("type") == "carry":
            self._carry = message["value"]
        elif message.get("type") == "progress":
            from agentrun_cli.console import clean, say

            say(clean(message.get("text", "")))

    def _run_program(self, attempt: Attempt) -> Outcome:
        import json
        import subprocess

        from agentrun.executors.commands import describe_item, variables
        from agentrun.executors.port import Outcome
        from agentrun.failure import Failure
        from agentrun.jsontext import NotJson, encode
        from agentrun.placeholders import argv_for

        assert self._job.command is not None
        try:
            ended = subprocess.run(
                argv_for(self._job.command, attempt.item),
                input=json.dumps(describe_item(attempt.item)).encode() + b"\n",
                stdout=subprocess.PIPE,
                env={**os.environ, **variables(attempt)},
                cwd=self._job.base,
                check=False,
            )
        except (ValueError, OSError) as error:
            return Outcome("failed", failure=Failure("program", f"command: {error}"))
        if ended.returncode == 77:
            return Outcome("skipped", failure=Failure("program", "exit 77"))
        if ended.returncode:
            return Outcome("failed", failure=Failure("program", f"exit {ended.returncode}"))
        text = ended.stdout.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
        try:
            return Outcome("done", encode(json.loads(text) if self._job.parse == "json" else text))
        except NotJson as error:
            return Outcome("failed", failure=Failure("output", str(error)))
        except ValueError as error:
            return Outcome("failed", failure=Failure("program", f"exit 0, but its output is not JSON: {error}"))

    def _tell(self, item: Item, outcome: Outcome) -> bool:
        from agentrun_cli.console import clean, clean_text, coloured, put, say

        failure = outcome.failure
        if failure is not None and any(name in _ENDINGS for name in failure.types):
            raise KeyboardInterrupt
        if outcome.kind == "done":
            import orjson

            line = {"index": item.index, "key": item.key, "output": orjson.Fragment(outcome.output)}
            put(orjson.dumps(line).decode())
            return True
        if outcome.kind == "skipped":
            say(f"{coloured('skipped', 'yellow')}  {clean(item.key)}: {clean(failure.cause if failure else '')}")
            return True
        if failure is not None and failure.traceback:
            say(clean_text(failure.traceback).rstrip())
        say(f"{coloured('failed', 'red')}  {clean(item.key)}: {clean(failure.cause if failure else 'lost')}")
        return False


_ENDINGS = ("builtins.KeyboardInterrupt", "bdb.BdbQuit")  # Ctrl-C, and `q` in the debugger


class _Link:
    """The attempt's end of the channel: logs go to the terminal."""

    def __init__(self, take: Any) -> None:
        self.tell = take

    def log(self, text: str) -> None:
        from agentrun_cli.console import clean_text, say

        say(clean_text(text).rstrip("\n"))

    def call(self, message: dict[str, Any]) -> Any:
        self.tell(message)
        return {}


class _AsyncLink(_Link):
    def call(self, message: dict[str, Any]) -> Any:
        async def answer() -> dict[str, Any]:
            self.tell(message)
            return {}

        return answer()
