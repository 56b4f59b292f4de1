"""A model server that is down or loading holds the night, and costs no document."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Run, begin
from llm.manners import Manners
from llm.server import LlmServer, serve
from waiting import eventually

__all__ = ["begin"]
GIVEN = (
    "--prompt",
    "Sum key={key} up: {text}",
    "--model",
    "openai:gpt-5-mini",
    "--items",
    "docs/*.md",
    "--name",
    "sums",
)
KEYS = [f"docs/{number}.md" for number in range(6)]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for key in KEYS:
        (tmp_path / key).write_text("text")
    return folder


def test_a_server_that_is_started_late_does_all_of_it(
    begin: Callable[..., subprocess.Popen[str]], agentrun: Run, docs: Path
) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    address = f"127.0.0.1:{port}"
    run = begin("start", *GIVEN, "--base-url", f"http://{address}/v1", "-j", "2", OPENAI_API_KEY="sk-none")
    state = docs.parent / ".agentrun" / "sums" / "state.json"
    eventually(lambda: state.exists() and json.loads(state.read_bytes()).get("paused"), "a pause", alive=run)
    shown = agentrun("status", "sums").stdout
    assert f"{address} cannot be reached" in shown
    with serve(port=port) as llm:
        assert run.wait() == 0, run.communicate()
        assert llm.requests_of() == dict.fromkeys(KEYS, 1)
    assert run.stderr is not None and run.stderr.read().count(f"{address} cannot be reached") == 1


def test_a_server_that_loads_its_model_is_waited_for(
    begin: Callable[..., subprocess.Popen[str]], docs: Path, llm: LlmServer
) -> None:
    llm.manners = Manners(loading=1_000_000)
    run = begin("start", *GIVEN, "--base-url", llm.url, "-j", "6", "--retries", "0", OPENAI_API_KEY="sk-none")
    state = docs.parent / ".agentrun" / "sums" / "state.json"
    eventually(lambda: state.exists() and json.loads(state.read_bytes()).get("paused"), "a pause", alive=run)
    llm.manners = Manners()
    assert run.wait() == 0, run.communicate()
    assert sorted(key for key, _, _ in llm.used) == KEYS
    assert run.stderr is not None and "Loading model" in run.stderr.read()


def test_a_server_that_dies_and_is_started_again_loses_nothing(
    begin: Callable[..., subprocess.Popen[str]], docs: Path
) -> None:
    state = docs.parent / ".agentrun" / "sums" / "state.json"
    with serve() as llm:
        port = int(llm.url.rsplit(":")[-1].removesuffix("/v1"))
        (docs.parent / KEYS[2]).write_text("<<slow seconds=60 times=1>>")
        given = (*GIVEN, "--base-url", llm.url, "-j", "2", "--retries", "1")
        run = begin("start", *given, OPENAI_API_KEY="sk-none")
        eventually(lambda: KEYS[2] in llm.requests_of() and len(llm.used) >= 2, "an item in flight", alive=run)
        llm.die()
        eventually(lambda: run.poll() is not None or json.loads(state.read_bytes()).get("paused"), "a pause")
    with serve(port=port) as again:
        assert run.wait() == 0, run.communicate()
    done = [key for key, _, _ in [*llm.used, *again.used]]
    assert sorted(set(done)) == KEYS
    # What was in flight when it died is asked again, and nothing else.
    assert len(done) <= len(KEYS) + 2
