"""The agents that `init` writes run as they are, with a model that calls their tool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llm.tool_model import ToolModel

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("framework", ["langgraph", "openai-agents", "pydantic-ai"])
def test_the_agent_calls_its_tool_and_reports_what_it_used(
    agentrun: Run, tmp_path: Path, model: ToolModel, framework: str
) -> None:
    assert agentrun("init", "it", f"--{framework}").returncode == 0
    for path in (tmp_path / "it" / "items").iterdir():
        path.write_text(f"key={path.stem} <<tools count_words>>\n")
    given = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": model.url, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    ended = agentrun("start", "it/job.toml", "--json", **given)
    assert ended.returncode == 0, ended.stderr
    used = json.loads(ended.stdout)["usage"]
    assert used["requests"] == len(model.calls) == 6
    assert used["input_tokens"] == sum(call.input_tokens for call in model.calls)
    assert len((tmp_path / "it" / "results.jsonl").read_text().splitlines()) == 3
