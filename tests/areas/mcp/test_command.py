"""`agentrun mcp`, the real command, with the SDK's own client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from areas.mcp.conftest import COMMAND, play, serve
from cli.conftest import Run, environment
from waiting import PATIENCE_SECONDS, eventually

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    },
}
READING = ["list_jobs", "status", "failures", "items", "item", "questions", "results"]


class ByHand:
    """The server, spoken to line by line."""

    def __init__(self, folder: Path, *words: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "mcp", *words],
            cwd=folder,
            env=environment(**environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._number = 1

    def __enter__(self) -> ByHand:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdout is not None
        self.write(json.dumps(message).encode() + b"\n")
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def greet(self) -> dict[str, Any]:
        said = self.ask(HELLO)
        self.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return said

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self._number += 1
        params = {"name": tool, "arguments": arguments}
        said = self.ask({"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params})
        assert said["id"] == self._number
        return dict(said["result"])

    def end(self) -> tuple[int, str, str]:
        """Close its standard input; its exit code, and what is left to read."""
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, (out or b"").decode(), err.decode()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_reads_everything_and_nothing_else_is_listed(drafts: Path, agentrun: Run, mode: str) -> None:
    agentrun("start", "drafts.toml", cwd=drafts)

    async def story() -> None:
        async with serve(drafts, mode=mode) as call:
            tools = (await call.client.list_tools()).tools
            assert [one.name for one in tools] == READING
            assert all(one.annotations is not None and one.annotations.read_only_hint for one in tools)
            assert all(one.output_schema is not None for one in tools)
            (job,) = (await call("list_jobs"))["jobs"]
            assert (job["job"], job["status"]) == ("drafts", "waiting")
            assert job["counts"] == {"done": 1, "failed": 1, "waiting": 2}
            assert (await call("status", job="drafts"))["why"] == "1 of 4 items failed"
            (cause,) = (await call("failures", job="drafts"))["causes"]
            assert (cause["count"], cause["keys"]) == (1, ["bad Cyd"])
            assert [one["key"] for one in (await call("items", job="drafts", state="waiting"))["items"]] == [
                "ask Ben",
                "ask Dora",
            ]
            assert (await call("item", job="drafts", key="bad Cyd"))["cause"] == "ValueError: no good: bad Cyd"
            asked = (await call("questions", job="drafts"))["questions"]
            assert [(one["key"], one["question"], one["generation"]) for one in asked] == [
                ("ask Ben", 1, 0),
                ("ask Dora", 1, 0),
            ]
            assert (await call("results", job="drafts"))["results"] == [
                {"index": 0, "key": "Ada", "output": "Dear Ada"}
            ]
            assert "Unknown tool" in await call.error("answer", job="drafts", key="ask Ben", yes=True)

    play(story)


def test_what_is_allowed_is_listed_with_honest_hints(drafts: Path) -> None:
    async def story() -> None:
        async with serve(drafts, "--allow", "skip,answer", "--allow", "redo,start", "--jobs", "drafts.toml") as call:
            tools = (await call.client.list_tools()).tools[len(READING) :]
            hints = {one.name: one.annotations for one in tools}
            assert [*hints] == ["answer", "redo", "skip", "start", "resume"]
            assert all(one is not None and one.read_only_hint is False for one in hints.values())
            assert [name for name, one in hints.items() if one is not None and one.destructive_hint] == ["redo", "skip"]

    play(story)


def test_many_answers_are_processed_once_each_by_the_runner_at_work(
    drafts: Path, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    keys = [f"ask {number:02}" for number in range(40)]
    (drafts / "names.txt").write_text("".join(f"{key}\n" for key in [*keys, "last"]))
    hold = (
        "    import pathlib, time\n"
        "    while item.text == 'last' and not pathlib.Path('go').exists():\n"
        "        time.sleep(0.01)\n"
    )
    agent = (drafts / "agent.py").read_text()
    (drafts / "agent.py").write_text(agent.replace("ctx):\n", "ctx):\n" + hold, 1))
    runner = begin("start", "drafts.toml", "-j", "4", cwd=drafts)

    async def story() -> None:
        async with serve(drafts, "--allow", "answer", name="robot\x1b[31m\u202e" + "x" * 200) as call:
            answered: set[str] = set()
            while len(answered) < len(keys):
                assert runner.poll() is None, runner.communicate()
                if not (await call("list_jobs"))["jobs"]:
                    continue
                for one in (await call("questions", job="drafts"))["questions"]:
                    if one["answered"] or one["key"] in answered:
                        continue
                    which = {"question": one["question"], "generation": one["generation"]}
                    said = await call("answer", job="drafts", key=one["key"], yes=True, text=one["key"], **which)
                    assert said["count"] == 1
                    answered.add(one["key"])
                    await call.error("answer", job="drafts", key=one["key"], yes=False, text="twice", **which)

    play(story)
    (drafts / "go").touch()
    assert runner.wait(PATIENCE_SECONDS) == 0
    results = [json.loads(line)["output"] for line in (drafts / "drafts.results.jsonl").read_text().splitlines()]
    assert [one["text"] for one in results[:-1]] == keys and all(one["sent"] for one in results[:-1])
    assert {one["by"] for one in results[:-1]} == {"mcp:robot" + "x" * 54 + "…"}
    records = [line for path in drafts.glob(".agentrun/drafts/runs/*.jsonl") for line in path.read_text().splitlines()]
    assert sum('"kind":"answer"' in line for line in records) == len(keys)


def test_start_runs_a_listed_job_file_in_the_background_and_is_seen(
    job: Path, agentrun: Run, nothing_left: None
) -> None:
    """The job's state is beside its file, and not in the folder of the server."""
    here = job.parent

    async def story() -> None:
        async with serve(here, "--allow", "start", "--jobs", "work/job.toml") as call:
            assert (await call("list_jobs"))["jobs"] == []
            begun = await call("start", job="work/job.toml", limit=1)
            assert begun["job"] == "work"
            while (status := await call("status", job="work"))["status"] == "running":
                pass
            assert status["counts"]["done"] == 1
            assert (await call("resume", job="work"))["job"] == "work"
            while (await call("status", job="work"))["status"] != "finished":
                pass
            assert len((await call("results", job="work"))["results"]) == 3
            said = await call("start", job=str(job / "job.toml"))
            assert "nothing to run" in said["said"]

    play(story)


