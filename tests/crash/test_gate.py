"""Every seeded bug still has its place in the library; `make gate` shows that each is caught."""

from __future__ import annotations

import pytest

from crash.mutants import MUTANTS
from crash.seeding import DoesNotApply, Mutant, check, seed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_place_of_a_seeded_bug_is_found(mutant: Mutant) -> None:
    check(mutant)


def test_every_name_is_used_once() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))


def test_a_pattern_is_matched_as_syntax_and_may_leave_expressions_open() -> None:
    mutant = Mutant("x", "sync_folder", "disk.fsync( ... )  # however it is written", "", ())
    path, text = seed(mutant)
    assert "fsync(fd)" not in text[text.index("def sync_folder") : text.index("def temporary_name")], path


@pytest.mark.parametrize("where, old", [("sync_folder", "disk.nothing()"), ("no_such_function", "pass")])
def test_a_place_that_is_gone_is_said(where: str, old: str) -> None:
    with pytest.raises(DoesNotApply, match="times"):
        check(Mutant("x", where, old, "", ()))
