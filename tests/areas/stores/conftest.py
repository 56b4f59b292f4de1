"""Stores on real servers: Debian's PostgreSQL and Redis, started by the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from needs import require_module

if TYPE_CHECKING:
    from stores.postgres_server import Database, PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for all tests of a worker; a test that stops it starts it again."""
    require_module("psycopg", extra="postgres")
    from stores.postgres_server import serve_postgres

    with serve_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[Database]:
    """An empty database."""
    database = postgres_server.make_database()
    yield database
    database.close()
