"""Prompts as agents, with the providers' libraries, against a server on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.conftest import agentrun
from llm.server import LlmServer, serve
from needs import require_module

__all__ = ["agentrun", "llm"]

require_module("pydantic_ai", "openai", "anthropic", "google.genai", "genai_prices", "jsonschema", extra="llm")


@pytest.fixture
def llm() -> Iterator[LlmServer]:
    with serve() as server:
        yield server
