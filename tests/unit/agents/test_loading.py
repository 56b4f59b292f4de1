"""The agent's file is loaded as it is now, whatever Python has compiled of it before."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrun.agents.loading import ExactLoader


def value_of(path: Path) -> Any:
    found: dict[str, Any] = {}
    code = ExactLoader("agent", str(path)).get_code("agent")
    assert code is not None
    exec(code, found)
    return found["VALUE"]


def test_an_edit_of_the_same_size_in_the_same_second_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "agent.py"
    for n, nanoseconds in ((1, 100_000_000), (2, 900_000_000)):
        path.write_text(f"VALUE = {n}\n")
        os.utime(path, ns=(0, 1_800_000_000 * 10**9 + nanoseconds))
        assert value_of(path) == n
        assert list((tmp_path / "__pycache__").iterdir()), "nothing was kept that could be out of date"
    assert value_of(path) == 2
