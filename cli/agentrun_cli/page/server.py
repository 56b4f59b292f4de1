"""Serving the page: a socket on 127.0.0.1, an address with a token, and an end that waits for nobody."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from agentrun.errors import UsageError
from agentrun.views.place import Place
from agentrun_cli.page.app import Page
from agentrun_cli.page.guard import Guard

LOCAL = "127.0.0.1"
_LEAVE_SECONDS = 1


class PageServer:
    """The page of a place, on a port of this machine. Nobody else's machine can reach it."""

    def __init__(self, place: Place, *, port: int, say_bug: Callable[[Exception], object]) -> None:
        self._socket = _listen(port)
        self.port: int = self._socket.getsockname()[1]
        page = Page(place, port=self.port, is_closing=lambda: self._server.should_exit, say_bug=say_bug)
        self._guard = Guard(reporting(page.app(), say_bug), host=f"{LOCAL}:{self.port}")
        self._server = _Server(
            uvicorn.Config(
                self._guard,
                # What a proxy says of itself is not believed, and nothing is said of us.
                proxy_headers=False,
                server_header=False,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                # What is no HTTP is refused, and our own errors are said by `reporting`.
                log_level=logging.CRITICAL + 1,
                access_log=False,
                timeout_graceful_shutdown=_LEAVE_SECONDS,
            )
        )

    @property
    def address(self) -> str:
        """Where to open it, with the token."""
        return f"http://{LOCAL}:{self.port}/?token={self._guard.token}"

    def address_for_once(self) -> str:
        """The same for one browser, with a token that is used up by it."""
        return f"http://{LOCAL}:{self.port}/?token={self._guard.token_for_once()}"

    def run(self, *, when_served: Callable[[], object] = lambda: None) -> None:
        """Serve until a signal ends it. `when_served` is called once, when the page answers and Ctrl-C ends it well."""
        self._server.when_served = when_served
        self._server.run(sockets=[self._socket])


class _Server(uvicorn.Server):
    """Says when it has begun."""

    when_served: Callable[[], object]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.when_served()


def reporting(app: ASGIApp, say_bug: Callable[[Exception], object]) -> ASGIApp:
    """The app, whose errors are told to us: the server would print their tracebacks."""

    async def reported(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except ClientDisconnect:
            pass  # the tab was closed in the middle of a download
        except Exception as error:
            say_bug(error)

    return reported


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOCAL, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"--port {port}: cannot be used: {error.strerror}; choose another, or leave it out for any free one"
        ) from None
    return listening


def open_browser(address: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Open the address in the user's browser, if they sit at this machine; whether that was tried."""
    is_far = "SSH_CONNECTION" in environ
    has_screen = sys.platform == "darwin" or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
    if is_far or not has_screen:
        # A browser for the terminal would take the place of this command.
        return False
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    return True
