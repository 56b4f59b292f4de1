"""Which user of this machine a connection comes from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _USER = 1, 7
"""Columns of the tables: the connection's own address and port, and the user who opened it."""
_LOOPBACK = "0100007F"
_LOOPBACKS = (_LOOPBACK, f"0000000000000000FFFF0000{_LOOPBACK}")


def may_be_ours(port: int, tables: Sequence[Path] = _TABLES) -> bool:
    """Whether the connection from this port of 127.0.0.1 is ours, or root's; yes where the system does not say."""
    try:
        lines = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()]
    except OSError:
        return True
    ends = {f"{address}:{port:04X}" for address in _LOOPBACKS}
    users = [line[_USER] for line in lines if len(line) > _USER and line[_LOCAL] in ends]
    return not lines or (bool(users) and set(users) <= {str(os.getuid()), "0"})
