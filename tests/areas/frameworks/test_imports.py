"""What of a framework is imported, and what is said where it is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crash.scenarios.frameworks import FILES, JOBS, WAYS, ToolJob
from llm.tool_model import ToolModel
from needs import require_module
from waiting import PATIENCE_SECONDS

FRAMEWORKS = {"agents", "langchain_core", "langgraph", "openai", "pydantic_ai"}
COMMAND = """
import sys
sys.argv[0] = "agentrun"

class Blocked:
    names = {blocked!r}

    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in self.names):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
from agentrun_cli.main import main

try:
    main()
finally:
    print("LOADED", *sys.modules)
"""


def start(job: ToolJob, *, blocked: tuple[str, ...] = ()) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """The command in a process of its own, where these modules cannot be found; and what it imported of frameworks."""
    ended = subprocess.run(
        [sys.executable, "-c", COMMAND.format(blocked=blocked), "start", "job.toml"],
        cwd=job.base,
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return ended, FRAMEWORKS & set(ended.stdout.partition("LOADED")[2].split())


def framework_job(base: Path, framework: str, url: str) -> ToolJob:
    source = JOBS / framework / FILES[framework]
    texts = ["What of key=00? <<tools search>>"]
    job = ToolJob(base, source=source, name_in_source=WAYS[framework]["ours"], texts=texts, url=url)
    job.lay_out()
    return job


def job_of(base: Path, text: str) -> ToolJob:
    source = base / "mine.py"
    source.write_text(text)
    job = ToolJob(base / "job", source=source, texts=["a"])
    job.lay_out()
    return job


@pytest.mark.parametrize("define", ["def", "async def"])
def test_a_plain_function_loads_nothing_of_any_framework(tmp_path: Path, define: str) -> None:
    ended, loaded = start(job_of(tmp_path, f"{define} agent(item):\n    return item.text\n"))
    assert ended.returncode == 0, ended.stderr
    assert loaded == set()


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("langgraph", {"langchain_core", "langgraph", "openai"}),
        ("openai_agents", {"agents", "openai"}),
        ("pydantic_ai", {"openai", "pydantic_ai"}),
    ],
)
def test_an_agent_of_a_framework_loads_its_own_and_no_other(
    tmp_path: Path, model: ToolModel, framework: str, expected: set[str]
) -> None:
    require_module(f"agentrun.frameworks.{framework}", extra=framework.replace("_", "-"))
    ended, loaded = start(framework_job(tmp_path / "job", framework, model.url))
    assert ended.returncode == 0, ended.stderr
    assert loaded == expected


@pytest.mark.parametrize(
    ("framework", "package", "distribution"),
    [
        ("langgraph", "langgraph", "langgraph"),
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai-slim"),
    ],
)
def test_a_missing_framework_is_told_before_the_first_item(
    tmp_path: Path, framework: str, package: str, distribution: str
) -> None:
    job = framework_job(tmp_path / "job", framework, "http://127.0.0.1:9")
    ended, _ = start(job, blocked=(package,))
    assert ended.returncode == 2, ended.stderr
    # Environments that uv makes have no pip, and the command is uv's.
    said = " ".join(ended.stderr.split()).replace(f"--python {sys.executable} ", "")
    assert f'has no package "{package}"' in said and said.endswith(f"pip install {distribution}")
    assert not (job.base / "results.jsonl").exists()


def test_a_version_of_a_framework_without_what_its_adapter_needs_is_told(tmp_path: Path) -> None:
    text = "from pydantic_ai import Agent\nfrom pydantic_ai.models.test import TestModel\nagent = Agent(TestModel())\n"
    ended, _ = start(job_of(tmp_path, text), blocked=("pydantic_ai.durable_exec._base",))
    assert ended.returncode == 2, ended.stderr
    said = " ".join(ended.stderr.split())
    assert "it is an agent of pydantic-ai, and this pydantic-ai-slim" in said
    assert "No module named 'pydantic_ai.durable_exec._base'" in said and "pip install '.[pydantic-ai]'" in said


def test_a_package_that_is_there_but_broken_is_not_called_missing(tmp_path: Path) -> None:
    text = "from pydantic_ai import Agent\nagent = Agent()\n"
    ended, _ = start(job_of(tmp_path, text), blocked=("pydantic_ai.durable_exec",))
    assert ended.returncode == 2, ended.stderr
    said = " ".join(ended.stderr.split())
    assert "it cannot be loaded: No module named 'pydantic_ai.durable_exec'" in said and "has no package" not in said
