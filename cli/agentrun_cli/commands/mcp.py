"""agentrun mcp: a server for other agents, over the Model Context Protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags


def mcp(
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="WHAT", help="Besides reading: answer, redo, skip, start; comma-separated."),
    ] = None,
    jobs: Annotated[
        list[str] | None,
        typer.Option("--jobs", metavar="FILE…", help="With --allow start: the job files that may be started."),
    ] = None,
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE…]", hidden=True)] = None,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Let other agents, such as Claude or Cursor, see your jobs.

    A server that speaks the Model Context Protocol on standard input and
    output; the agent's program starts it. Without --allow it only reads.

    \b
    agentrun mcp
    agentrun mcp --allow answer,redo
    agentrun mcp --allow answer,start --jobs triage/job.toml
    """
    import sys
    from contextlib import redirect_stdout
    from importlib.util import find_spec

    from agentrun.errors import UsageError
    from agentrun_cli.loop import exit_on_interrupt
    from agentrun_cli.terminal import HERE

    if files and not jobs:
        raise UsageError(f"{files[0]}: job files that may be started are given with --jobs")
    if find_spec("mcp") is None:
        raise UsageError("this needs the MCP SDK; install it, in the checkout, with: pip install '.[mcp]'")
    # Standard output is the protocol's alone, from the first byte.
    with redirect_stdout(sys.stderr):
        from agentrun_cli.mcp.server import make_server, serve

        server = make_server(
            HERE, allow=allow or [], job_files=[*(jobs or []), *(files or [])], state_dir=state_dir, store=store
        )
    # Whatever it was doing is safe at any instant, and a read of standard input cannot be interrupted.
    exit_on_interrupt()
    serve(server)
