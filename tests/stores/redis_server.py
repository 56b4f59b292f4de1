"""A Redis server for tests: Debian's, on loopback, with files and a password of its own."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from agentrun.store.homes.redis.place import RedisPlace
from needs import find_program, require_module, require_program
from waiting import eventually

DURABLE = {"appendonly": "yes", "appendfsync": "always"}
_PORTS_TRIED = 5


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class TestServer:
    """The server and its folder, which outlives it: killed and started again, it has what it had on disk."""

    __test__ = False

    def __init__(self, folder: Path, settings: Mapping[str, str], *, password: str) -> None:
        self.folder = folder
        self.password = password
        self.port = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def shown(self) -> str:
        """The address for people."""
        return f"redis://127.0.0.1:{self.port}/0"

    def url(self, password: str | None = None, *, user: str = "", database: int = 0) -> str:
        return f"redis://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def place(self, *, is_trusted: bool = False) -> RedisPlace:
        return RedisPlace(self.url(), shown=self.shown, is_trusted=is_trusted)

    def ask(self, *command: Any) -> Any:
        """The answer to a command, by a connection of its own."""
        import redis

        with redis.Redis(port=self.port, password=self.password, protocol=2) as client:
            return client.execute_command(*command)

    def dump(self, prefix: str) -> dict[bytes, Any]:
        """All that the keys hold that begin so."""
        reading = {
            b"string": ("GET",),
            b"hash": ("HGETALL",),
            b"set": ("SMEMBERS",),
            b"zset": ("ZRANGE", "0", "-1"),
        }
        found = {key: reading[self.ask("TYPE", key)] for key in self.ask("KEYS", f"{prefix}*")}
        return {key: self.ask(command, key, *rest) for key, (command, *rest) in found.items()}

    def start(self) -> None:
        """Start it where it was; for the first time, on a port that is free."""
        if self.port:
            assert self._starts(), self._log()
            return
        for _ in range(_PORTS_TRIED):
            self.port = free_port()
            if self._starts():
                return
        raise AssertionError(self._log())

    def _starts(self) -> bool:
        file = self.folder / "redis.conf"
        file.touch(mode=0o600)
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": f'"{self.folder}"',
            "save": '""',
            "logfile": f'"{self.folder / "log"}"',
            "requirepass": self.password,
            **self._settings,
        }
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        program = find_program("redis-server")
        assert program is not None
        self._process = subprocess.Popen([program, str(file)], stdin=subprocess.DEVNULL)
        eventually(lambda: self._is_over() or self._answers(), "redis-server answers")
        return not self._is_over()

    def _is_over(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def _answers(self) -> bool:
        import redis

        with suppress(redis.ConnectionError, redis.TimeoutError):
            return bool(self.ask("PING"))
        return False

    def _log(self) -> str:
        log = self.folder / "log"
        return f"redis-server does not start: {log.read_text() if log.exists() else 'it has written no log'}"

    def signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.kill()


@contextmanager
def serve_redis(folder: Path, settings: Mapping[str, str] = DURABLE, *, password: str = "") -> Iterator[TestServer]:
    """A server while the block runs."""
    require_module("redis", extra="redis")
    require_program("redis-server")
    folder.mkdir(parents=True, exist_ok=True)
    server = TestServer(folder, settings, password=password or secrets.token_hex(12))
    try:
        server.start()
        yield server
    finally:
        server.stop()
