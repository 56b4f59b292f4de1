"""The table of repeated calls goes into its place in a page, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.frameworks import BEGIN, END, ROWS, cell, write
from crash.scenarios.frameworks import FILES, JOBS, WAYS


def test_only_what_is_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{BEGIN}\nold\ntable\n{END}\n\nEnd.\n")
    for table in ("| a |\n", "| b |\n"):
        write(page, table)
        assert page.read_text() == f"# Page\n\n{BEGIN}\n{table}{END}\n\nEnd.\n"


def test_a_page_without_marks_is_left_alone_and_a_new_file_has_them(tmp_path: Path) -> None:
    page, new = tmp_path / "page.md", tmp_path / "new.md"
    page.write_text("# Page\n")
    with pytest.raises(SystemExit, match="has no place for the table; add the lines"):
        write(page, "| a |\n")
    assert page.read_text() == "# Page\n"
    write(new, "| a |\n")
    assert new.read_text() == f"{BEGIN}\n| a |\n{END}\n"


def test_a_cell_says_how_many_or_what_went_wrong() -> None:
    assert cell({"repeated": 7, "faults": []}, "") == "7"
    assert cell({"repeated": 7, "faults": []}, "its saver") == "7 (its saver)"
    assert cell({"repeated": 0, "faults": ["after 2 kills: Fault: no"]}, "") == "**failed**: after 2 kills: Fault: no"
    assert cell(None, "has none") == "- (has none)"


def test_each_framework_has_a_row_a_job_and_a_name_for_each_way() -> None:
    assert list(ROWS) == list(FILES) == list(WAYS)
    for framework, ways in WAYS.items():
        source = (JOBS / framework / FILES[framework]).read_text()
        assert {"plain", "ours"} <= set(ways) and all(name in source for name in ways.values())
