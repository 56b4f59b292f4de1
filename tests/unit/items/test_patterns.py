"""Several patterns of files, and patterns that leave files out."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from agentrun.errors import ItemsError
from agentrun.items.open import Source, open_source
from agentrun.job.job import ItemsSpec

NAMES = ("a.txt", "b.md", "a/x.txt", "a/y.md", "a/z/x.txt", "c/x.txt", ".h/x.txt", "a/.x.txt")
PATTERNS = (
    "*.txt",
    "**/*.txt",
    "a/*",
    "*/x.txt",
    ".h/*.txt",
    "a/x.txt",
    "a/**",
    "link/*.txt",
    "../base/c/*.txt",
    ".*/*",
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "link").symlink_to(folder / "a")
    return folder


def files(base: Path, *patterns: str, exclude: tuple[str, ...] = ()) -> Source:
    spec = ItemsSpec(kind="files", pattern=patterns[0], more=patterns[1:], exclude=exclude)
    return open_source(spec, base)


def keys(items: Source) -> list[str]:
    return [items.identify(raw).key for raw in items]


def test_items_come_in_the_order_of_the_patterns_then_by_name(base: Path) -> None:
    assert keys(files(base, "c/*", "*.md", "a/*.txt")) == ["c/x.txt", "b.md", "a/x.txt"]


@pytest.mark.parametrize(("first", "second"), list(permutations(PATTERNS, 2)))
def test_a_file_that_two_patterns_match_is_one_item_at_the_first(base: Path, first: str, second: str) -> None:
    one, other = keys(files(base, first)), keys(files(base, second))
    assert keys(files(base, first, second)) == [*one, *(key for key in other if key not in one)]


def test_an_item_of_any_pattern_has_its_own_text_and_place(base: Path) -> None:
    source = files(base, "*.md", "a/*.txt")
    made = [source.item(raw, index, source.identify(raw).key) for index, raw in enumerate(source)]
    assert [item.text for item in made] == [item.key for item in made] == ["b.md", "a/x.txt"]
    assert source.where(1) == "a/x.txt"


def test_without_any_file_each_pattern_is_named(base: Path) -> None:
    assert "no file matches *.pdf" in files(base, "*.pdf", "*.doc").describe()
    assert "no file matches *.doc" in files(base, "*.pdf", "*.doc").describe()


def test_without_any_file_that_exclude_leaves_it_says_so(base: Path) -> None:
    found = files(base, "a/*.md", exclude=("*.md",))
    assert list(found) == []
    assert found.describe() == f"no file but those that exclude names matches a/*.md in {base}"


def test_a_file_that_is_named_must_exist_whatever_the_other_patterns_match(base: Path) -> None:
    with pytest.raises(ItemsError, match=r"gone\.txt: there is no such file"):
        keys(files(base, "*.txt", "gone.txt"))


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        (("x.txt",), ["a.txt", "a/y.md", "b.md"]),
        (("*/x.*",), ["a.txt", "a/y.md", "a/z/x.txt", "b.md"]),
        (("z",), ["a.txt", "a/x.txt", "a/y.md", "b.md", "c/x.txt"]),
        (("a/z/",), ["a.txt", "a/x.txt", "a/y.md", "b.md", "c/x.txt"]),
        (("a/**",), ["a.txt", "b.md", "c/x.txt"]),
        (("**/x.txt",), ["a.txt", "a/y.md", "b.md"]),
        (("./a/*.txt", "c/*"), ["a.txt", "a/y.md", "a/z/x.txt", "b.md"]),
        (("[ab].*",), ["a/x.txt", "a/y.md", "a/z/x.txt", "c/x.txt"]),
        (("nothing",), ["a.txt", "a/x.txt", "a/y.md", "a/z/x.txt", "b.md", "c/x.txt"]),
    ],
)
def test_what_a_pattern_excludes_is_no_item(base: Path, exclude: tuple[str, ...], left: list[str]) -> None:
    assert keys(files(base, "**/*.*", exclude=exclude)) == left
    absolute = tuple(f"{base}/{one}" if "/" in one.rstrip("/") else one for one in exclude)
    assert keys(files(base, "**/*.*", exclude=absolute)) == left


@pytest.mark.parametrize("pattern", ["a/*.txt", "a/x.txt"])
def test_nothing_is_an_item_in_a_folder_that_is_excluded_also_if_a_pattern_names_it(base: Path, pattern: str) -> None:
    assert keys(files(base, pattern, "*.md", exclude=("a",))) == ["b.md"]


def test_hidden_files_can_be_excluded_by_a_star(base: Path) -> None:
    assert keys(files(base, ".h/*", "*.md", exclude=(".h/*",))) == ["b.md"]
