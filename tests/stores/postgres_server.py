"""A real PostgreSQL on loopback, with files and a port of its own. It syncs, as a server in use does."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from agentrun.store.homes.postgres.place import PostgresPlace
from agentrun.store.homes.postgres.server import ANSWER_SECONDS
from needs import require, require_linux
from waiting import eventually, happens_before_exit

OWNER = "owner"
"""The superuser."""
_PORTS_TRIED = 5
_VERSIONS = Path("/usr/lib/postgresql")
"""Debian keeps the server's programs apart, by version."""


def find_postgres() -> Path | None:
    """The folder with `initdb` and `postgres`, of the newest version."""
    versions = sorted(_VERSIONS.glob("*/bin/initdb"), key=lambda path: float(path.parent.parent.name))
    found = str(versions[-1]) if versions else shutil.which("initdb")
    return Path(found).parent if found is not None else None


class PostgresServer:
    """Has a password, so that it can be looked for where it must not be."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.port = 0
        self.password = f"s3cret-{secrets.token_hex(8)}"
        self.log = folder / "log"
        self._data, self._programs = folder / "data", programs
        self._process: subprocess.Popen[bytes] | None = None
        self._user = ordinary_user()
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        password = folder / "password"
        password.write_text(self.password)
        password.chmod(0o644)
        # Only initdb does not sync: after a power cut there would be no test.
        options = ["--no-sync", "--auth=scram-sha-256", "--locale=C", "--encoding=UTF8", f"--username={OWNER}"]
        self._run("initdb", *options, f"--pwfile={password}", f"--pgdata={self._data}").wait_for_success()
        password.unlink()

    # ---- its life

    def start(self, **settings: str) -> None:
        """Start it where it was, with these settings; for the first time, on a port that is free."""
        if self.port:
            assert self._starts(settings), self.log.read_text()
            return
        for _ in range(_PORTS_TRIED):
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            if self._starts(settings):
                return
        raise AssertionError(self.log.read_text())

    def _starts(self, settings: Mapping[str, str]) -> bool:
        own = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": ""}
        words = [f"--{name}={value}" for name, value in {**own, "shared_buffers": "16MB", **settings}.items()]
        self._process = self._run("postgres", "-D", str(self._data), *words).process
        return happens_before_exit(self._process, self._answers, "the server answers")

    def stop(self) -> None:
        """As an administrator does: connections are ended, nothing is lost."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Kill all of its processes."""
        assert self._process is not None
        # First, and stopped: it would end the others in order, and start new ones.
        self._process.send_signal(signal.SIGSTOP)
        children = self._children()
        for pid in [*children, self._process.pid]:
            _signal(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        eventually(lambda: not any(map(_is_alive, children)), "its processes are gone")

    def restart(self, **settings: str) -> None:
        if self._process is not None:
            self.stop()
        self.start(**settings)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stopped (SIGSTOP): connections stay open, and nothing is answered."""
        assert self._process is not None
        stopped = [self._process.pid]
        _signal(self._process.pid, signal.SIGSTOP)
        try:
            for pid in self._children():
                stopped.append(pid)
                _signal(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in stopped:
                _signal(pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None:
            self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait()
        self._process = None

    def _children(self) -> list[int]:
        assert self._process is not None
        return [pid for pid, parent in _parents() if parent == self._process.pid]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *words: str) -> _Started:
        who: dict[str, Any] = {}
        if self._user is not None:
            who = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [str(self._programs / program), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Not the tests' folder, which another user may not enter.
                cwd="/",
                env=environment,
                start_new_session=True,
                **who,
            )
        return _Started(process, self.log)

    # ---- its databases

    def url(self, database: str = "postgres", *, user: str = OWNER, password: str = "", port: int | None = None) -> str:
        return f"postgres://{user}:{password or self.password}@127.0.0.1:{port or self.port}/{database}"

    def run(self, text: str, values: Sequence[Any] = (), *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of a statement of the superuser."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(text, values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def make_database(self, *, like: str = "") -> Database:
        """An empty database; `like` are more words of `create database`."""
        made = Database(self, f"db_{secrets.token_hex(6)}")
        self.run(f"create database {made.name} {like}")
        return made


class Database:
    """An empty database, its users, and the places that a test opens on it."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name
        self.shown = f"postgres://127.0.0.1/{name}"
        """The address for people: no password is in it."""
        self._users: list[str] = []
        self._places: list[PostgresPlace] = []

    def place(
        self, *, user: str = OWNER, port: int | None = None, answer_seconds: float = ANSWER_SECONDS
    ) -> PostgresPlace:
        """A place with a connection of its own."""
        url = self.server.url(self.name, user=user, port=port)
        self._places.append(PostgresPlace(url, shown=self.shown, answer_seconds=answer_seconds))
        return self._places[-1]

    def run(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.server.run(text, values, database=self.name)

    def set(self, setting: str, value: str) -> None:
        """For new connections to it."""
        self.run(f"alter database {self.name} set {setting} = {value}")

    def make_user(self, *grants: str) -> str:
        """The name of a user with the server's password, who has these rights."""
        name = f"user_{secrets.token_hex(6)}"
        self.run(f"create role {name} login password '{self.server.password}'")
        self._users.append(name)
        for grant in grants:
            self.run(f"grant {grant} to {name}")
        return name

    def close(self) -> None:
        for place in self._places:
            place.close()
        self.server.run(f"drop database {self.name} with (force)")
        for user in self._users:
            self.server.run(f"drop role {user}")


class _Started:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log

    def wait_for_success(self) -> None:
        assert self.process.wait() == 0, self._log.read_text()


@contextmanager
def serve_postgres() -> Iterator[PostgresServer]:
    """A server that runs, and is gone afterwards with all of its files."""
    require_linux()
    programs = find_postgres()
    require(programs, "there is no PostgreSQL server", remedy="get it with: make system")
    assert programs is not None
    # Not below pytest's folder, which only root may enter where root runs the tests.
    folder = Path(tempfile.mkdtemp(prefix="agentrun-postgres-"))
    server: PostgresServer | None = None
    try:
        server = PostgresServer(folder, programs)
        server.start()
        yield server
    finally:
        if server is not None:
            server.close()
        shutil.rmtree(folder)


def ordinary_user() -> pwd.struct_passwd | None:
    """Who runs the server where root runs the tests: it refuses root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise AssertionError("there is no user who could run a server")


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        if (stat := _stat(int(folder.name))) is not None:
            yield int(folder.name), int(stat[1])


def _is_alive(pid: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def _stat(pid: int) -> list[str] | None:
    """State, parent and more; None if it is gone."""
    try:
        # The name in parentheses may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
