"""Fixtures of the frameworks' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from needs import require_module
from unit.frameworks.bench import Bench

require_module("langgraph", extra="langgraph")
require_module("langchain", "langgraph.checkpoint.conformance", extra="dev")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
