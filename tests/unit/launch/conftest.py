"""Fixtures of the launch tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.launch.bench import (
    World,
)


@pytest.fixture(params=["folder", "memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


@pytest.fixture
def in_folder(tmp_path: Path) -> World:
    return World(tmp_path, "folder")
