"""A bucket on loopback that speaks S3: moto's server, in threads of this process. Tests can let its answers go wrong.

One request at a time: moto looks at a condition and writes in two steps, and of two writers at once both would succeed.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    from agentrun.store.homes.objects.place import ObjectsPlace

BUCKET = "bucket"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "agentrun-tests", "AWS_SECRET_ACCESS_KEY": "no-secret-but-long-enough"}
"""What the client finds in the environment; the server accepts anything."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """Within the bucket."""
    is_conditional: bool

    @property
    def is_swap(self) -> bool:
        """Whether it replaces a head, or makes the first."""
        return self.method == "PUT" and self.is_conditional and self.path.endswith("/head")


@dataclass(slots=True)
class Faults:
    """What becomes of some requests; each fault is for the next one that fits, and then gone."""

    cut: Callable[[Request], bool] | None = None
    """It is done, and then the connection is closed without an answer."""
    swallow: Callable[[Request], bool] | None = None
    """It is done, and the answer never comes."""
    refuse: Callable[[Request], bool] | None = None
    """It is not done: the server is busy (503)."""
    deny: Callable[[Request], bool] | None = None
    """It is not done: the credentials do not allow it (403)."""
    delay: Callable[[Request], bool] | None = None
    """It is done only when `arrive` is set, and nobody waits for the answer by then."""
    arrive: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)
    done: list[str] = field(default_factory=list)
    """The faults that came, by name."""

    def take(self, name: str, request: Request) -> bool:
        fits = getattr(self, name)
        if fits is None or not fits(request):
            return False
        setattr(self, name, None)
        self.done.append(name)
        return True


class MotoServer:
    """`requests` has all that were answered so far."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.requests: list[Request] = []
        self.faults = Faults()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="moto", daemon=True)
        self._thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()

    def address(self, prefix: str) -> str:
        """The address of a store, as users write it."""
        return f"s3://{BUCKET}/{prefix}?endpoint={self.url}&region=us-east-1"

    def place(self, prefix: str, *, bucket: str = BUCKET) -> ObjectsPlace:
        """As users open it; the credentials must be in the environment."""
        from agentrun.store.homes.objects.place import open_objects

        settings = {"endpoint": self.url, "region": "us-east-1"}
        return open_objects("s3", bucket, prefix, settings, shown=f"s3://{bucket}/{prefix}")

    def swaps(self, prefix: str) -> int:
        """How often heads below the prefix were replaced, or tried to be."""
        return sum(one.is_swap and one.path.startswith(f"{prefix}/") for one in self.requests)

    def close(self) -> None:
        self._stopped.set()
        self.faults.arrive.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"].removeprefix(f"/{BUCKET}/"),
            "HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ,
        )
        for name, status, code in (("refuse", "503 Slow Down", "SlowDown"), ("deny", "403 Forbidden", "AccessDenied")):
            if self.faults.take(name, request):
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                text = f"<Error><Code>{code}</Code></Error>".encode()
                start_response(status, [("Content-Length", str(len(text))), ("Content-Type", "application/xml")])
                return [text]
        if self.faults.take("delay", request):
            self.faults.arrive.wait()
            found = self._ask_moto(environ, start_response, request)
            self.faults.arrived.set()
            return found
        found = self._ask_moto(environ, start_response, request)
        if self.faults.take("swallow", request):
            self._stopped.wait()
        elif self.faults.take("cut", request):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return found

    def _ask_moto(self, environ: WSGIEnvironment, start_response: StartResponse, request: Request) -> Iterable[bytes]:
        with self._lock:
            found = [b"".join(self._moto(environ, start_response))]
            self.requests.append(request)
        return found


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Nothing is printed."""

    def connection_dropped(self, error: BaseException, environ: WSGIEnvironment | None = None) -> None:
        """The client did not wait, or a test has cut it."""


@contextmanager
def serve_moto() -> Iterator[MotoServer]:
    server = MotoServer()
    try:
        yield server
    finally:
        server.close()
