"""Folders as bytes."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from agentrun.errors import UsageError
from agentrun.executors.cluster import archive
from agentrun.executors.cluster.archive import TooLarge, pack_folder, pack_job, stamp_of, unpack_folder


def tree(folder: Path) -> dict[str, str | None]:
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def make(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def no_item(name: str) -> bool:
    return False


def test_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    source = make(tmp_path / "a", {"dir/x": "1", "out/deep/ü": "2", "out/empty": ""})
    (source / "bare").mkdir()
    unpack_folder(pack_folder(source, limit=1 << 20), tmp_path / "b")
    assert tree(tmp_path / "b") == tree(source)


def test_unpacking_replaces_what_was_there_and_removes_what_is_gone(tmp_path: Path) -> None:
    source = make(tmp_path / "a", {"kept": "new", "was-folder": "file", "is-folder/x": "1"})
    target = make(tmp_path / "b", {"kept": "old", "was-folder/y": "2", "is-folder": "file", "gone/z": "3"})
    unpack_folder(pack_folder(source, limit=1 << 20), target)
    assert tree(target) == tree(source)


def test_a_second_name_of_a_file_is_a_file_of_its_own_and_links_stay_behind(tmp_path: Path) -> None:
    source = make(tmp_path / "a", {"x": "same"})
    os.link(source / "x", source / "y")
    (source / "link").symlink_to("/etc/passwd")
    unpack_folder(pack_folder(source, limit=1 << 20), tmp_path / "b")
    assert tree(tmp_path / "b") == {"x": "same", "y": "same"}


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as found:
        info = tarfile.TarInfo(name)
        info.size = 1
        found.addfile(info, io.BytesIO(b"x"))
    target = tmp_path / "inner" / "b"
    try:
        unpack_folder(data.getvalue(), target)
    except tarfile.FilterError:
        pass
    else:  # an absolute name is taken as one in the folder
        assert name.startswith("/")
    assert not (tmp_path / "inner" / "out").exists() and not (tmp_path / "out").exists()


def test_the_stamp_changes_with_what_is_in_the_folder(tmp_path: Path) -> None:
    source = make(tmp_path / "a", {"x": "1"})
    before = stamp_of(str(source))
    assert stamp_of(str(source)) == before
    (source / "empty").mkdir()
    with_folder = stamp_of(str(source))
    assert with_folder != before
    (source / "x").write_text("22")
    assert stamp_of(str(source)) != with_folder
    assert stamp_of(str(tmp_path / "nowhere")) == frozenset()


def test_more_than_may_travel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="more than 0 MiB"):
        pack_folder(make(tmp_path / "a", {"x": "x" * 1000}), limit=100)


def test_the_job_goes_without_secrets_state_and_items(tmp_path: Path) -> None:
    names = ["agent.py", "lib/tools.py", ".env", ".git/config", ".venv/x", ".agentrun/job/state.json", "docs/1.txt"]
    base = make(tmp_path / "a", dict.fromkeys([*names, "out.jsonl", "lib/__pycache__/x"], "1"))
    data = pack_job(
        base, leave_out=frozenset({".env", "./out.jsonl"}), only=(), is_item=lambda name: name.startswith("docs/")
    )
    unpack_folder(data, tmp_path / "b")
    files = [name for name, text in tree(tmp_path / "b").items() if text is not None]
    assert files == ["agent.py", "lib/tools.py"]


def test_only_what_is_to_be_sent_is(tmp_path: Path) -> None:
    base = make(tmp_path / "a", dict.fromkeys(["agent.py", "lib/deep/tools.py", "lib/other.py", "data/big"], "1"))
    data = pack_job(base, leave_out=frozenset(), only=("agent.py", "lib/deep/"), is_item=no_item)
    unpack_folder(data, tmp_path / "b")
    files = [name for name, text in tree(tmp_path / "b").items() if text is not None]
    assert files == ["agent.py", "lib/deep/tools.py"]


def test_a_job_that_is_too_large_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FOLDER_LIMIT_BYTES", 2048)
    with pytest.raises(UsageError, match="name what they need under") as raised:
        pack_job(make(tmp_path / "a", {"x": "x" * 5000}), leave_out=frozenset(), only=(), is_item=no_item)
    assert str(tmp_path / "a") in str(raised.value)
