"""Which server could not be reached is found in whatever way an HTTP client tells it."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from agentrun.agents.exceptions import failure_from
from agentrun.agents.servers import address_of
from agentrun.errors import Retry


class ConnectError(Exception):
    """As httpx names it."""


class ClientError(Exception):
    """Of a client that wraps others' errors."""


def with_attributes(error: BaseException, **attributes: Any) -> BaseException:
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def caused(error: BaseException, by: BaseException) -> BaseException:
    error.__cause__ = by
    return error


REQUEST = SimpleNamespace(url="http://localhost:8080/v1/chat/completions")
LOADING = SimpleNamespace(status_code=503, request=REQUEST)
UNKNOWN = socket.gaierror(-2, "Name or service not known")


def refused() -> BaseException:
    return ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


@pytest.mark.parametrize(
    ("error", "server"),
    [
        (with_attributes(ConnectError("x"), request=REQUEST), "localhost:8080"),
        (with_attributes(caused(ClientError("x"), by=refused()), request=REQUEST), "localhost:8080"),
        (caused(ClientError("x"), by=with_attributes(ConnectError("y"), request=REQUEST)), "localhost:8080"),
        (caused(ClientError("x"), by=with_attributes(refused(), host="::1", port=8080)), "[::1]:8080"),
        (
            with_attributes(ClientError("x"), reason=socket.gaierror(-2, "unknown"), url="https://no.test/a"),
            "no.test:443",
        ),
        (with_attributes(ConnectError("x"), pool=SimpleNamespace(host="h", port=1)), "h:1"),
        (with_attributes(ClientError("x"), status_code=503, request=REQUEST), "localhost:8080"),
        (
            with_attributes(ClientError("x"), response=SimpleNamespace(status_code=503, request=REQUEST)),
            "localhost:8080",
        ),
    ],
)
def test_the_address_is_found(error: BaseException, server: str) -> None:
    assert failure_from(error).server == server


@pytest.mark.parametrize(
    "error",
    [
        # Nobody knows which server; a connection that broke off; an answer; a 503 that says when; the agent's own word.
        refused(),
        with_attributes(ConnectionResetError(errno.ECONNRESET, "reset"), request=REQUEST),
        with_attributes(ConnectError("x"), request=REQUEST, status_code=500),
        with_attributes(ClientError("x"), status_code=503, request=REQUEST, headers={"retry-after": "3"}),
        caused(Retry("later"), by=with_attributes(ConnectError("x"), request=REQUEST)),
        with_attributes(ConnectError("x"), request=SimpleNamespace(url=object())),
        with_attributes(ConnectError("x"), host=7, port="8"),
    ],
)
def test_otherwise_there_is_none(error: BaseException) -> None:
    assert failure_from(error).server == ""


def test_an_exception_that_fails_when_it_is_read_is_taken_down_all_the_same() -> None:
    class Hostile(ConnectError):
        @property
        def request(self) -> Any:
            raise RuntimeError("no")

        @property
        def url(self) -> str:
            return "http://[nonsense"

    failure = failure_from(Hostile("x"))
    assert failure.server == "" and failure.message == "x"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://a.test/v1", "a.test:80"),
        ("https://a.test:8443", "a.test:8443"),
        ("http://[::1]:5/x", "[::1]:5"),
        ("a.test", ""),
        ("", ""),
        ("http://user:secret@a.test:1/?key=secret", "a.test:1"),
    ],
)
def test_an_address_is_host_and_port_and_nothing_else(url: str, address: str) -> None:
    assert address_of(url) == address
