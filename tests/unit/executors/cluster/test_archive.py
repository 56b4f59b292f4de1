"""Folders as bytes."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import UsageError
from agentrun.executors.cluster import archive
from agentrun.executors.cluster.archive import (
    ANY_DATE,
    ANY_RUN,
    TooLarge,
    pack_folder,
    pack_job,
    stamp_of,
    unpack_folder,
)


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


def test_a_second_name_of_a_file_is_a_file_of_its_own_and_links_travel_as_they_are(tmp_path: Path) -> None:
    source = make(tmp_path / "a", {"x": "same", "deep/z": "2"})
    os.link(source / "x", source / "y")
    for name, to in (("current", "x"), ("deep/up", "../x"), ("nowhere", "/not/there"), ("folder", "deep")):
        (source / name).symlink_to(to)
    target = make(tmp_path / "b", {"current": "a file", "folder/in": "the way"})
    unpack_folder(pack_folder(source, limit=1 << 20), target)
    assert (target / "y").read_text() == (target / "folder" / "up").read_text() == "same"
    links = {str(path.relative_to(target)): os.readlink(path) for path in target.rglob("*") if path.is_symlink()}
    assert links == {"current": "x", "deep/up": "../x", "nowhere": "/not/there", "folder": "deep"}
    (source / "current").unlink()
    (source / "folder").unlink()
    unpack_folder(pack_folder(source, limit=1 << 20), target)
    assert sorted(path.name for path in target.iterdir()) == ["deep", "nowhere", "x", "y"]


def test_sockets_and_pipes_stay_where_they_are(tmp_path: Path) -> None:
    source = make(tmp_path / "a", {"x": "1"})
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(source / "socket"))
        unpack_folder(pack_folder(source, limit=1 << 20), tmp_path / "b")
    assert tree(tmp_path / "b") == {"x": "1"}


def test_names_as_long_as_a_name_may_be_travel(tmp_path: Path) -> None:
    name = "\u3042" * 85
    source = make(tmp_path / "a", {name: "1"})
    unpack_folder(pack_folder(source, limit=1 << 20), tmp_path / "b")
    assert tree(tmp_path / "b") == {name: "1"}


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", ".."])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "inner" / "b"
    with pytest.raises(ValueError, match="may not be in it"):
        unpack_folder(archive_of((name, "x")), target)
    assert not (tmp_path / "inner" / "out").exists() and not (tmp_path / "out").exists()


@pytest.mark.parametrize("is_there_already", [True, False])
def test_nothing_is_written_through_a_link(tmp_path: Path, is_there_already: bool) -> None:
    outside, target = tmp_path / "outside", tmp_path / "b"
    for folder in (outside, target):
        folder.mkdir()
    entries: list[tuple[str, str | Path]] = [("link/x", "1")]
    if is_there_already:
        (target / "link").symlink_to(outside)
    else:
        entries.insert(0, ("link", outside))
    unpack_folder(archive_of(*entries), target)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as found:
        info = tarfile.TarInfo("x")
        info.type, info.linkname = kind, "y"
        found.addfile(info)
    with pytest.raises(ValueError, match="may not be in it"):
        unpack_folder(data.getvalue(), tmp_path / "b")


@pytest.mark.parametrize("data", [b"garbage", b"\0" * 100])
def test_what_is_no_archive_is_a_value_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match="it is no archive"):
        unpack_folder(data, tmp_path / "b")


def archive_of(*entries: tuple[str, str | Path]) -> bytes:
    """Files with their texts; links, where there is a path."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as found:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if isinstance(content, Path):
                info.type, info.linkname = tarfile.SYMTYPE, str(content)
                found.addfile(info)
            else:
                info.size = len(content)
                found.addfile(info, io.BytesIO(content.encode()))
    return data.getvalue()


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


def pack(base: Path, *, only: tuple[str, ...] = (), output: str = "out.jsonl", **changes: Any) -> bytes:
    given = {"outputs": (base / output,), "secret": None, "is_item": no_item, **changes}
    return pack_job(base, only=only, **given)


def files_of(data: bytes, folder: Path) -> list[str]:
    unpack_folder(data, folder)
    return [name for name, text in tree(folder).items() if text is not None]


def test_the_job_goes_without_state_and_items(tmp_path: Path) -> None:
    names = ["agent.py", "lib/tools.py", ".git/config", ".venv/x", ".agentrun/job/state.json", "docs/1.txt"]
    base = make(tmp_path / "a", dict.fromkeys([*names, "lib/__pycache__/x"], "1"))
    (base / "link").symlink_to("agent.py")
    data = pack(base, is_item=lambda name: name.startswith("docs/"))
    assert files_of(data, tmp_path / "b") == ["agent.py", "lib/tools.py"]


@pytest.mark.parametrize("way", ["relative", "absolute", "by a link", "by a second name"])
def test_the_file_of_secrets_stays_here_by_whatever_name_it_is_found(tmp_path: Path, way: str) -> None:
    base = make(tmp_path / "a", {"agent.py": "1", "deep/secret.env": "TOKEN=1"})
    secret = base / "deep" / "secret.env"
    if way == "by a link":
        (base / ".env").symlink_to("deep/secret.env")
        secret = base / ".env"
    elif way == "by a second name":
        os.link(secret, base / ".env")
    given = base / "deep/../deep/secret.env" if way == "relative" else secret
    assert files_of(pack(base, secret=given), tmp_path / "b") == ["agent.py"]


def test_what_the_job_writes_stays_here_whatever_its_name_is_made_of(tmp_path: Path) -> None:
    written = [
        "2026-11-18-r7f.jsonl",
        "2026-11-18-r7f.partial.jsonl",
        "2026-11-18-r7f.files/k/x",
        ".2026-11-18-r7f.claim",
    ]
    needed = ["agent.py", "out/words.jsonl", "out/x2026-11-18-r7f.jsonl"]
    base = make(tmp_path / "a", dict.fromkeys([*needed, *(f"out/{name}" for name in written)], "1"))
    data = pack(base, output=f"out/{ANY_DATE}-{ANY_RUN}.jsonl")
    assert files_of(data, tmp_path / "b") == needed


def test_only_what_is_to_be_sent_is(tmp_path: Path) -> None:
    base = make(tmp_path / "a", dict.fromkeys(["agent.py", "lib/deep/tools.py", "lib/other.py", "data/big"], "1"))
    data = pack(base, only=("agent.py", "lib/deep/"))
    assert files_of(data, tmp_path / "b") == ["agent.py", "lib/deep/tools.py"]


def test_a_job_that_is_too_large_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FOLDER_LIMIT_BYTES", 2048)
    with pytest.raises(UsageError, match="list what they need under") as raised:
        pack(make(tmp_path / "a", {"x": "x" * 5000}))
    assert str(tmp_path / "a") in str(raised.value)
