"""`--plan` is what `start` then does, and nothing is paid twice without a word: in histories of one job."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

from unit.launch.histories import Histories

TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=200,
    stateful_step_count=25,
    derandomize=True,
    phases=[Phase.generate],
    print_blob=False,
    report_multiple_bugs=False,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
