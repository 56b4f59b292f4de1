"""The crash tests have teeth: every seeded bug is caught. Run with `-s`, or as `python -m crash.gate`, it shows how."""

from __future__ import annotations

import pytest

from crash.gate import run_gate
from crash.mutants import MUTANTS


@pytest.mark.timeout(900)
def test_every_seeded_bug_is_caught_by_a_quick_test() -> None:
    assert len(MUTANTS) >= 16
    assert run_gate([], is_within_suite=True)
