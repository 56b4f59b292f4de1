"""Agents from frameworks, against a model on loopback that calls tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.conftest import agentrun
from llm.tool_model import ToolModel, serve_tools
from needs import require_module

__all__ = ["agentrun", "model"]

require_module("langgraph", extra="langgraph")
require_module("agents", extra="openai-agents")
require_module("pydantic_ai", extra="pydantic-ai")
require_module("langchain", "langchain_openai", "langgraph.checkpoint.sqlite", "openai", "mcp", extra="dev")


@pytest.fixture
def model() -> Iterator[ToolModel]:
    with serve_tools() as served:
        yield served
