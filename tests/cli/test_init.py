"""init: a job to start from, which runs as it is."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import COMMAND, environment
from cli.terminal import Terminal

Run = Callable[..., subprocess.CompletedProcess[str]]
KEYS = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
KINDS = {
    "function": (),
    "prompt": ("--prompt",),
    "command": ("--command",),
    "openai": ("--python", "openai"),
    "anthropic": ("--python", "anthropic"),
    "litellm": ("--python", "litellm"),
    "langgraph": ("--langgraph",),
    "openai-agents": ("--openai-agents",),
    "pydantic-ai": ("--pydantic-ai",),
}
FAKES = {
    "openai": """\
class AsyncOpenAI:
    def __init__(self, **given):
        assert given == {"timeout": 120, "max_retries": 0}, given
        self.chat = self.completions = self

    async def create(self, model, messages):
        choice = Is(finish_reason="stop", message=Is(content="sum of " + messages[-1]["content"].split()[0]))
        return Is(model=model, choices=[choice], usage=Is(prompt_tokens=7, completion_tokens=2))

    async def close(self):
        pass
""",
    "anthropic": """\
class AsyncAnthropic:
    def __init__(self, **given):
        assert given == {"timeout": 120, "max_retries": 0}, given
        self.messages = self

    async def create(self, model, max_tokens, system, messages):
        block = Is(type="text", text="sum of " + messages[-1]["content"].split()[0])
        used = Is(input_tokens=7, output_tokens=2, cache_read_input_tokens=0, cache_creation_input_tokens=0)
        return Is(type="message", model=model, stop_reason="end_turn", content=[block], usage=used)

    async def close(self):
        pass
""",
    "litellm": """\
async def acompletion(model, messages, timeout, max_retries, num_retries):
    assert (timeout, max_retries, num_retries) == (120, 0, 0)
    choice = Is(finish_reason="stop", message=Is(content="sum of " + messages[-1]["content"].split()[0]))
    return Is(model=model, choices=[choice], usage=Is(prompt_tokens=7, completion_tokens=2))
""",
}


def fake(folder: Path, sdk: str) -> None:
    """A module of the SDK's name beside the agent, where it comes first on sys.path."""
    (folder / f"{sdk}.py").write_text(f"from types import SimpleNamespace as Is\n\n\n{FAKES[sdk]}")


def test_what_it_writes_runs_as_it_is(agentrun: Run, tmp_path: Path) -> None:
    ended = agentrun("init", "my job")
    assert ended.returncode == 0
    assert ended.stderr.splitlines()[-1] == "  agentrun start 'my job/job.toml'"
    assert agentrun("start", "my job/job.toml").returncode == 0
    assert len((tmp_path / "my job" / "results.jsonl").read_text().splitlines()) == 3


