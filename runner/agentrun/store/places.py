"""Which place an address means: one for each process, whose connection its jobs share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from agentrun.checkpoint.sealing import Keyring, read_keyring
from agentrun.errors import UsageError
from agentrun.job.address import StoreAddress
from agentrun.job.keys import KEY_VARIABLES
from agentrun.store.keyed.home import Place
from agentrun.store.keyed.sealed import SealedPlace

EXTRAS = {"postgres": "postgres", "s3": "objects", "gs": "objects", "az": "objects", "redis": "redis"}
"""The extra that each kind of address needs."""


@dataclass(frozen=True, slots=True)
class _Opened:
    place: Place
    url: str = field(repr=False)
    keys: Mapping[str, str] = field(repr=False)
    """The variables that named its keys."""

    def serves(self, address: StoreAddress, keys: Mapping[str, str]) -> bool:
        """Whether it is what is asked for now; after a launch began, its environment has no password and no keys."""
        return (not address.has_secret or address.url == self.url) and (not keys or keys == self.keys)


_open: dict[tuple[int, str, str], _Opened] = {}
"""By process, so that a child never uses its parent's connection, by place, and by whether it is reached by TLS."""


def open_place(address: StoreAddress, environ: Mapping[str, str] | None = None) -> Place:
    """The place at this address. The first call for a place needs its password and keys; later ones without any use the
    same place."""
    key = os.getpid(), address.place, urlsplit(address.url).scheme
    environ = os.environ if environ is None else environ
    keys = {name: value for name in KEY_VARIABLES if (value := environ.get(name))}
    found = _open.get(key)
    if found is None or not found.serves(address, keys):
        # Whatever uses the one before keeps it: a launch may still be at work there.
        found = _open[key] = _Opened(_opened(address, read_keyring(environ)), address.url, keys)
    return found.place


def _opened(address: StoreAddress, ring: Keyring | None) -> Place:
    try:
        # Also without keys: what is sealed is then refused.
        return SealedPlace(_OPENERS[address.kind](address), ring)
    except ImportError as error:
        raise _missing(address.kind, error) from None


def close_places() -> None:
    """Close all places of this process; the next call of `open_place` opens them again."""
    for key in [key for key in _open if key[0] == os.getpid()]:
        _open.pop(key).place.close()


def _missing(kind: str, error: ImportError) -> UsageError:
    extra = EXTRAS.get(kind, kind)
    return UsageError(
        f"a {kind} store needs the extra {extra} ({error.name} cannot be imported); install it, in the checkout, with: "
        f"pip install '.[{extra}]'"
    )


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
