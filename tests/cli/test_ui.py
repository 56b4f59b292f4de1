"""agentrun ui: the command, its end, its live pages, and what is left if it is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path

import pytest

from cli.conftest import Run
from cli.made import Made
from cli.serving import Ui
from needs import require_linux, require_module
from waiting import eventually

require_module("starlette", "uvicorn", extra="ui")

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == {name!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Missing())
sys.argv[0] = "agentrun"
from agentrun_cli.main import main
main()
"""
LOADED = """
import sys
sys.argv[0] = "agentrun"
from agentrun_cli.main import main
try: main()
finally: print("LOADED", [name for name in ("starlette", "uvicorn", "h11") if name in sys.modules])
"""


@pytest.fixture
def made(tmp_path: Path) -> Made:
    run = Made(tmp_path, [*"abcd"])
    run.commit(run.entry("a"), run.waiting("b"), run.failed("c"))
    return run


@pytest.fixture
def ui(made: Made) -> Iterator[Ui]:
    one = Ui(made.base)
    yield one
    one.close()


def run_python(code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


# ---- the command


@pytest.mark.parametrize("name", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(tmp_path: Path, name: str) -> None:
    ended = run_python(WITHOUT.format(name=name), "ui", "--no-open", cwd=tmp_path)
    assert ended.returncode == 2 and ended.stdout == ""
    assert f"agentrun ui needs {name}, which is not installed" in ended.stderr
    assert "pip install '.[ui]'" in ended.stderr and "Traceback" not in ended.stderr
    assert run_python(WITHOUT.format(name=name), "ui", "--help", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "words", [["--help"], ["ui", "--help"], ["status"], ["items", "drafts"], ["review", "drafts", "--list"]]
)
def test_other_commands_do_not_load_what_serves_the_page(made: Made, words: list[str]) -> None:
    ended = run_python(LOADED, *words, cwd=made.base)
    assert ended.returncode == 0 and ended.stdout.endswith("LOADED []\n"), ended.stderr


def test_the_address_alone_is_data(ui: Ui) -> None:
    assert ui.address == f"http://127.0.0.1:{ui.port}/?token={ui.token}"
    # The address is on standard output a moment before the words are on standard error.
    eventually(lambda: ui.said.endswith("\n"), "it says what to do with the address", alive=ui.process)
    assert ui.said == "open it in a browser; end with Ctrl-C\n"


def test_a_port_that_is_taken_or_no_port_is_exit_2_with_what_to_do(tmp_path: Path, agentrun: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = agentrun("ui", "--no-open", "--port", str(port))
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith(f"--port {port}: cannot be used: Address already in use; choose another")
    for port in (-1, 65536):
        assert agentrun("ui", "--no-open", "--port", str(port)).returncode == 2
    assert agentrun("ui", "--no-open", "--host", "0.0.0.0").returncode == 2


def test_a_port_that_was_asked_for_is_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ui = Ui(tmp_path, port=port)
    try:
        assert ui.port == port and "No job has run here yet" in ui.get("/").text
    finally:
        ui.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_it_also_with_open_pages(ui: Ui, number: int, code: int) -> None:
    with ui.live("drafts") as stream, ui.connect() as idle:
        next_event(stream)
        assert ui.end(number) == code
        assert not idle.recv(1) and stream.read() == b"", "the stream ends, and does not break off"
    assert ui.said.rstrip() == "open it in a browser; end with Ctrl-C"


# ---- live


def next_event(stream: HTTPResponse) -> str:
    """The HTML of the next event: of the page and of the tabs."""
    line, end = stream.readline(), stream.readline()
    assert line.startswith(b"data: ") and end == b"\n", (line, end)
    html: str = "".join(json.loads(line[6:])[part] for part in ("live", "tabs"))
    return html


def test_the_live_page_tells_of_changes_and_of_nothing_else(ui: Ui, made: Made) -> None:
    with ui.live("drafts") as stream:
        assert "1</dd>" not in next_event(stream)
        made.checkpoint.counts = {"done": 1}
        made.commit(made.entry("d"))
        second = next_event(stream)
        assert "<dt>done</dt><dd>1<small>" in second
        # Whatever it would say without a reason, it would have said before this.
        looks = count_looks(ui)
        eventually(lambda: count_looks(ui) >= looks + 3, "it has looked three times")
        made.checkpoint.counts = {"done": 2}
        made.commit()
        assert "<dt>done</dt><dd>2<small>" in next_event(stream)
    assert ui.get("/jobs/unknown/live").status == 404


def count_looks(ui: Ui) -> int:
    """How many times the server has read something, as the system counts."""
    require_linux()
    rows = dict(line.split(": ") for line in Path(f"/proc/{ui.process.pid}/io").read_text().splitlines())
    return int(rows["syscr"]) // 10


def test_a_closed_page_leaves_nothing_behind(ui: Ui) -> None:
    require_linux()

    def held() -> int:
        links = (os.path.realpath(one) for one in Path(f"/proc/{ui.process.pid}/fd").iterdir())
        return sum("socket:" in one for one in links)

    eventually(lambda: held() == 3, "it listens, and nobody is connected")
    for _ in range(12):
        with ui.live("drafts") as stream:
            next_event(stream)
    eventually(lambda: held() == 3, "the streams are closed")


# ---- killed


def test_what_was_answered_is_posted_also_if_it_is_killed(tmp_path: Path) -> None:
    keys = [f"item-{n:02}" for n in range(40)]
    made = Made(tmp_path, keys)
    made.commit(*(made.waiting(key) for key in keys))
    ui = Ui(tmp_path)
    first = ui.form("/jobs/drafts/review", "/answer")
    forms = [ui.form(f"/jobs/drafts/review?from={n}", "/answer") for n in range(40)]
    assert first.fields == forms[0].fields
    confirmed: list[str] = []

    def answer(some: list[int]) -> None:
        for n in some:
            try:
                if ui.press(forms[n], yes="1").status == 303:
                    confirmed.append(keys[n])
            except (OSError, HTTPException):
                return

    threads = [threading.Thread(target=answer, args=([*range(k, 40, 4)],)) for k in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(confirmed) >= 8, "some are confirmed")
    ui.process.kill()
    for thread in threads:
        thread.join()
    ui.close()
    posted = [message["key"] for message in made.posted()]
    assert len(posted) == len(set(posted)) and set(confirmed) <= set(posted)
    # The next one goes on where it was.
    again = Ui(tmp_path)
    try:
        for _ in range(40 - len(posted)):
            again.press(again.form("/jobs/drafts/review", "/answer"), yes="0")
        assert "Nothing waits for an answer" in again.get("/jobs/drafts/review").text
    finally:
        again.close()
    assert sorted(message["key"] for message in made.posted()) == keys
