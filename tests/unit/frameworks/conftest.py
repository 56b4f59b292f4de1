"""Fixtures of the frameworks' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from needs import require_module
from unit.frameworks.bench import Bench

require_module("langgraph", extra="langgraph")
require_module("agents", extra="openai-agents")
require_module("pydantic_ai", extra="pydantic-ai")
require_module("fastmcp", "langchain", "langgraph.checkpoint.conformance", "mcp", extra="dev")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
