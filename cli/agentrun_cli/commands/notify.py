"""agentrun notify: whom a job tells how its launches end, and whether that works."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags


def notify(
    job: flags.KnownJob,
    test: Annotated[bool, typer.Option("--test", help="Send everybody a test notice now.")] = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Show whom a job tells how its launches end.

    Secrets in addresses are not shown. With --test, exits with 1 if a notice could not be sent.

    \b
    agentrun notify triage
    agentrun notify triage --test
    """
    import os

    from agentrun.errors import UsageError
    from agentrun.job.opening import agent_environment
    from agentrun.notices.notices import Notices
    from agentrun.values.units import format_duration
    from agentrun.views.finding import open_job
    from agentrun_cli.terminal import HERE, clean, put

    opened = open_job(job, cwd=HERE, state_dir=state_dir, store=store).job
    notices = Notices.open(opened, {**agent_environment(opened, os.environ), **os.environ})
    if notices is None:
        raise UsageError(
            f'{opened.name}: its job file has no notices; write [notify] and urls = ["ntfy://…"] or '
            f'command = ["./tell.sh"] there'
        )
    if test:
        deliveries = notices.test()
        for one in deliveries:
            put(clean(f"{one.to}: {one.problem or 'sent'}", limit=1000))
        raise typer.Exit(1 if any(one.problem for one in deliveries) else 0)
    wanted = notices.notify
    put(f"{opened.name}: tells when {', '.join(wanted.on)}, after {format_duration(wanted.after_seconds)} or more")
    for address in notices.addresses:
        put(clean(f"  {address}  {address.shown}", limit=1000))
    if wanted.command is not None:
        put(clean(f"  command  {' '.join(wanted.command)}", limit=1000))
