"""Addresses of stores: what they mean, and that a password is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.errors import UsageError
from agentrun.job.address import StoreAddress, address_in_environment, hide_secrets, read_address

BASE = Path("/srv/triage")
SECRET = "sw0rdf!sh"


def read(text: str, **more: bool) -> StoreAddress:
    return read_address(text, base=BASE, where="--store", **more)


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("postgres://ada@db.example/agents", "postgres", "postgres://ada@db.example/agents"),
        ("postgresql://db:5433/agents?sslmode=require", "postgres", "postgresql://db:5433/agents?sslmode=require"),
        ("postgres:///agents?host=/run/postgresql", "postgres", "postgres:///agents?host=/run/postgresql"),
        ("postgres://[::1]:5433/agents/", "postgres", "postgres://[::1]:5433/agents"),
        ("s3://bucket/some/prefix/?region=eu-west-1", "s3", "s3://bucket/some/prefix?region=eu-west-1"),
        ("gs://bucket", "gs", "gs://bucket"),
        ("az://container/p?account=mine", "az", "az://container/p?account=mine"),
        ("redis://cache:6379/0?durable=trust", "redis", "redis://cache:6379/0?durable=trust"),
        ("rediss://cache", "redis", "rediss://cache"),
        ("sqlite:///jobs.db", "sqlite", "sqlite:////srv/triage/jobs.db"),
        ("sqlite:////var/lib/jobs%20of%20mine.db", "sqlite", "sqlite:////var/lib/jobs%20of%20mine.db"),
        ("folder", "folder", "folder"),
    ],
)
def test_an_address_is_read_and_shown(text: str, kind: str, shown: str) -> None:
    address = read(text)
    assert (address.kind, address.text) == (kind, shown)
    assert read(address.text) == address


def test_a_bucket_a_prefix_and_a_file_are_taken_apart() -> None:
    assert (read("s3://bucket/a%20b/c").bucket, read("s3://bucket/a%20b/c").path) == ("bucket", "a b/c")
    assert read("sqlite:////var/lib/jobs%20x.db").path == "/var/lib/jobs x.db"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mysql://db/x", "is not the address of a store; write postgres://"),
        ("jobs.db", "is not the address of a store"),
        ("postgres://db:port/x", "the host or the port of the postgres address is wrong"),
        ("postgres://[::1/x", "the host or the port of the postgres address is wrong"),
        ("postgres://db", "names no database; write postgres://USER@HOST/DATABASE"),
        ("postgres://db/x?sslmod=require", "has an unknown setting behind the ?; postgres knows host"),
        ("redis:///0", "names no host"),
        ("s3:///prefix", "names no bucket"),
        ("sqlite://jobs.db", "names no file; write sqlite:///jobs.db for a relative path"),
        ("sqlite:///", "names no file"),
        ("s3://b/p?lease=never", "lease is not a duration of a second or more"),
        ("s3://b/p?lease=10ms", "lease is not a duration of a second or more"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert words in caught.value.message and caught.value.message.startswith("--store: ")


@pytest.mark.parametrize(
    "text",
    [
        f"postgres://ada:{SECRET}@db/agents",
        f"postgres://ada:{SECRET}@db:no-port/agents",
        f"postgres://ada:{SECRET}@[db/agents",
        f"postgres://ada:{SECRET}#x@db/agents",
        f"postgres://db/agents?password={SECRET}",
        f"postgres://db/agents?{SECRET}=1",
        f"postgre://ada:{SECRET}@db/agents",
        f"redis://:{SECRET}@cache/0",
        f"s3://key:{SECRET}@bucket/p",
    ],
)
def test_a_password_in_a_file_or_on_the_command_line_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert SECRET not in caught.value.message and "db/agents" not in caught.value.message


def test_the_password_of_the_environment_is_for_the_library_alone() -> None:
    environ = {"AGENTRUN_STORE": f"postgres://ada:{SECRET}%40x@db/agents?lease=5s&sslmode=require"}
    address = address_in_environment(environ, BASE)
    assert address is not None
    assert address.text == "postgres://ada@db/agents?lease=5s&sslmode=require"
    assert address.url == f"postgres://ada:{SECRET.replace('!', '%21')}%40x@db/agents?sslmode=require"
    assert address.lease_seconds == 5 and SECRET not in repr(address) and SECRET not in str(address)


def test_an_address_in_a_file_gets_its_password_from_the_environment_if_that_names_the_same_place() -> None:
    given = address_in_environment({"AGENTRUN_STORE": f"postgres://ada:{SECRET}@db/agents"}, BASE)
    same, other = read("postgres://ada@db/agents?sslmode=require"), read("postgres://ada@db/others")
    assert same.with_secret_of(given).has_secret and not other.with_secret_of(given).has_secret
    assert not same.with_secret_of(None).has_secret


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgres://db/agents", "postgresql://ada@db:5432/agents"),
        ("redis://cache", "redis://cache:6379/0"),
    ],
)
def test_a_place_is_the_same_however_its_address_is_written(one: str, other: str) -> None:
    assert read(one).place == read(other).place != read("postgres://db/others").place
    assert read(one).shown == one


@pytest.mark.parametrize(
    ("ours", "given", "url"),
    [
        ("rediss://cache/0", "redis://:{}@cache/0", "rediss://:{}@cache/0"),
        ("redis://cache/0", "rediss://:{}@cache/0", "rediss://:{}@cache/0"),
        ("postgres://db/a?sslmode=verify-full", "postgres://ada:{}@db/a", "postgres://ada:{}@db/a?sslmode=verify-full"),
        ("postgres://db/a", "postgres://ada:{}@db/a?sslmode=verify-full", "postgres://ada:{}@db/a?sslmode=verify-full"),
        (
            "postgres://db/a?sslmode=require",
            "postgres://b:{}@db/a?sslmode=disable",
            "postgres://b:{}@db/a?sslmode=require",
        ),
    ],
)
def test_a_password_of_the_environment_brings_no_less_safety_than_the_address_asks_for(
    ours: str, given: str, url: str
) -> None:
    secret = "s3cret"
    other = address_in_environment({"AGENTRUN_STORE": given.format(secret)}, BASE)
    assert read(ours).with_secret_of(other).url == url.format(secret)


@pytest.mark.parametrize(
    "text",
    [
        "postgres://ada:123/{}@127.0.0.1/agents",
        "redis://ada:1/{}@127.0.0.1",
        "redis://ada:1/{}%40127.0.0.1",
        "s3://bucket/p?endpoint=https://ada:{}@minio.example",
        "postgres://db/agents?host=ada:{}@db",
    ],
)
def test_a_password_in_a_place_where_none_belongs_is_not_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        address_in_environment({"AGENTRUN_STORE": text.format(SECRET)}, BASE)
    assert SECRET not in caught.value.message and caught.value.message.startswith("AGENTRUN_STORE: has an @")


def test_the_password_of_another_user_is_not_taken() -> None:
    given = address_in_environment({"AGENTRUN_STORE": f"postgres://ada:{SECRET}@db/agents"}, BASE)
    assert read("postgresql://db:5432/agents").with_secret_of(given).has_secret
    assert not read("postgres://ben@db/agents").with_secret_of(given).has_secret


def test_settings_that_only_say_how_a_place_is_reached_do_not_make_it_another() -> None:
    assert read("postgres://db/agents?sslmode=require&lease=5s").place == read("postgres://db/agents").place
    here, there = (read(f"s3://b/p?endpoint=http://127.0.0.1:{port}&region=eu") for port in (1, 2))
    assert here.place != there.place and here.place == read("s3://b/p?endpoint=http://127.0.0.1:1").place


def test_a_file_in_the_folder_is_named_relative_to_it_so_that_both_can_be_moved() -> None:
    assert read("sqlite:///jobs.db").seen_from(BASE) == "sqlite:///jobs.db"
    assert read("sqlite:////var/jobs.db").seen_from(BASE) == "sqlite:////var/jobs.db"
    assert read("s3://b/p").seen_from(BASE) == "s3://b/p"


def test_agents_see_neither_the_store_nor_the_keys() -> None:
    environ = {"AGENTRUN_STORE": "x", "AGENTRUN_KEY": "k", "AGENTRUN_KEY_FILE": "f", "HOME": "/root", "KEY": "own"}
    hidden = hide_secrets(environ)
    assert environ == {"HOME": "/root", "KEY": "own"}
    assert hidden == {"AGENTRUN_STORE": "x", "AGENTRUN_KEY": "k", "AGENTRUN_KEY_FILE": "f"}


def test_agents_do_not_see_the_password_of_the_database_that_is_the_store() -> None:
    before = {"PGPASSWORD": SECRET, "PGUSER": "ada", "HOME": "/root"}
    for address in (None, read("sqlite:///jobs.db"), read("redis://cache/0")):
        environ = dict(before)
        assert hide_secrets(environ, address) == {} and environ == before
    environ = dict(before)
    assert hide_secrets(environ, read("postgresql://db/agents")) == {"PGPASSWORD": SECRET}
    assert environ == {"PGUSER": "ada", "HOME": "/root"}
