"""An error of httpx and the same error of httpx2, which live side by side, mean the same: real ones, of a server on
loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import pytest

from agentrun.agents.exceptions import failure_from
from agentrun.agents.failure import Failure, Verdict, judge
from needs import require_module

require_module("httpx", extra="langgraph")
require_module("httpx2", extra="llm")

import httpx  # noqa: E402
import httpx2  # noqa: E402

CLIENTS = [httpx, httpx2]
LIMIT_SECONDS = 120.0
SHORT_SECONDS = 0.2
"""For what never comes."""


@contextmanager
def server(reply: bytes | None) -> Iterator[str]:
    """Says this to whoever connects, whatever they ask, and hangs up; None: says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        is_over = threading.Event()

        def work() -> None:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                if reply is None:
                    is_over.wait(60)
                else:
                    connection.sendall(reply)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()


def response(status: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *headers, "Content-Length: 0", "", ""]).encode()


@dataclass(frozen=True)
class Facts:
    verdict: Verdict
    status: int | None
    retry_after_seconds: float | None
    has_server: bool
    """Whether the server counts as one that could not be reached."""


def facts_of(failure: Failure, address: str) -> Facts:
    assert failure.server in ("", address)
    return Facts(judge(failure).verdict, failure.status, failure.retry_after_seconds, bool(failure.server))


def get(client: ModuleType, address: str, timeout_seconds: float = LIMIT_SECONDS) -> Failure:
    with pytest.raises(Exception) as caught, client.Client(timeout=timeout_seconds, trust_env=False) as session:
        session.get(f"http://{address}/v1").raise_for_status()
    assert type(caught.value).__module__.split(".")[0] == client.__name__
    return failure_from(caught.value)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda module: module.__name__)
@pytest.mark.parametrize(
    ("reply", "facts"),
    [
        (response(429, "Retry-After: 7"), Facts("transient", 429, 7.0, False)),
        (response(429), Facts("transient", 429, None, False)),
        (response(500), Facts("transient", 500, None, False)),
        (response(503), Facts("transient", 503, None, True)),
        (response(503, "Retry-After: 3"), Facts("transient", 503, 3.0, False)),
        (response(400), Facts("item", 400, None, False)),
        # Of a model's server it would be everyone's; of any other it is about this item.
        (response(401), Facts("item", 401, None, False)),
        (b"", Facts("transient", None, None, False)),
        (b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nhalf", Facts("transient", None, None, False)),
        (b"nonsense\r\n\r\n", Facts("transient", None, None, False)),
        (None, Facts("transient", None, None, False)),
    ],
    ids=[
        *("429 with Retry-After", "429", "500", "503", "503 with Retry-After", "400", "401"),
        *("hangs up", "cut off", "not HTTP", "read timeout"),
    ],
)
def test_what_a_server_does_is_judged_alike(client: ModuleType, reply: bytes | None, facts: Facts) -> None:
    with server(reply) as address:
        failure = get(client, address, SHORT_SECONDS if reply is None else LIMIT_SECONDS)
    assert facts_of(failure, address) == facts


@pytest.mark.parametrize("client", CLIENTS, ids=lambda module: module.__name__)
def test_a_server_that_is_not_there_is_named(client: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    assert facts_of(get(client, address), address) == Facts("transient", None, None, True)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda module: module.__name__)
def test_a_server_that_does_not_take_the_connection_is_named(client: ModuleType) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = f"127.0.0.1:{full.getsockname()[1]}"
        waiting = []
        try:
            # Its queue is full once a connection is not made at once.
            for _ in range(16):
                one = socket.socket()
                one.setblocking(False)
                waiting.append(one)
                one.connect_ex(full.getsockname())
            failure = get(client, address, SHORT_SECONDS)
        finally:
            for one in waiting:
                one.close()
    assert facts_of(failure, address) == Facts("transient", None, None, True)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("ConnectError", Facts("transient", None, None, True)),
        ("ConnectTimeout", Facts("transient", None, None, True)),
        ("ReadTimeout", Facts("transient", None, None, False)),
        ("WriteTimeout", Facts("transient", None, None, False)),
        ("PoolTimeout", Facts("transient", None, None, False)),
        ("ReadError", Facts("transient", None, None, False)),
        ("WriteError", Facts("transient", None, None, False)),
        ("CloseError", Facts("transient", None, None, False)),
        ("RemoteProtocolError", Facts("transient", None, None, False)),
        ("ProxyError", Facts("transient", None, None, False)),
    ],
)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda module: module.__name__)
def test_an_error_of_the_transport_is_judged_by_its_kind(client: ModuleType, name: str, facts: Facts) -> None:
    request = client.Request("POST", "http://127.0.0.1:9/v1")
    error = getattr(client, name)("it did not work", request=request)
    assert facts_of(failure_from(error), "127.0.0.1:9") == facts


@pytest.mark.parametrize("client", CLIENTS, ids=lambda module: module.__name__)
def test_an_error_that_another_librarys_was_raised_from_is_judged_by_that_one(client: ModuleType) -> None:
    request = client.Request("POST", "http://127.0.0.1:9/v1")
    answer = client.Response(429, headers={"retry-after": "2"}, request=request)
    try:
        raise ValueError("the lookup failed") from client.HTTPStatusError("slow down", request=request, response=answer)
    except ValueError as error:
        found = failure_from(error)
    assert facts_of(found, "127.0.0.1:9") == Facts("transient", 429, 2.0, False)
