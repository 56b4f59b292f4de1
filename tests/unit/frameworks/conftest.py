"""Fixtures of the frameworks' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.frameworks.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
