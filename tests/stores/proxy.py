"""A proxy on loopback that can swallow a server's answers: what was asked for happens, and nobody hears of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Proxy:
    """Forwards connections to a port. What was swallowed is gone, and so is all that comes on that connection later."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.connections = 0
        """How many there have been."""
        self.on_answer: Callable[[bytes], bytes] = bytes
        """Is given each part of an answer, and returns what to forward."""
        self._swallows = threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        """Forward no answers from now on, on any connection."""
        self._swallows.set()

    def forward(self) -> None:
        """Forward the answers on new connections, and on those that have lost none."""
        self._swallows.clear()

    def close(self) -> None:
        # Closing alone would not wake up those who wait for it.
        for one in [self._listening, *self._open]:
            _shut(one)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(near)
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _shut(near)
                continue
            self._open.append(far)
            threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, has_answers: bool) -> None:
        is_mute = False
        try:
            while data := source.recv(1 << 16):
                is_mute = is_mute or (has_answers and self._swallows.is_set())
                if not is_mute:
                    target.sendall(self.on_answer(data) if has_answers else data)
        except OSError:
            pass  # one side is gone
        _shut(source)
        _shut(target)


@contextmanager
def serve_proxy(target: int) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is already