def test_it_overwrites_nothing(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("mine")
    ended = agentrun("init")
    assert ended.returncode == 2 and ended.stderr.startswith("agent.py: already exists")
    assert [path.name for path in tmp_path.iterdir()] == ["agent.py"]
    assert (tmp_path / "agent.py").read_text() == "mine"


@pytest.mark.parametrize("nightly", [(), ("--nightly",)], ids=["once", "nightly"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_every_kind_can_be_planned(agentrun: Run, tmp_path: Path, kind: str, nightly: tuple[str, ...]) -> None:
    assert agentrun("init", "it", *KINDS[kind], *nightly).returncode == 0
    if kind in FAKES:
        fake(tmp_path / "it", kind)
    planned = agentrun("start", "it/job.toml", "--plan", **KEYS)
    assert planned.returncode == 0, planned.stderr
    assert "refused" not in planned.stdout and "3" in planned.stdout


@pytest.mark.parametrize("sdk", FAKES)
def test_the_python_agents_call_their_model_and_report_what_it_used(agentrun: Run, tmp_path: Path, sdk: str) -> None:
    agentrun("init", "it", *KINDS[sdk])
    fake(tmp_path / "it", sdk)
    ended = agentrun("start", "it/job.toml", "--json", **KEYS)
    assert ended.returncode == 0, ended.stderr
    used = json.loads(ended.stdout)["usage"]
    assert (used["input_tokens"], used["output_tokens"]) == (21, 6)
    lines = [json.loads(line) for line in (tmp_path / "it" / "results.jsonl").read_text().splitlines()]
    assert [line["output"]["summary"] for line in lines] == ["sum of The", "sum of On", "sum of Dear"]


def test_the_command_runs_as_it_is(agentrun: Run, tmp_path: Path) -> None:
    agentrun("init", "it", "--command")
    (tmp_path / "it" / "items" / "4-empty.txt").write_text("")
    assert agentrun("start", "it/job.toml").returncode == 1
    lines = (tmp_path / "it" / "results.partial.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["output"] == {"words": 13, "bytes": 71} and len(lines) == 3


@pytest.mark.parametrize(
    "arguments",
    [("--python", "nix"), ("--python", ""), ("--prompt", "--command"), ("--langgraph", "--python", "openai")],
)
def test_nonsense_is_refused_and_nothing_written(agentrun: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert agentrun("init", "it", *arguments).returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_missing_key_is_told_before_the_agent_is_imported(agentrun: Run, tmp_path: Path) -> None:
    agentrun("init", "it", "--python", "openai")
    (tmp_path / "it" / "openai.py").write_text("raise SystemExit('imported')")
    ended = agentrun("start", "it/job.toml", OPENAI_API_KEY="")
    assert ended.returncode == 2
    assert "the agent needs OPENAI_API_KEY; set it in the environment" in ended.stderr


# Every night


def test_the_nightly_files_name_this_folder_and_this_command(agentrun: Run, tmp_path: Path) -> None:
    folder = tmp_path / "100% $mine"
    ended = agentrun("init", folder.name, "--nightly")
    assert ended.returncode == 0, ended.stderr
    assert f"agentrun={COMMAND}\n" in (folder / "nightly.sh").read_text()
    cron = (folder / "crontab").read_text()
    assert f"'{str(folder).replace('%', chr(92) + '%')}/nightly.sh' resume\n" in cron
    service = (folder / "agentrun-100-mine.service").read_text()
    assert f'ExecStart="{tmp_path}/100%% $$mine/nightly.sh"\n' in service
    assert (folder / "agentrun-100-mine.timer").is_file()
    assert tomllib.loads((folder / "job.toml").read_text())["run"]["max_age"] == "20h"
    assert "@" not in service and "@FOLDER@" not in (folder / "nightly.sh").read_text()


def test_the_nightly_script_runs_the_job_and_says_nothing(agentrun: Run, tmp_path: Path) -> None:
    agentrun("init", "my job", "--nightly")
    script = str(tmp_path / "my job" / "nightly.sh")
    for words in ([], ["resume"]):
        ended = subprocess.run(
            [script, *words], cwd="/", env=environment(), capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    (output,) = (tmp_path / "my job").glob("results-*.jsonl")
    assert len(output.read_text().splitlines()) == 3


def test_a_job_that_is_there_gets_only_what_runs_it_every_night(agentrun: Run, tmp_path: Path) -> None:
    agentrun("init", "it")
    before = {path.name: path.read_bytes() for path in (tmp_path / "it").iterdir() if path.is_file()}
    ended = agentrun("init", "it", "--nightly")
    assert ended.returncode == 0 and "job.toml is left unchanged" in ended.stderr
    after = {path.name: path.read_bytes() for path in (tmp_path / "it").iterdir() if path.is_file()}
    assert before.items() <= after.items()
    assert set(after) - set(before) == {"nightly.sh", "crontab", "agentrun-it.service", "agentrun-it.timer"}
    assert agentrun("init", "it", "--nightly").returncode == 2


def test_a_key_file_that_is_there_is_used_as_it_is(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=mine\n")
    assert agentrun("init", "--prompt", "--nightly").returncode == 0
    assert (tmp_path / ".env").read_text() == "OPENAI_API_KEY=mine\n"
    assert 'env_file = ".env"' in (tmp_path / "job.toml").read_text()


# On a terminal


@pytest.mark.parametrize(("typed", "files"), [("1", {"prompt.md"}), ("command", {"agent.sh"}), ("", {"agent.py"})])
def test_on_a_terminal_it_asks_which_kind(tmp_path: Path, typed: str, files: set[str]) -> None:
    terminal = Terminal("init", "it", cwd=tmp_path)
    try:
        terminal.until("What does the work for each item?")
        terminal.until("1 to 9 [9]: ")
        terminal.type("10")
        terminal.until("10: write a number from 1 to 9")
        terminal.until("1 to 9 [9]: ")
        terminal.type(typed)
        assert terminal.end()[0] == 0
    finally:
        terminal.close()
    assert {path.name for path in (tmp_path / "it").iterdir()} == files | {"job.toml", "items"}


def test_a_kind_that_is_given_is_not_asked_for(tmp_path: Path) -> None:
    terminal = Terminal("init", "it", "--command", cwd=tmp_path)
    try:
        code, said = terminal.end()
    finally:
        terminal.close()
    assert code == 0 and "What does" not in said
