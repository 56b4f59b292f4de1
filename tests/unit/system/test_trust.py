"""Whose folder is it?"""

from __future__ import annotations

from pathlib import Path

import pytest

import agentrun
from agentrun.errors import JobError, TrustError, UsageError
from agentrun.job.job import ItemsSpec, Job
from agentrun.job.opening import agent_environment
from agentrun.system.trust import check_folder, check_folders


def open_to_all(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)
    return path


def test_the_environment_names_what_is_trusted_and_everything_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_to_all(tmp_path / "a b" / ".agentrun")
    monkeypatch.setenv("AGENTRUN_TRUST", "/elsewhere")
    with pytest.raises(TrustError) as caught:
        check_folder(folder)
    # What is trusted already stays so; and a shell can read it.
    assert caught.value.setting == f"AGENTRUN_TRUST='/elsewhere:{folder}'"
    for trusted in (str(folder), str(folder.parent), f"/elsewhere:{folder}", f"{folder}/"):
        monkeypatch.setenv("AGENTRUN_TRUST", trusted)
        check_folder(folder)
    (tmp_path / "link").symlink_to(folder.parent)
    check_folder(tmp_path / "link" / ".agentrun")


def test_a_link_is_not_followed_even_if_it_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(open_to_all(tmp_path / "folder"))
    monkeypatch.setenv("AGENTRUN_TRUST", str(tmp_path))
    with pytest.raises(UsageError, match="links are not followed"):
        check_folder(tmp_path / "link")


def test_what_does_not_exist_is_nobodys(tmp_path: Path) -> None:
    check_folders(tmp_path / "missing", tmp_path / "missing" / "job")


def test_agentrun_run_does_not_read_it(tmp_path: Path) -> None:
    open_to_all(tmp_path / ".agentrun")
    with pytest.raises(TrustError, match="can be written by others"):
        agentrun.run(lambda item: item, items=["a"], name="job", state_dir=str(tmp_path / ".agentrun"))


def test_a_file_cannot_say_what_is_trusted(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("AGENTRUN_TRUST=/\n")
    items = ItemsSpec(kind="python", pattern="")
    job = Job(name="job", base=tmp_path, items=items, params={}, output="o", env_file=".env")
    with pytest.raises(JobError, match="only the environment itself can"):
        agent_environment(job, {})
