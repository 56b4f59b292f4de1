from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.errors import JobError
from agentrun.item import key_digest
from agentrun.outputs.names import NAME_MOST_BYTES, ItemNames, folded, safe


def names_of(keys: list[str], template: str = "{key}.md") -> list[str]:
    names = ItemNames(template, lambda: enumerate(keys))
    return [names.name(index, key) for index, key in enumerate(keys)]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("invoice-20260127", "invoice-20260127.md"),
        ("docs/a b.txt", "docs_a_b.txt.md"),
        ("../../etc/passwd", "_.._etc_passwd.md"),
        ("/abs", "_abs.md"),
        (".hidden", "hidden.md"),
        ("-rf", "rf.md"),
        ("a\x00b\x1b[31m\n", "a_b_31m_.md"),
        ("Müller~2", "Müller~2.md"),
        ("anna@example.com", "anna@example.com.md"),
        ("a\u202eb\u200b", "a_b_.md"),
    ],
)
def test_a_name_is_the_key_as_far_as_that_is_safe(key: str, name: str) -> None:
    assert names_of([key]) == [name]


@pytest.mark.parametrize("key", ["..", ".", "", "---"])
def test_a_key_of_which_nothing_is_left_gets_a_digest(key: str) -> None:
    assert names_of([key]) == [f"item-{key_digest(key).hex()[:8]}.md"]


@pytest.mark.parametrize("keys", [["a/b", "a_b"], ["A", "a"], ["é", "e\u0301"], ["ﬀ", "FF"], ["a?", "a*", "b"]])
def test_names_that_some_file_system_takes_for_the_same_get_a_digest_each(keys: list[str]) -> None:
    names = ItemNames("{key}.md", lambda: enumerate(keys))
    found = [names.name(index, key) for index, key in enumerate(keys)]
    assert len({folded(name) for name in found}) == len(keys)
    assert found[:2] == [f"{safe(key)}-{key_digest(key).hex()[:8]}.md" for key in keys[:2]]
    assert names.shared == 2 and names.examples == keys[:2]


def test_a_name_does_not_depend_on_the_order_of_the_items() -> None:
    keys = ["x", "a/b", "a_b", "A_B"]
    assert sorted(names_of(keys)) == sorted(names_of(keys[::-1]))


def test_with_the_index_in_it_a_name_needs_no_digest() -> None:
    assert names_of(["a/b", "a_b"], "{index}-{key}.md") == ["0-a_b.md", "1-a_b.md"]


def test_a_long_key_is_cut_and_gets_a_digest() -> None:
    keys = ["ü" * 500 + "1", "ü" * 500 + "2"]
    names = names_of(keys)
    assert all(len(name.encode()) <= NAME_MOST_BYTES and name.startswith("üüü") for name in names)
    assert len(set(names)) == 2


def test_a_key_that_looks_like_the_digested_name_of_others_is_told_apart_from_it() -> None:
    taken = f"a_b-{key_digest('a/b').hex()[:8]}"
    names = names_of(["a/b", "a_b", taken])
    assert len(set(names)) == 3 and names[2] == f"{taken}.md"


def test_names_that_cannot_be_told_apart_are_refused() -> None:
    planted = [f"a_b-{key_digest('a/b').hex()[:digits]}" for digits in (8, 16, 32)]
    with pytest.raises(JobError, match=r"write \{index\} into the output"):
        names_of(["a/b", "a_b", *planted])


@given(st.lists(st.text(max_size=300), max_size=20, unique=True))
def test_whatever_the_keys_the_names_are_different_files_in_one_folder(keys: list[str]) -> None:
    keys = [key for key in keys if not any("\ud800" <= c <= "\udfff" for c in key)]
    names = names_of(keys)
    assert len({folded(name) for name in names}) == len(keys)
    for name in names:
        assert len(os.fsencode(name)) <= NAME_MOST_BYTES and not name.startswith((".", "-"))
        assert name.isprintable() and Path("/f", name).parent == Path("/f")
