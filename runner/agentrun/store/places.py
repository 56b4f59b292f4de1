"""Which place an address means: one for each process, whose connection its jobs share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from agentrun.checkpoint.sealing import read_keyring
from agentrun.errors import UsageError
from agentrun.job.address import StoreAddress
from agentrun.store.keyed.home import Place

EXTRAS = {"postgres": "postgres", "s3": "objects", "gs": "objects", "az": "objects", "redis": "redis"}
"""The extra that each kind of address needs."""

_open: dict[tuple[int, str], Place] = {}
"""By process, so that a child never uses its parent's connection, and by place."""


def open_place(address: StoreAddress, environ: Mapping[str, str] | None = None) -> Place:
    """The place at this address. The first call for a place needs its password; later ones use the same place."""
    key = os.getpid(), address.place
    if key not in _open:
        try:
            _open[key] = _sealed(_OPENERS[address.kind](address), environ)
        except ImportError as error:
            raise _missing(address.kind, error) from None
    return _open[key]


def close_places() -> None:
    """Close all places of this process; the next call of `open_place` opens them again."""
    for key in [key for key in _open if key[0] == os.getpid()]:
        _open.pop(key).close()


def _missing(kind: str, error: ImportError) -> UsageError:
    extra = EXTRAS.get(kind, kind)
    return UsageError(
        f"a {kind} store needs the extra {extra} ({error.name} cannot be imported); install it, in the checkout, with: "
        f"pip install '.[{extra}]'"
    )


def _sealed(place: Place, environ: Mapping[str, str] | None) -> Place:
    """Also without keys: what is sealed is then refused."""
    from agentrun.store.keyed.sealed import SealedPlace

    return SealedPlace(place, read_keyring(os.environ if environ is None else environ))


def _sqlite(address: StoreAddress) -> Place:
    from agentrun.store.homes.sqlite import SqlitePlace

    return SqlitePlace(Path(address.path), shown=address.shown)


def _postgres(address: StoreAddress) -> Place:
    import psycopg as psycopg

    from agentrun.store.homes.postgres.place import PostgresPlace

    return PostgresPlace(address.url, shown=address.shown)


def _objects(address: StoreAddress) -> Place:
    import obstore as obstore

    from agentrun.store.homes.objects.place import open_objects

    return open_objects(address.kind, address.bucket, address.path, address.settings, shown=address.shown)


def _redis(address: StoreAddress) -> Place:
    import redis as redis

    from agentrun.store.homes.redis.place import RedisPlace

    is_trusted = address.settings.get("durable") == "trust"
    return RedisPlace(address.url.partition("?")[0], shown=address.shown, is_trusted=is_trusted)


_OPENERS: dict[str, Callable[[StoreAddress], Place]] = {
    "postgres": _postgres,
    "s3": _objects,
    "gs": _objects,
    "az": _objects,
    "redis": _redis,
    "sqlite": _sqlite,
}
