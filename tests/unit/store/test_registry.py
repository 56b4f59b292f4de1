"""Where this user's state folders are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentrun.store.registry import FOLDER, known_roots, register
from agentrun.views.jobs import list_everywhere
from unit.made import Made


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def test_a_folder_is_registered_once_and_forgotten_when_it_is_gone(tmp_path: Path, environ: dict[str, str]) -> None:
    roots = [tmp_path / "b" / ".agentrun", tmp_path / "a b\n" / ".agentrun"]
    for root in roots:
        root.mkdir(parents=True)
        register(root, environ)
        register(root, environ)
    place = tmp_path / "state" / FOLDER
    assert known_roots(environ) == sorted(roots) and len(list(place.iterdir())) == 2
    roots[0].rmdir()
    assert known_roots(environ) == roots[1:] and len(list(place.iterdir())) == 1


def test_without_xdg_it_is_below_the_home(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": "relative"}
    register(tmp_path, environ)
    assert known_roots(environ) == [tmp_path] and (tmp_path / ".local" / "state" / FOLDER).is_dir()


@pytest.mark.parametrize("home", ["", "/dev/null", "relative"])
def test_a_home_that_cannot_be_written_is_no_error(tmp_path: Path, home: str) -> None:
    environ = {"HOME": home} if home else {}
    register(tmp_path, environ)
    assert known_roots(environ) == []


def test_a_read_only_home_is_no_error(ordinary_folder: Path) -> None:
    home = ordinary_folder / "home"
    home.mkdir(mode=0o500)
    register(ordinary_folder, {"HOME": str(home)})
    assert list(home.iterdir()) == [] and known_roots({"HOME": str(home)}) == []


def test_what_is_no_place_is_passed_over(tmp_path: Path, environ: dict[str, str]) -> None:
    register(tmp_path, environ)
    place = tmp_path / "state" / FOLDER
    wrong = {"relative": b"etc\n", "nul": b"/tmp\0\n", "file": f"{__file__}\n".encode(), "empty": b""}
    for name, text in wrong.items():
        (place / name).write_bytes(text)
    os.mkfifo(place / "pipe")
    os.symlink("/etc/passwd", place / "link")
    assert known_roots(environ) == [tmp_path]


def test_a_folder_that_others_can_write_to_is_shown_and_not_read(tmp_path: Path, environ: dict[str, str]) -> None:
    for name in ("ours", "open"):
        (tmp_path / name).mkdir()
        made = Made(tmp_path / name, ["a"])
        made.commit(made.record("a"))
        register(made.folder.parent, environ)
    (tmp_path / "open" / ".agentrun").chmod(0o777)
    ours, untrusted = sorted(list_everywhere(environ), key=lambda view: view.status)
    assert (ours.job, ours.total) == ("made", 1)
    assert (untrusted.status, untrusted.job, untrusted.total) == ("untrusted", "", 0)
    assert untrusted.folder == tmp_path / "open" / ".agentrun" and "can be written by others" in untrusted.problem
