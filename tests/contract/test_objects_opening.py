"""Object storage: which addresses can be opened, and what is said about the others."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.errors import UsageError
from agentrun.store.homes.objects.head import decode_name, encode_name
from agentrun.store.homes.objects.place import open_objects
from needs import require_module

require_module("obstore", extra="objects")


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("s3", {}),
        ("s3", {"endpoint": "https://s3.example.com", "region": "eu-central-1"}),
        ("s3", {"endpoint": "http://127.0.0.1:9000"}),
        ("s3", {"endpoint": "http://[::1]:9000"}),
        ("s3", {"endpoint": "http://localhost:9000/"}),
        ("gs", {}),
        ("az", {"account": "account"}),
        ("az", {"account": "account", "endpoint": "http://127.0.0.1:10000/account"}),
    ],
)
def test_opening_a_place_asks_nothing_of_it(scheme: str, settings: dict[str, str]) -> None:
    place = open_objects(scheme, "bucket", "team a/jobs", settings, shown=f"{scheme}://bucket/team a/jobs")
    assert place.home("triage").shown == f"triage in {scheme}://bucket/team a/jobs"
    place.close()


@pytest.mark.parametrize(
    ("scheme", "settings", "message"),
    [
        ("s3", {"endpoint": "s3.example.com"}, "the endpoint is not an address"),
        ("s3", {"endpoint": "ftp://s3.example.com"}, "the endpoint is not an address"),
        ("s3", {"endpoint": "https://"}, "the endpoint is not an address"),
        ("s3", {"endpoint": "https://a b"}, "the endpoint is not an address"),
        ("s3", {"endpoint": "https://s3.example.com/a b"}, "the endpoint is not an address"),
        ("s3", {"endpoint": "https://s3.example.com:port"}, "the endpoint is not an address"),
        ("s3", {"endpoint": "https://[::1"}, "the endpoint is not an address"),
        ("s3", {"endpoint": "https://s3.example.com?x=1"}, "the endpoint is not an address"),
        ("s3", {"endpoint": "https://id:hunter2@s3.example.com"}, "has a user or a password"),
        ("s3", {"endpoint": "http://s3.example.com"}, "or set AWS_ALLOW_HTTP=true"),
        ("s3", {"endpoint": "http://127.0.0.1.example.com"}, "or set AWS_ALLOW_HTTP=true"),
        ("az", {"endpoint": "http://s3.example.com", "account": "a"}, "or set AZURE_ALLOW_HTTP=true"),
        ("az", {}, "?account=NAME"),
        ("gs", {"endpoint": "https://s3.example.com"}, "endpoint is not a setting of gs"),
        ("s3", {"secret": "hunter2"}, "secret is not a setting of s3; use endpoint, region"),
    ],
)
def test_an_address_that_is_wrong_is_said_so_in_our_own_words(
    scheme: str, settings: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError) as caught:
        open_objects(scheme, "bucket", "", settings, shown="the store")
    assert caught.value.message.startswith("the store: ") and message in caught.value.message
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("prefix", ["a//b", "..", "a/../b", "a/./b", "a\nb", "a\0", "é", "a?b", "a%2Fb"])
def test_a_prefix_that_a_client_or_a_service_would_take_for_another_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        open_objects("s3", "bucket", prefix, {}, shown="the store")


def test_plain_http_to_another_machine_must_be_allowed_in_so_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio.example.com")
    with pytest.raises(UsageError, match="plain http"):
        open_objects("s3", "bucket", "", {}, shown="the store")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    open_objects("s3", "bucket", "", {}, shown="the store")


def test_without_the_extra_one_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError) as caught:
        open_objects("s3", "bucket", "", {}, shown="s3://bucket")
    assert "needs the extra objects" in caught.value.message and "pip install '.[objects]'" in caught.value.message


def test_the_client_is_imported_only_when_a_place_is_opened() -> None:
    code = "import sys, agentrun, agentrun.store.homes.objects; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_names_are_parts_of_paths_that_differ_when_they_do(one: str, other: str) -> None:
    made = encode_name(one)
    assert decode_name(made) == one
    assert made.isascii() and made.replace("=", "a").replace(".", "a").replace("-", "a").replace("_", "a").isalnum()
    assert not made.startswith(".")
    assert (made == encode_name(other)) is (one == other)
