"""agentrun ui: who may ask for what, and what every answer carries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.made import Made
from cli.serving import Pairs, Ui
from needs import require_linux, require_module

require_module("starlette", "uvicorn", extra="ui")

SEALS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
}
PAGES = ["/", *(f"/jobs/drafts{rest}" for rest in ("", "/items", "/items/0", "/failures", "/review", "/results"))]
PAGES += ["/jobs/drafts/report", "/jobs/drafts/results.csv", "/jobs/drafts/results.jsonl", "/style.css", "/page.js"]
ACTIONS = [f"/jobs/drafts/{one}" for one in ("answer", "take-back", "redo", "skip", "resume")] + ["/name"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    run = Made(tmp_path_factory.mktemp("guarded"), [*"abcd"])
    run.commit(run.entry("a"), run.waiting("b"), run.failed("c"), run.entry("d", "skipped"))
    return run


@pytest.fixture(scope="module")
def ui(made: Made) -> Iterator[Ui]:
    one = Ui(made.base)
    yield one
    said = one.said
    one.close()
    assert said == "open it in a browser; end with Ctrl-C\n", "nothing that was asked is a bug, or noise"


def assert_sealed(ui: Ui, method: str, path: str, headers: Pairs, body: bytes = b"") -> int:
    said = ui.send(method, path, [*headers, ("Connection", "close")], body)
    assert {name: said.headers.get(name) for name in SEALS} == {name: [value] for name, value in SEALS.items()}, path
    assert "server" not in said.headers
    return said.status


# ---- the table


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_shown_to_who_has_the_cookie_and_to_nobody_else(ui: Ui, path: str) -> None:
    host, cookie = ("Host", ui.host), ("Cookie", ui.cookie)
    assert assert_sealed(ui, "GET", path, [host, cookie]) == 200
    assert assert_sealed(ui, "GET", path, [host]) == 403
    for wrong in ("agentrun-1=x", f"agentrun-{ui.port}=", f"agentrun-{ui.port}=wrong", f"x{ui.cookie}", ui.token):
        assert assert_sealed(ui, "GET", path, [host, ("Cookie", wrong)]) == 403, wrong
    assert assert_sealed(ui, "GET", path, [("Host", "example.org"), cookie]) == 421


@pytest.mark.parametrize("path", ["/", "/style.css", "/jobs/drafts/live", "/?token=right", "/nothing"])
def test_another_host_than_ours_is_421(ui: Ui, path: str) -> None:
    path = path.replace("right", ui.token)
    port = ui.port
    wrong = ["localhost", f"localhost:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"127.0.0.1.:{port}", ""]
    wrong += [f"127.1:{port}", f"[::1]:{port}", f"0.0.0.0:{port}", f"x@127.0.0.1:{port}", f"evil.example:{port}"]
    for host in wrong:
        assert assert_sealed(ui, "GET", path, [("Host", host), ("Cookie", ui.cookie)]) == 421, host


def test_a_host_that_is_missing_or_there_twice_is_refused(ui: Ui) -> None:
    cookie, ours = ("Cookie", ui.cookie), ("Host", ui.host)
    assert ui.send("GET", "/", [cookie], version="1.0").status == 421
    # These are no HTTP, and are refused before anybody has looked at what they ask for.
    for headers in ([cookie], [ours, ("Host", "example.org"), cookie], [ours, ours, cookie]):
        said = ui.send("GET", "/", headers)
        assert said.status in (400, 421) and b"drafts" not in said.body


def test_the_token_becomes_a_cookie_and_leaves_the_address(ui: Ui) -> None:
    assert len(ui.token) == 32, "24 bytes"
    said = ui.send("GET", f"/?token={ui.token}", [("Host", ui.host), ("Connection", "close")])
    assert (said.status, said["location"], said.body) == (303, "/", b"")
    value, *marks = said["set-cookie"].split("; ")
    assert value == ui.cookie
    assert {one.lower() for one in marks} == {"httponly", "samesite=strict", "path=/"}
    assert assert_sealed(ui, "GET", f"/?token={ui.token}", [("Host", ui.host)]) == 303


def test_a_wrong_token_opens_nothing(ui: Ui) -> None:
    host, cookie = ("Host", ui.host), ("Cookie", ui.cookie)
    for wrong in ("", "wrong", ui.token[:-1], ui.token + "x", "%00", "%ff%fe", "%C3%A9"):
        assert assert_sealed(ui, "GET", f"/?token={wrong}", [host]) == 403, wrong
        assert assert_sealed(ui, "GET", f"/?token={wrong}", [host, cookie]) == 403, wrong
    for path in (f"/jobs/drafts?token={ui.token}", f"/?text={ui.token}", f"/?token=x&token={ui.token}"):
        assert assert_sealed(ui, "GET", path, [host]) == 403, path
    assert assert_sealed(ui, "POST", f"/?token={ui.token}", [host, ("Origin", ui.origin)]) == 403


def test_a_cookie_of_another_program_does_not_hide_ours(ui: Ui) -> None:
    for line in (
        f"a=b; {ui.cookie}",
        f'odd="; {ui.cookie}',
        f"agentrun-1=other; {ui.cookie}; z=[1]",
        f"{{}}; {ui.cookie}",
    ):
        assert assert_sealed(ui, "GET", "/", [("Host", ui.host), ("Cookie", line)]) == 200, line


@pytest.mark.parametrize("path", ACTIONS)
def test_what_changes_something_must_come_from_our_own_page(ui: Ui, made: Made, path: str) -> None:
    known = [("Host", ui.host), ("Cookie", ui.cookie)]
    port = ui.port
    origins = ["null", "", "http://localhost", f"http://localhost:{port}", f"https://{ui.host}", "http://127.0.0.1"]
    origins += [f"http://127.0.0.1:{port + 1}", f"{ui.origin}/", f"{ui.origin}.example.org", f"HTTP://{ui.host}"]
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"):
        assert assert_sealed(ui, method, path, known, b"item=1&yes=1" if method == "POST" else b"") == 403
        for origin in origins:
            assert assert_sealed(ui, method, path, [*known, ("Origin", origin)]) == 403, origin
        assert assert_sealed(ui, method, path, [*known, ("Origin", ui.origin), ("Origin", "null")]) == 403
        # Our own page, but nobody who is known.
        assert assert_sealed(ui, method, path, [("Host", ui.host), ("Origin", ui.origin)]) == 403
    assert made.posted() == []


def test_other_methods_do_nothing(ui: Ui, made: Made) -> None:
    ours = [("Host", ui.host), ("Cookie", ui.cookie), ("Origin", ui.origin)]
    for path in PAGES:
        for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "POST", "BREW"):
            assert assert_sealed(ui, method, path, ours) == 405, (method, path)
        assert assert_sealed(ui, "HEAD", path, ours) == 200, path
    for path in ACTIONS:
        for method in ("GET", "PUT", "DELETE", "OPTIONS"):
            assert assert_sealed(ui, method, path, ours) == 405, (method, path)
    assert made.posted() == []


# ---- addresses and forms that no page of ours has


@pytest.mark.parametrize(
    "path",
    [
        "/nothing", "//", "/jobs", "/jobs/", "/jobs/unknown", "/jobs/unknown/items", "/jobs/unknown/live",
        "/jobs/draft", "/jobs/DRAFTS", "/jobs/drafts/nothing", "/jobs/drafts/items/x", "/jobs/drafts/items/4",
        "/jobs/drafts/items/-1", "/jobs/drafts/items/9999999999999999999999", "/jobs/drafts/items/%31%00",
        "/jobs/..", "/jobs/../..", "/jobs/%2e%2e", "/jobs/%2e%2e/items", "/jobs/drafts%2f..",
        "/jobs/..%2f..%2fetc", "/jobs/%00", "/jobs/drafts%00", "/jobs/%ff", "/jobs/drafts/../../etc/passwd",
        "/jobs/.gitignore", "/jobs/drafts/state.json", "/style.css/..", "/page.js%00", "/" + "x" * 20_000,
        "/jobs/" + "%2e%2e%2f" * 1000, "/jobs/<script>", "/jobs/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    ],
)  # fmt: skip
def test_unknown_addresses_are_404_and_sealed(ui: Ui, path: str) -> None:
    assert assert_sealed(ui, "GET", path, [("Host", ui.host), ("Cookie", ui.cookie)]) == 404
    said = ui.get(path).text
    assert "<script>alert" not in said and "root:" not in said and "\0" not in said
    assert assert_sealed(ui, "GET", path, [("Host", ui.host)]) == 403


def test_an_unknown_job_is_told_which_are_known(ui: Ui) -> None:
    assert "unknown: no job of that name; known here: drafts" in ui.get("/jobs/unknown").text


@pytest.mark.parametrize("name", ["start", "from", "answered", "later", "last", "count", "item", "index"])
@pytest.mark.parametrize("value", ["-1", "1e9", "0x10", "999999999999", "9" * 5000, "٣", "%00", "%ff", "", "1;2", "²"])
def test_numbers_in_an_address_may_be_anything(ui: Ui, name: str, value: str) -> None:
    from urllib.parse import quote

    value = quote(value, safe="%;")
    for path in ("items", "review", "results", "items/1", "failures", ""):
        assert ui.get(f"/jobs/drafts/{path}?said=yes&{name}={value}".replace("drafts/?", "drafts?")).status == 200


@pytest.mark.parametrize("size", [70_000, 300_000])
def test_very_long_addresses_and_headers_do_no_harm(ui: Ui, size: int) -> None:
    for path, more in (("/" + "x" * size, "x"), ("/", "x" * size)):
        try:
            said = ui.get(path, ("X-More", more))
        except (ConnectionError, BrokenPipeError):
            continue  # it did not want to hear the rest
        assert said.status in ((400, 404) if more == "x" else (200, 400)), path[:20]
    assert ui.get("/").status == 200


def test_a_form_that_is_too_large_or_no_form_posts_nothing(ui: Ui, made: Made) -> None:
    ours = [("Host", ui.host), ("Cookie", ui.cookie), ("Origin", ui.origin), ("Connection", "close")]
    bodies = {
        b"": {404, 409},
        b"\xff\xfe\x00": {400},
        b'{"item": 1, "yes": "1"}': {409},
        b"--x\r\nContent-Disposition: form-data; name=item\r\n\r\n1\r\n--x--": {409},
        b"&".join(b"a%d=1" % n for n in range(3000)): {400},
        b"item=1&yes=1&text=" + b"x" * (9 << 20): {413},
        b"item=%00&yes=1&mark=%ff": {409, 303},
        b"item=-1&yes=1": {409, 303},
        b"item=1&yes=maybe": {409},
    }
    for body, expected in bodies.items():
        for path in ACTIONS[:4]:
            try:
                said = ui.send("POST", path, ours, body)
            except (ConnectionError, BrokenPipeError):
                assert len(body) > 1 << 20  # it did not want to hear the rest
                continue
            assert said.status in expected, (path, body[:40], said.text)
            assert said["content-security-policy"] == SEALS["content-security-policy"]
    assert made.posted() == []


def test_a_name_is_kept_in_a_cookie_and_never_as_a_header(ui: Ui) -> None:
    said = ui.post("/name", {"name": " Ada\r\nSet-Cookie: x=y; <b>  Löve \x00", "job": "drafts"})
    assert (said.status, said["location"]) == (303, "/jobs/drafts/review")
    kept = said["set-cookie"]
    assert kept.startswith(f"agentrun-name-{ui.port}=Ada%20Set-Cookie") and "\n" not in kept
    assert "httponly" in kept.lower() and "samesite=strict" in kept.lower()
    value = kept.partition(";")[0]
    page = ui.send(
        "GET", "/jobs/drafts/review", [("Host", ui.host), ("Cookie", f"{ui.cookie}; {value}"), ("Connection", "close")]
    )
    assert page.status == 200 and "&lt;b&gt; Löve" in page.text
    assert ui.post("/name", {"name": "x", "job": "//evil.example"})["location"] == "/jobs/%2F%2Fevil.example/review"


# ---- what is served


def test_pages_have_neither_inline_script_nor_inline_style(ui: Ui) -> None:
    for path in PAGES:
        said = ui.get(path)
        if said["content-type"].startswith("text/html"):
            tags = re.findall(r"<[^>]+>", said.text)
            assert [tag for tag in tags if re.search(r"\s(style|on\w+)\s*=", tag)] == []
            assert [tag for tag in tags if tag.startswith(("<script", "<style", "<iframe", "<object"))] == [
                '<script src="/page.js" defer blocking="render">'
            ]


def test_the_script_has_at_most_100_lines_and_there_is_one_escape_function() -> None:
    import agentrun_cli.page.markup as markup

    folder = Path(markup.__file__).parent
    assert len((folder / "page.js").read_text().splitlines()) <= 100
    calls = [one.name for one in folder.glob("*.py") if re.search(r"\bescape\(", one.read_text())]
    assert calls == ["markup.py"]


def test_it_listens_on_127_0_0_1_and_nowhere_else(ui: Ui) -> None:
    require_linux()
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{ui.process.pid}/net/{name}").read_text().splitlines()[1:]
    ]
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{ui.port:04X}")]
    assert listening == [f"0100007F:{ui.port:04X}"]
