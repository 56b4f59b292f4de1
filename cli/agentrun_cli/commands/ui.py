"""agentrun ui: jobs, review and results in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags


def ui(
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="N", min=0, max=65535, help="Port to listen on; 0: any free one.", show_default=True
        ),
    ] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address, and open no browser.")] = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Show the jobs here in a browser: progress, items, review, results.

    The page runs until Ctrl-C. Only this machine can reach it, and only with
    the address that is printed: it has a token, new each time.

    From another machine, open a tunnel with the same port on both sides, and
    then that address in the browser there.

    \b
    agentrun ui
    agentrun ui --port 8765 --no-open
    ssh -L 8765:127.0.0.1:8765 you@machine    the tunnel, on the other machine
    """
    from agentrun.errors import UsageError
    from agentrun.views.place import Place
    from agentrun_cli.terminal import HERE, put, say

    try:
        from agentrun_cli.page.server import PageServer, open_browser
    except ModuleNotFoundError as error:
        raise UsageError(
            f"agentrun ui needs {error.name}, which is not installed; "
            "install it, in the checkout, with: pip install '.[ui]'"
        ) from None
    place = Place(HERE, state_dir, store=store)
    place.jobs()  # a folder that others could tamper with is refused before anything is served
    server = PageServer(place, port=port, say_bug=_say)

    def show() -> None:
        put(server.address)
        opened = not no_open and open_browser(server.address_for_once())
        say(f"{'opening it in your browser' if opened else 'open it in a browser'}; end with Ctrl-C")

    try:
        server.run(when_served=show)
    except KeyboardInterrupt:
        say("")
    finally:
        place.close()


def _say(error: Exception) -> None:
    """Say what went wrong while a page was made or sent."""
    from agentrun.errors import AgentrunError
    from agentrun_cli.bugs import describe_bug
    from agentrun_cli.terminal import clean, say

    say(clean(error.message, limit=2000) if isinstance(error, AgentrunError) else describe_bug(error))
