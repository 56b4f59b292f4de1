"""An HTTP server on loopback, in threads of the test's own process, for as long as a block runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed resets its connection."""


@contextmanager
def listen(handler: type[JsonHandler], *, port: int = 0) -> Iterator[str]:
    """The server's address, without a path; port 0 is any that is free."""
    server = _Server(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