def test_jobs_of_a_store_are_seen_and_started_there(
    job: Path, agentrun: Run, tmp_path: Path, nothing_left: None
) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    text = (job / "job.toml").read_text()
    (job / "job.toml").write_text(f'name = "upper"\n{text}')
    assert agentrun("start", "job.toml", "--store", store, "--limit", "1", cwd=job).returncode == 4
    (tmp_path / "else").mkdir()

    async def look() -> None:
        async with serve(tmp_path / "else", "--store", store) as call:
            assert [one["job"] for one in (await call("list_jobs"))["jobs"]] == ["upper"]
            assert (await call("status", job="upper"))["counts"]["done"] == 1

    async def start() -> None:
        async with serve(job, "--store", store, "--allow", "start", "--jobs", "job.toml") as call:
            await call("resume", job="upper")
            while (await call("status", job="upper"))["status"] != "finished":
                pass

    play(look)
    play(start)
    assert "3/3" in agentrun("status", "--store", store).stdout
    assert not list((job / ".agentrun").glob("*/state.json"))


def test_a_launch_that_is_refused_is_an_error_that_says_why(job: Path, agentrun: Run) -> None:
    (job / "job.toml").write_text('agent = "agent.py:nobody"\n[items]\nfiles = "items/*.txt"\n')

    async def story() -> None:
        async with serve(job, "--allow", "start", "--jobs", "job.toml") as call:
            said = await call.error("start", job="work")
            assert "exit code 2" in said and "nobody" in said

    play(story)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--allow", "deploy"],
            "--allow deploy: there is no such tool; allow one or more of answer, redo, skip, start",
        ),
        (["--allow", "answer,"], "--allow has an empty word; allow one or more of"),
        (["--allow", "start"], "--allow start needs the job files that may be started: --jobs FILE"),
        (["--jobs", "drafts.toml"], "add --allow start, or leave --jobs out"),
        (["drafts.toml"], "drafts.toml: job files that may be started are given with --jobs"),
        (["--allow", "start", "--jobs", "nosuch.toml"], "--jobs nosuch.toml: there is no such job file"),
        (["--allow", "start", "--jobs", "agent.py"], "--jobs agent.py: is not a job file; give the path of one"),
        (["--allow", "start", "--jobs", "drafts.toml", "broken.toml"], "broken.toml"),
    ],
)
def test_a_wrong_command_line_is_refused_with_what_would_do(
    drafts: Path, agentrun: Run, words: list[str], said: str
) -> None:
    (drafts / "broken.toml").write_text("agent = [")
    ended = agentrun("mcp", *words, cwd=drafts)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_without_the_extra_it_says_what_to_install(drafts: Path) -> None:
    blocked = (
        "import sys, importlib.util as u; f = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'mcp' else f(name, package)\n"
        "sys.argv = ['agentrun', 'mcp']\n"
        "from agentrun_cli.main import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", blocked],
        cwd=drafts,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "this needs the MCP SDK; install it, in the checkout, with: pip install '.[mcp]'\n"


