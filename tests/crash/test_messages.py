"""Messages that are lost, doubled, late or another's: no item ever has a result that is not its own.

The faults are made on the real socket or pipe of each executor, see `crash.wires`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crash.boundaries import BOUNDARIES
from crash.faulty import KINDS
from crash.harness import Long, again_and_again
from needs import require_program
from waiting import PATIENCE_SECONDS

FAULTS = 100
"""Of each kind, at each boundary."""


def disturb(boundary: str, kind: str, *, faults: int, seed: int) -> dict[str, Any]:
    """In a process of its own: agents fork, and threads of theirs may be left."""
    tests = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-m", "crash.wires", boundary, "--kinds", kind, "--faults", str(faults), "--seed", str(seed)],
        cwd=tests,
        # What the gate puts before the installed library comes first.
        env={**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{tests}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS + faults,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])[kind]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_every_result_is_its_own_items_whatever_becomes_of_messages(boundary: str, kind: str) -> None:
    if boundary == "worker":
        require_program("bash")
    found = disturb(boundary, kind, faults=FAULTS, seed=1)
    assert found["wrong"] == []
    assert found["faults"] >= FAULTS
    # Most are retried, and some are not struck at all.
    assert found["done"] > found["items"] / 10, found["causes"]


def _one(chance: random.Random) -> int:
    boundary, kind = chance.choice(list(BOUNDARIES)), chance.choice(KINDS)
    found = disturb(boundary, kind, faults=500, seed=chance.randrange(1 << 30))
    assert not found["wrong"], f"{boundary}, {kind}: {found['wrong'][0]}"
    return int(found["faults"])


LONG: dict[str, Long] = {"messages": again_and_again(_one)}
