"""Who may ask: this machine under our own address, with the token, and from our own page to change something.

| request | answer |
|---|---|
| another Host than ours | 421: a name that somebody else resolves to this machine is not us |
| `/?token=…` with the token, or from us with one for once | 303 to `/`, with the token as a cookie |
| without the cookie | 403 |
| anything but GET whose Origin is not ours, or is missing | 403 |
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from agentrun_cli.page.peer import may_be_ours

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_BYTES = 24
_SELF = ("style-src", "script-src", "connect-src", "form-action")
POLICY = "; ".join(
    ["default-src 'none'", *(f"{name} 'self'" for name in _SELF), "frame-ancestors 'none'", "base-uri 'none'"]
)
SEALS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    # Not no-referrer: Chromium would send `Origin: null` with our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Guard:
    """Lets through to `app` what may pass, and seals every answer."""

    def __init__(self, app: ASGIApp, *, host: str) -> None:
        self._app = app
        self._host = host
        self.token = new_token()
        self._once: list[str] = []
        """Tokens that let somebody in once."""
        self._cookie = f"agentrun-{host.rpartition(':')[2]}"
        """With the port: browsers keep one set of cookies for all ports of a machine."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # nothing else is spoken here

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *SEALS]}
            await send(message)

        refusal = self._judge(scope)
        await (refusal or self._app)(scope, receive, sealed)

    def _judge(self, scope: Scope) -> Response | None:
        """The answer to a request that does not reach the page; None if it does."""
        headers = Headers(scope=scope)
        if headers.getlist("host") != [self._host]:
            return PlainTextResponse(f"This page is at http://{self._host}/ and nowhere else.\n", 421)
        if scope["method"] == "GET" and scope["path"] == "/" and b"token=" in scope["query_string"]:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
            is_known = _is(given[0], self.token) or self._is_first_use(given[0], scope)
            return self._let_in() if is_known else _closed()
        if not any(_is(given, self.token) for given in _cookies(headers, self._cookie)):
            return _closed()
        if scope["method"] != "GET" and headers.getlist("origin") != [f"http://{self._host}"]:
            return PlainTextResponse("This came from another page, so nothing was changed.\n", 403)
        return None

    def token_for_once(self) -> str:
        """A token that lets one browser of ours in: other users may see the command line that opens it."""
        self._once.append(new_token())
        return self._once[-1]

    def _is_first_use(self, given: str, scope: Scope) -> bool:
        matching = [token for token in self._once if _is(given, token)]
        # Whoever has seen it may be faster than the browser: for another user's connection it stays as it was.
        if not matching or not may_be_ours(scope["client"][1]):
            return False
        self._once = [token for token in self._once if token not in matching]
        return True

    def _let_in(self) -> Response:
        response = RedirectResponse("/", 303)
        response.set_cookie(self._cookie, self.token, httponly=True, samesite="strict", path="/")
        return response


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def _is(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _closed() -> Response:
    return PlainTextResponse(
        "Open the address that `agentrun ui` printed, with its token. If you have just done that, reload this page.\n",
        403,
    )


def _cookies(headers: Headers, name: str) -> Iterator[str]:
    """All of that name: servers on other ports may set some, too."""
    for line in headers.getlist("cookie"):
        # One at a time: a cookie of another program that cannot be read must not hide ours.
        for part in line.split(";"):
            if part.strip().startswith(f"{name}="):
                try:
                    found = SimpleCookie(part.strip())
                except CookieError:
                    continue
                if name in found:
                    yield found[name].value
