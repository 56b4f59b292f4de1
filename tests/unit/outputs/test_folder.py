"""A folder with one file an item: what is written, and what is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import JobError
from agentrun.outputs.claim import OutputTakenError
from agentrun.outputs.folder import FolderOutput, file_text
from agentrun.outputs.results import Result, Results
from agentrun.outputs.written import WrittenList
from agentrun.store.memory import MemoryStore
from agentrun.system.disk import Disk
from unit.records import make_record


class Place:
    def __init__(self, base: Path) -> None:
        self.folder = base / "out"
        self.store = MemoryStore()

    def output(self, *, overwrite: bool = False, names: str = "{key}.md") -> FolderOutput:
        return FolderOutput(self.folder, names, WrittenList(self.store, self.folder), overwrite=overwrite)

    def write(self, outputs: dict[str, Any], **values: Any) -> None:
        self.output(**values).write(results_of(outputs), Disk())

    def found(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.folder.iterdir())}

    def listed(self) -> list[str]:
        return [entry.name for entry in WrittenList(self.store, self.folder)]


def results_of(outputs: dict[str, Any]) -> Results:
    def results() -> Iterator[Result]:
        for index, (key, output) in enumerate(outputs.items()):
            yield Result(index, make_record(key, output=output))

    return results


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("name", "output", "text"),
    [
        ("a.md", "# Title\n\ntext\n", b"# Title\n\ntext\n"),
        ("a.md", "é", "é\n".encode()),
        ("a.md", "", b""),
        ("a.md", {"z": 1, "a": [2]}, b'{"z":1,"a":[2]}\n'),
        ("a.md", None, b"null\n"),
        ("a.json", "text", b'"text"\n'),
        ("a.JSON", {"v": 1}, b'{"v":1}\n'),
    ],
)
def test_a_file_holds_text_as_it_is_and_other_values_as_json(name: str, output: Any, text: bytes) -> None:
    assert file_text(name, make_record("k", output=output)) == text


def test_each_item_has_a_file_and_those_of_items_that_are_gone_or_renamed_are_removed(place: Place) -> None:
    place.write({"a": "1", "b/c": "2", "d": "3"})
    assert place.found() == {"a.md": "1\n", "b_c.md": "2\n", "d.md": "3\n"}
    place.write({"a": "new", "b/c": "2"})
    assert place.found() == {"a.md": "new\n", "b_c.md": "2\n"}
    place.write({"a": "new"}, names="{key}.txt")
    assert place.found() == {"a.txt": "new\n"} and place.listed() == ["a.txt"]


def test_a_file_that_already_has_the_bytes_is_not_written_again(place: Place) -> None:
    place.write({"a": "1", "b": "2"})
    before = (place.folder / "a.md").stat()
    place.write({"a": "1", "b": "new"})
    after = (place.folder / "a.md").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_others_put_there_is_neither_replaced_nor_removed(place: Place) -> None:
    place.folder.mkdir()
    (place.folder / "a.md").write_text("mine")
    (place.folder / "notes.md").write_text("mine, too")
    with pytest.raises(OutputTakenError, match=r"a\.md: already exists, and no run of this job wrote it"):
        place.write({"a": "1", "b": "2"})
    assert place.found() == {"a.md": "mine", "notes.md": "mine, too"}
    place.write({"a": "1"}, overwrite=True)
    place.write({}, overwrite=True)
    assert place.found() == {"notes.md": "mine, too"}


def test_a_file_that_was_edited_is_no_longer_ours(place: Place) -> None:
    place.write({"a": "1", "b": "2"})
    (place.folder / "b.md").write_text("edited")
    with pytest.raises(OutputTakenError):
        place.write({"a": "1", "b": "new"})
    place.write({"a": "1"})
    assert place.found() == {"a.md": "1\n", "b.md": "edited"}


def test_links_and_folders_in_the_way_are_never_followed_or_replaced(place: Place, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("1\n")
    place.folder.mkdir()
    (place.folder / "a.md").symlink_to(precious)
    (place.folder / "d.md").mkdir()
    with pytest.raises(OutputTakenError, match="not a file"):
        place.write({"a": "1"})
    place.write({"a": "1"}, overwrite=True)
    assert precious.read_text() == "1\n" and not (place.folder / "a.md").is_symlink()
    with pytest.raises(OutputTakenError, match="not a file"):
        place.write({"d": "1"}, overwrite=True)


def test_a_list_that_names_something_outside_removes_nothing_there(place: Place, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("1\n")
    place.write({"a": "1"})
    (name,) = [entry.sha256 for entry in WrittenList(place.store, place.folder)]
    planted = b'{"name":"../precious","sha256":"%b"}\n' % name.encode()
    place.store.keep(WrittenList(place.store, place.folder).name, [planted, b"not JSON\n"])
    place.write({}, overwrite=True)
    assert (tmp_path / "precious").exists()


def test_the_results_so_far_are_put_in_place_and_nothing_is_removed(place: Place) -> None:
    place.write({"a": "1", "b": "2"})
    place.output().write_partial(results_of({"a": "new", "c": "3"}), Disk())
    assert place.found() == {"a.md": "new\n", "b.md": "2\n", "c.md": "3\n"}
    place.write({"a": "newer", "c": "3"})
    assert place.found() == {"a.md": "newer\n", "c.md": "3\n"}


def test_files_that_are_missing_are_written_again_and_edited_ones_stay(place: Place) -> None:
    place.write({"a": "1", "b": "2"})
    output = place.output()
    assert not output.is_missing()
    (place.folder / "a.md").unlink()
    (place.folder / "b.md").write_text("edited")
    assert output.is_missing()
    output.restore(results_of({"a": "1", "b": "2"}), Disk())
    assert place.found() == {"a.md": "1\n", "b.md": "edited"}


def test_only_temporaries_of_our_own_files_are_swept(place: Place) -> None:
    place.write({"a": "1"})
    for name in (".a.md.0123456789ab.tmp", ".b.md.0123456789ab.tmp", ".a.md.tmp"):
        (place.folder / name).touch()
    place.output().sweep(Disk())
    assert sorted(os.listdir(place.folder)) == [".a.md.tmp", ".b.md.0123456789ab.tmp", "a.md"]


def test_what_is_in_the_way_is_told_before_anything_runs_and_collisions_are_noted(place: Place) -> None:
    place.output().check(ended=[])
    keys = [(0, "a/b"), (1, "a_b"), (2, "c")]
    (note,) = place.output().check_items(lambda: keys)
    assert "share a file name" in note and "2 (a/b, a_b)" in note
    place.folder.mkdir()
    (place.folder / "c.md").write_text("mine")
    with pytest.raises(JobError, match=r"c\.md: already exists.* or add --overwrite"):
        place.output().check_items(lambda: keys)
    place.output(overwrite=True).check_items(lambda: keys)


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(JobError, match="is not a folder"):
        Place(tmp_path).output().check(ended=[])
