"""A Ray that is started for a launch: what it is started with, and the folder of its session.

All its ports are on loopback, the token that it asks callers for is a random one that no file holds, and its session
folder is readable by this user alone and removed at the end. What cannot be helped: other processes of this user may
find the token, in /proc; and without Linux, or if a later Ray does not know the variables below any more, it listens on
all interfaces again and keeps the token in ~/.ray.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

REMOVE_SECONDS, REMOVALS = 10.0, 100
OBJECT_STORE_BYTES = 128 << 20
"""Nothing of ours is kept in it. Ray's own choice is a third of the memory."""
PREFIX = "agentrun-ray-"
LOCK = "lock"


def make_environ() -> dict[str, str]:
    """The variables of all its processes."""
    environ = dict(os.environ)
    # Otherwise Ray puts the machine's own address in the place of 127.0.0.1, and listens on all interfaces.
    environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    if not any(name in environ for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    return environ


def make_options(given: Mapping[str, Any], *, cpus: int, folder: SessionFolder) -> dict[str, Any]:
    """The arguments of `ray.init`."""
    options: dict[str, Any] = {
        "num_cpus": cpus,
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": "ERROR",
        "object_store_memory": OBJECT_STORE_BYTES,
        "_node_ip_address": "127.0.0.1",
        **given,
    }
    if "_temp_dir" not in options:
        options["_temp_dir"] = str(folder.make())
    return options


class SessionFolder:
    """For Ray's session. It is locked as long as this process lives, so that a later launch removes what is left of one
    that was killed."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._lock = -1

    def make(self) -> Path:
        # Not in TMPDIR, which may be long: the paths of sockets may not.
        above = Path(os.environ.get("RAY_TMPDIR") or "/tmp")  # noqa: S108
        for old in above.glob(f"{PREFIX}*"):
            with suppress(OSError):
                if old.lstat().st_uid == os.geteuid():
                    lock = _lock(old)
                    shutil.rmtree(old, ignore_errors=True)
                    os.close(lock)
        made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=above))
        # Found under its own name only when it is locked.
        self._lock = _lock(made, os.O_CREAT)
        self._path = made.rename(above / made.name.removeprefix("."))
        return self._path

    def remove(self) -> None:
        """What Ray's processes write while they end may be in the way of that for a moment."""
        if self._path is None:
            return
        for _ in range(REMOVALS):
            shutil.rmtree(self._path, ignore_errors=True)
            if not self._path.exists():
                break
            time.sleep(REMOVE_SECONDS / REMOVALS)
        self._path = None
        os.close(self._lock)


def _lock(folder: Path, flags: int = 0) -> int:
    """OSError if another process has it."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
