"""Which server could not be reached, as far as an exception says.

HTTP clients keep the address in different places, and wrap each other's errors: so the exception, what caused it and
what it was raised beside are looked at. Reading attributes may run any code; the caller takes whatever that raises.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from socket import gaierror
from typing import Any
from urllib.parse import urlsplit

_DEEPEST_CAUSE = 10
_UNREACHABLE = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})
_UNREACHABLE_TYPES = frozenset(
    {"ConnectError", "ConnectTimeout", "ClientConnectorError", "NewConnectionError", "EndpointConnectionError"}
)
_PORTS = {"http": 80, "https": 443}
_LONGEST = 200
UNREACHED = "agentrun_unreached"
"""The attribute in which an exception keeps the address, if its causes are taken from it."""


def unreached_server(error: BaseException, *, status: int | None, asked_wait: float | None) -> str:
    """The host and port of a server that let no connection come about, or answered 503 without saying for how long;
    empty if it was something else, or nobody knows which server."""
    chain = list(_chain(error))
    for one in chain:
        if isinstance(known := getattr(one, UNREACHED, None), str):
            return known
    is_loading = status == 503 and asked_wait is None
    if not is_loading and (status is not None or not any(map(_is_unreachable, chain))):
        return ""
    return next(filter(None, map(_address, chain)), "")


def address_of(url: str) -> str:
    """The host and port of a URL; empty if it has none."""
    parts = urlsplit(url)
    return _host_and_port(parts.hostname, parts.port or _PORTS.get(parts.scheme))


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(_DEEPEST_CAUSE):
        if one is None:
            return
        yield one
        # urllib has the error of the socket as an attribute.
        reason = getattr(one, "reason", None)
        if isinstance(reason, BaseException):
            yield reason
        one = one.__cause__ or one.__context__


def _is_unreachable(error: BaseException) -> bool:
    if isinstance(error, gaierror) or (isinstance(error, OSError) and error.errno in _UNREACHABLE):
        return True
    return any(base.__name__ in _UNREACHABLE_TYPES for base in type(error).__mro__)


def _address(error: BaseException) -> str:
    response = getattr(error, "response", None)
    for source in (error, response):
        request: Any = getattr(source, "request", None)
        for url in (getattr(request, "url", None), getattr(source, "url", None)):
            if url is not None and (address := address_of(str(url))):
                return address
    if (pool := getattr(error, "pool", None)) is not None:  # urllib3
        return _host_and_port(getattr(pool, "host", None), getattr(pool, "port", None))
    return _host_and_port(getattr(error, "host", None), getattr(error, "port", None))  # aiohttp


def _host_and_port(host: object, port: object) -> str:
    if not isinstance(host, str) or not host or not isinstance(port, int):
        return ""
    return f"[{host}]:{port}"[:_LONGEST] if ":" in host else f"{host}:{port}"[:_LONGEST]
