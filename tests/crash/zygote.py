"""A process that has imported what a worker needs, and forks one for each socket that it is sent.

It spares the tests that end hundreds of workers their start: the worker itself is the real one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType


class Zygote:
    def __init__(self, base: Path) -> None:
        """Workers begin in the folder `base`."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "crash.zygote", str(theirs.fileno()), str(base)],
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parents[1],
            )

    def start_worker(self, end: socket.socket) -> None:
        """Fork a worker that has this end of a connection; ours is closed."""
        with end:
            socket.send_fds(self._socket, [b"w"], [end.fileno()])

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()
        self._process.wait()


def main(fd: int, base: str) -> None:
    from agentrun.executors.workers import worker
    from crash import wires  # which the agents import

    assert wires
    os.chdir(base)
    connection = socket.socket(fileno=fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        word, fds, *_ = socket.recv_fds(connection, 1, 1)
        if not word:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            try:
                worker.main(fds[0])
            finally:
                os._exit(0)
        os.close(fds[0])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
