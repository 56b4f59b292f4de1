"""agentrun try: run a few items in the foreground, one at a time, without state."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.asked import asked_job

if TYPE_CHECKING:
    from agentrun.agents.attempt import Outcome
    from agentrun.item import Item
    from agentrun.job.opening import OpenJob


HOW_MANY = 3
_ENDINGS = ("builtins.KeyboardInterrupt", "bdb.BdbQuit")  # Ctrl-C, and `q` in the debugger


def try_items(
    ctx: typer.Context,
    job: flags.JobRef = None,
    wanted: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Keys, or paths of items.")] = None,
    index: Annotated[list[int] | None, typer.Option("--index", metavar="N", help="The item at this index.")] = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, help="How many, starting with the first.")] = HOW_MANY,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", help="N items at random, from all over the list.")
    ] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="S", help="With --sample: another seed draws other items (0).")
    ] = None,
    items: flags.Items = None,
    exclude: flags.Exclude = None,
    kind: flags.Kind = None,
    key: flags.Key = None,
    settings: flags.Settings = None,
    prompt: flags.Prompt = None,
    model: flags.Model = None,
    system: flags.System = None,
    schema: flags.Schema = None,
    structured: flags.Structured = None,
    base_url: flags.BaseUrl = None,
    max_output_tokens: flags.MaxOutputTokens = None,
    temperature: flags.Temperature = None,
    parse: flags.Parse = None,
    serve: flags.Serve = False,
    env_file: flags.EnvFile = None,
    needs_env: flags.NeedsEnv = None,
    carry: flags.Carry = False,
    name: flags.Name = None,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Run a few items in the foreground, without state.

    \b
    agentrun try triage/job.toml
    agentrun try summarise.py:summarise --items 'docs/*.txt' -n 1
    agentrun try triage documents/0007.txt
    agentrun try triage --sample 5

    One at a time, one attempt each, without a timeout; breakpoint() works. Outputs go to standard output.
    """
    from agentrun.trial import Trial
    from agentrun_cli.launching import make_ready, open_asked, warn_of_shell
    from agentrun_cli.terminal import clean_text, say

    opened = open_asked(asked_job(flags.Given(ctx.params), ctx.obj), fresh=False)
    with contextlib.ExitStack() as stack:
        spool = _spool_stdin(opened, stack)
        if sample is None and seed is None:
            found = _choose(opened, spool, wanted or [], index or [], count)
        else:
            _check_sample(ctx, sample)
            found = _draw(opened, spool, sample or 0, seed or "0")
        warn_of_shell(opened.job)
        ready = make_ready(opened)
        if not sys.__stdout__ or not sys.__stdout__.isatty():
            # On a terminal, prints stay on standard output; in a pipe they would mix with the data.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        trial = stack.enter_context(Trial(opened.job, ready.agent, say=lambda text: say(clean_text(text))))
        codes = [_put_outcome(item, trial.run(item)) for item in found]
    raise typer.Exit(max(codes, key=(0, 3, 1).index))


def _spool_stdin(opened: OpenJob, stack: contextlib.ExitStack) -> Path | None:
    """Copy standard input to a temporary file, because it can be read only once."""
    if opened.job.items.pattern != "-" or sys.stdin.isatty():
        return None
    import shutil
    import tempfile

    spool = stack.enter_context(tempfile.NamedTemporaryFile(prefix="agentrun-try-"))  # noqa: SIM115
    shutil.copyfileobj(sys.stdin.buffer, spool)
    spool.flush()
    return Path(spool.name)


def _choose(opened: OpenJob, spool: Path | None, wanted: list[str], indexes: list[int], count: int) -> list[Item]:
    """The items that were named, or the first few."""
    from itertools import islice

    from agentrun.errors import ItemsError
    from agentrun.people.selecting import select_from_source
    from agentrun.views.finding import KnownJob, store_of
    from agentrun.views.listing import read_source
    from agentrun_cli.asking.choosing import select

    if wanted or indexes:
        known = KnownJob(opened.job.name, store_of(opened), opened.job)
        return select_from_source(known, select(wanted, indexes), spool=spool)
    found = [make() for _, _, make in islice(read_source(store_of(opened), opened.job, spool=spool), count)]
    if not found:
        raise ItemsError(f"{opened.job.name}: there are no items, so there is nothing to run")
    return found


def _check_sample(ctx: typer.Context, sample: int | None) -> None:
    """Refuse other choices of items beside --sample."""
    from agentrun.errors import UsageError

    if sample is None:
        raise UsageError("--seed says which items --sample draws; add --sample")
    if sample < 1:
        raise UsageError(f"--sample is {sample}; write a number of items, 1 or more")
    others = {"wanted": "ITEM", "index": "--index"}
    given = [flag for name, flag in others.items() if ctx.params.get(name)]
    given += ["-n"] if ctx.params.get("count") != HOW_MANY else []
    if given:
        raise UsageError(f"--sample and {given[0]} are both given; give one of them")


def _draw(opened: OpenJob, spool: Path | None, wanted: int, seed: str) -> list[Item]:
    """Items from all over the list, as a pilot draws them."""
    from agentrun.errors import ItemsError
    from agentrun.values.sampling import spread
    from agentrun.views.finding import store_of
    from agentrun.views.listing import read_source

    total = sum(1 for _ in read_source(store_of(opened), opened.job, spool=spool))
    drawn = set(spread(total, wanted, seed))
    found = [make() for at, _, make in read_source(store_of(opened), opened.job, spool=spool) if at in drawn]
    if not found:
        raise ItemsError(f"{opened.job.name}: there are no items, so there is nothing to run")
    return found


def _put_outcome(item: Item, outcome: Outcome) -> int:
    """Print one item's line, as data if it is done. Return the exit code: 0 done or skipped, 1 failed, 3 waiting."""
    from agentrun_cli.terminal import clean, clean_text, coloured, json_for, put, say

    failure = outcome.failure
    if failure is not None and any(name in _ENDINGS for name in failure.types):
        raise KeyboardInterrupt
    if outcome.kind == "done":
        import orjson

        line = {"index": item.index, "key": item.key, "output": orjson.Fragment(outcome.output)}
        put(json_for(sys.__stdout__, orjson.dumps(line).decode()))
        return 0
    cause = clean(failure.cause if failure else outcome.kind)
    if outcome.kind == "skipped":
        say(f"{coloured('skipped', 'yellow')}  {clean(item.key)}: {cause}")
        return 0
    if outcome.kind == "waiting":
        say(f"{coloured('waiting', 'yellow')}  {clean(item.key)}: for a person's answer")
        return 3
    if failure is not None and failure.traceback:
        say(clean_text(failure.traceback).rstrip())
    say(f"{coloured('failed', 'red')}  {clean(item.key)}: {cause}")
    return 1
