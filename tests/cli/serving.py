"""`agentrun ui` as a process, and a client that sends exactly what it is told to: no browser would send most of it."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from cli.conftest import COMMAND, environment
from waiting import PATIENCE_SECONDS

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Said:
    """An answer."""

    status: int
    headers: Mapping[str, list[str]]
    """By lower-case name."""
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def __getitem__(self, name: str) -> str:
        """The one header of that name, or nothing."""
        (value,) = self.headers.get(name, [""])
        return value


@dataclass(slots=True)
class Form:
    """A form as a browser would send it."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[tuple[str, str]] = field(default_factory=list)


class Ui:
    """The command, at work in `cwd`. Requests have the cookie and the Origin of its own page unless told otherwise."""

    def __init__(self, cwd: Path, *arguments: str, port: int = 0, **environ: str) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [COMMAND, "ui", "--no-open", "--port", str(port), *arguments],
            cwd=cwd,
            env=environment(**environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, f"it ended: {self.said}"
        parts = urlsplit(self.address)
        self.token, self.host, self.port = parse_qs(parts.query)["token"][0], parts.netloc, parts.port or 0
        self.origin = f"http://{self.host}"
        self.cookie = f"agentrun-{self.port}={self.token}"

    @property
    def said(self) -> str:
        """What it has written to standard error."""
        self._said.seek(0)
        return self._said.read()

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._said.close()

    # ---- requests

    def send(self, method: str, target: str, headers: Pairs, body: bytes = b"", version: str = "1.1") -> Said:
        """Exactly these headers, and nothing added but the length of the body."""
        with self.connect() as connection:
            lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {value}" for name, value in headers)]
            if body:
                lines.append(f"Content-Length: {len(body)}")
            connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            answer = HTTPResponse(connection, method=method)
            answer.begin()
            found: dict[str, list[str]] = {}
            for name, value in answer.getheaders():
                found.setdefault(name.lower(), []).append(value)
            return Said(answer.status, found, answer.read())

    def get(self, path: str, *more: tuple[str, str]) -> Said:
        return self.send("GET", path, [("Host", self.host), ("Cookie", self.cookie), ("Connection", "close"), *more])

    def post(self, path: str, fields: Mapping[str, str], *more: tuple[str, str]) -> Said:
        # As browsers do it.
        text = urlencode({name: value.replace("\n", "\r\n") for name, value in fields.items()})
        headers = [("Host", self.host), ("Cookie", self.cookie), ("Origin", self.origin), ("Connection", "close")]
        return self.send("POST", path, [*headers, *more], text.encode())

    def press(self, form: Form, **fields: str) -> Said:
        """Send a form, filled in."""
        return self.post(form.action, {**form.fields, **fields})

    def forms(self, path: str) -> list[Form]:
        """The forms on a page that change something."""
        said = self.get(path)
        assert said.status == 200, said.text
        return forms_of(said.text)

    def form(self, path: str, action: str) -> Form:
        """The only form on a page with an action that ends so."""
        (found,) = (one for one in self.forms(path) if one.action.endswith(action))
        return found

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)

    @contextmanager
    def live(self, job: str) -> Iterator[HTTPResponse]:
        """The open event stream of a job."""
        with self.connect() as connection:
            head = [f"GET /jobs/{job}/live HTTP/1.1", f"Host: {self.host}", f"Cookie: {self.cookie}", "", ""]
            connection.sendall("\r\n".join(head).encode())
            answer = HTTPResponse(connection, method="GET")
            answer.begin()
            assert answer.status == 200 and answer.getheader("Content-Type", "").startswith("text/event-stream")
            try:
                yield answer
            finally:
                answer.close()  # it holds the socket open, too


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._area = ""
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append(Form(has["action"] if has.get("method") == "post" else ""))
        elif tag == "select":
            self._select = has.get("name", "")
        elif tag == "option" and self.found and self._select:
            if "selected" in has or self._select not in self.found[-1].fields:
                self.found[-1].fields[self._select] = has.get("value", "")
        elif tag == "textarea":
            self._area = has["name"]
            self.found[-1].fields[self._area] = ""
        elif self.found and tag == "input" and "name" in has:
            self.found[-1].fields[has["name"]] = has.get("value", "")
        elif self.found and tag == "button" and "name" in has:
            self.found[-1].buttons.append((has["name"], has.get("value", "")))

    def handle_data(self, data: str) -> None:
        if self._area:
            self.found[-1].fields[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # The first line end after the tag belongs to the markup.
            self.found[-1].fields[self._area] = self.found[-1].fields[self._area].removeprefix("\n")
            self._area = ""
        elif tag == "select":
            self._select = ""


def forms_of(html: str) -> list[Form]:
    parser = _Forms()
    parser.feed(html)
    return [form for form in parser.found if form.action]
