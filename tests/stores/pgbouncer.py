"""PgBouncer before a PostgreSQL server, as it is set up most often: each transaction gets any of its connections."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg

from needs import find_program, require_program
from stores.postgres_server import OWNER, PostgresServer, ordinary_user
from waiting import happens_before_exit

_PORTS_TRIED = 5


@contextmanager
def serve_pgbouncer(server: PostgresServer) -> Iterator[int]:
    """Its port; the user is the server's owner."""
    require_program("pgbouncer")
    folder = Path(tempfile.mkdtemp(prefix="agentrun-pgbouncer-"))
    process: subprocess.Popen[bytes] | None = None
    try:
        for _ in range(_PORTS_TRIED):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = int(free.getsockname()[1])
            process = _start(folder, server, port)
            if happens_before_exit(process, partial(_answers, server, port), "PgBouncer answers"):
                break
        else:
            raise AssertionError((folder / "log").read_text())
        yield port
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(folder)


def _start(folder: Path, server: PostgresServer, port: int) -> subprocess.Popen[bytes]:
    users, settings = folder / "users", folder / "settings"
    users.touch(mode=0o600)
    users.write_text(f'"{OWNER}" "{server.password}"\n')
    # In turn, so that two transactions of one client are never in the same session.
    settings.write_text(
        f"""\
[databases]
* = host=127.0.0.1 port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
server_round_robin = 1
min_pool_size = 3
default_pool_size = 5
"""
    )
    user = ordinary_user()
    if user is not None:
        for path in (folder, users, settings):
            os.chown(path, user.pw_uid, user.pw_gid)
    program = find_program("pgbouncer")
    assert program is not None
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [program, str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            user=user.pw_uid if user is not None else None,
            group=user.pw_gid if user is not None else None,
            extra_groups=[] if user is not None else None,
        )


def _answers(server: PostgresServer, port: int) -> bool:
    try:
        psycopg.connect(server.url(port=port)).close()
    except psycopg.OperationalError:
        return False
    return True
