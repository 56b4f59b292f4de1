"""What the parser makes of the words of a command line."""

from __future__ import annotations

import pytest

from agentrun_cli.parsing import with_numbers


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ([], []),
        (["job.toml"], ["job.toml"]),
        (["--pilot"], ["--pilot=20"]),
        (["--pilot", "5", "job.toml"], ["--pilot", "5", "job.toml"]),
        (["--pilot", "job.toml"], ["--pilot=20", "job.toml"]),
        (["job.toml", "--pilot", "--", "./fly", "--pilot"], ["job.toml", "--pilot=20", "--", "./fly", "--pilot"]),
    ],
)
def test_a_flag_without_its_number_gets_it_but_a_programs_words_stay(words: list[str], read: list[str]) -> None:
    assert with_numbers(words) == read
