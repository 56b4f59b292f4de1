"""`--plan` is what `start` then does, and nothing is paid twice without a word: in histories of one job."""

from __future__ import annotations

from unit.launch.histories import Histories, history_settings

TestHistories = Histories.TestCase
# The same histories every time; `make torture` has others.
TestHistories.settings = history_settings(200, derandomize=True)