def test_nonsense_on_standard_input_is_survived(drafts: Path, agentrun: Run) -> None:
    agentrun("start", "drafts.toml", cwd=drafts)
    with ByHand(drafts) as server:
        server.write(b'nonsense\n\xff\xfe\x00\n{"a": 1}\n[]\n\n')
        assert server.greet()["result"]["serverInfo"]["name"] == "agentrun"
        assert server.call("list_jobs")["structuredContent"]["jobs"][0]["job"] == "drafts"
        code, out, err = server.end()
    assert (code, out) == (0, "") and "Traceback" not in err


LOUD = """\
import os, sys

class Loud:
    \"\"\"Prints, in two ways, when a module is looked for.\"\"\"

    def find_spec(self, name, path=None, target=None):
        if name in {modules}:
            print("LOUD", name, flush=True)
            os.write(1, b"LOUD " + name.encode() + b"\\n") if name not in {early} else None

sys.meta_path.insert(0, Loud())
"""


def test_nothing_but_the_protocol_is_on_standard_output(drafts: Path, agentrun: Run) -> None:
    """Also if something prints: while the server is made, and while it serves."""
    agentrun("start", "drafts.toml", cwd=drafts)
    early, late = {"agentrun_cli.mcp.reading"}, {"agentrun.job.opening"}
    (drafts / "loud").mkdir()
    (drafts / "loud" / "sitecustomize.py").write_text(LOUD.format(modules=early | late, early=early))
    with ByHand(drafts, PYTHONPATH=str(drafts / "loud")) as server:
        server.greet()
        assert server.call("item", job="drafts", key="Ada")["structuredContent"]["output"] == "Dear Ada"
        code, out, err = server.end()
    assert (code, out) == (0, "")
    # It did print, or nothing was tested: once while it was made, twice while it served.
    assert err.count("LOUD agentrun_cli.mcp.reading") == 1
    assert err.count("LOUD agentrun.job.opening") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly(drafts: Path, number: signal.Signals) -> None:
    with ByHand(drafts) as server:
        server.greet()
        server.process.send_signal(number)
        code, out, err = server.end()
    assert (code, out, err) == (-number, "", "")
    assert not list(drafts.glob(".agentrun/**/*"))


def test_a_client_that_is_gone_ends_it_without_a_traceback(drafts: Path) -> None:
    with ByHand(drafts) as server:
        server.greet()
        assert server.process.stdout is not None
        server.process.stdout.close()
        server.process.stdout = None
        server.write(b'{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}\n')
        _, _, err = server.end()
        assert err == ""


def test_a_killed_server_leaves_nothing_behind(drafts: Path, agentrun: Run) -> None:
    agentrun("start", "drafts.toml", cwd=drafts)

    def files() -> set[str]:
        return {str(path) for path in drafts.rglob("*")}

    before = files()
    with ByHand(drafts) as server:
        server.greet()
        server.call("results", job="drafts")
        server.process.kill()
        server.end()
    assert files() == before
    eventually(lambda: not _children(server.process.pid), "no process of its is left")


def _children(pid: int) -> list[str]:
    return (
        [one for one in os.listdir("/proc") if one.isdigit() and _parent(one) == pid] if os.path.isdir("/proc") else []
    )


def _parent(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
