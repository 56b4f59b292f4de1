"""An HTTP server on loopback, in threads of the test's own process, for as long as a block runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """Answers with JSON, on a connection that is kept open."""

    protocol_version = "HTTP/1.1"

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def send_json(self, status: int, headers: Mapping[str, str], reply: bytes, *, cut: bool = False) -> bool:
        """Whether the socket took all of it; `cut` ends the connection within the body."""
        try:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply[: len(reply) // 2] if cut else reply)
        except OSError:  # the client is gone
            self.close_connection = True
            return False
        self.close_connection = self.close_connection or cut
        return not cut

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[JsonHandler], port: int) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        """Without a path."""
        self._connected: set[socket.socket] = set()

    def die(self) -> None:
        """End at once: no answer to requests in flight, and no connection from now on."""
        self.shutdown()
        self.server_close()
        for connection in list(self._connected):
            with suppress(OSError):  # closed meanwhile
                connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connected.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connected.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed resets its connection."""


@contextmanager
def listen(handler: type[JsonHandler], *, port: int = 0) -> Iterator[Listening]:
    """A server; port 0 is any that is free."""
    server = Listening(handler, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
