"""The stores of the areas, as users name them to the real command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from stores.moto_server import CREDENTIALS, serve_moto
from stores.postgres_server import serve_postgres
from stores.redis_server import serve_redis

STORES = ("sqlite", "postgres", "redis", "objects")


@contextmanager
def serve(kind: str) -> Iterator[dict[str, str]]:
    """A store of this kind while the block runs: the variables that name it."""
    with TemporaryDirectory(prefix="agentrun-store-") as folder:
        if kind == "sqlite":
            yield {"AGENTRUN_STORE": f"sqlite:///{folder}/jobs.db"}
        elif kind == "postgres":
            with serve_postgres() as postgres:
                yield {"AGENTRUN_STORE": postgres.url(postgres.make_database().name)}
        elif kind == "redis":
            with serve_redis(Path(folder)) as redis:
                yield {"AGENTRUN_STORE": redis.url()}
        else:
            with serve_moto() as moto:
                yield {"AGENTRUN_STORE": moto.address("tests"), **CREDENTIALS}
