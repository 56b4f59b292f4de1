"""New keys for a sealed job, on real servers: everything is read while it is written again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.checkpoint.sealing import Keyring, MissingKeyError
from agentrun.store.keyed.home import PIECE_BYTES
from agentrun.store.keyed.rekeying import Change, rekey
from needs import require_module
from stores.postgres_server import Database
from stores.redis_server import serve_redis
from unit.store.sealed_jobs import ONE, TWO, Bench

require_module("cryptography", extra="sealed")


@pytest.fixture(params=["postgres", "redis"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "postgres":
        database: Database = request.getfixturevalue("postgres")
        yield Bench(tmp_path, database.place)
        return
    with serve_redis(tmp_path / "redis") as server:
        bench = Bench(tmp_path, server.place)
        yield bench
        bench.close()


def change(bench: Bench, ring: Keyring, how: Change) -> None:
    store = bench.store()
    lease = store.lock(wait_seconds=0)
    rekey(store.home, "triage", lease.epoch, ring=ring, folder=store.folder, change=how)
    lease.release()


def test_a_job_is_sealed_rekeyed_and_unsealed(bench: Bench) -> None:
    bench.ring, large = None, [b"x" * PIECE_BYTES, b"y" * PIECE_BYTES, b"end"]
    bench.fill()
    bench.home().put("side/items-1.spool", iter(large))
    steps: list[tuple[Change, list[bytes], Keyring | None]] = [
        ("seal", [ONE], Keyring([ONE])),
        ("rekey", [TWO, ONE], Keyring([TWO])),
        ("unseal", [TWO], None),
    ]
    for how, keys, after in steps:
        change(bench, Keyring(keys), how)
        if how == "rekey":
            bench.ring = Keyring([ONE])
            with pytest.raises(MissingKeyError):
                bench.use()
        bench.ring = after
        bench.use()
        assert b"".join(bench.home().get("side/items-1.spool") or ()) == b"".join(large)
