"""What is new or changed since a finished run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentrun.agents.agent import load_agent
from agentrun.checkpoint.message import RedoMessage
from agentrun.job.fields import Layer
from agentrun.launch.execute import execute
from agentrun.store.folder.store import FolderStore
from agentrun.views.finding import open_job
from agentrun.views.since import Changes, changes_since

AGENT = """\
import agentrun

async def read(item):
    if item.text == "e":
        raise agentrun.Fail("no")
    return item.text
"""


@pytest.fixture
def opened(tmp_path: Path) -> tuple[FolderStore, Any]:
    """A finished run over five files, one of which failed."""
    (tmp_path / "docs").mkdir()
    for name in "abcde":
        (tmp_path / "docs" / f"{name}.txt").write_text(name)
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "job.toml").write_text(
        'name = "read"\nagent = "agent.py:read"\n[items]\nfiles = "docs/*.txt"\n[run]\nallow_failures = 1\n'
    )
    job = open_job("job.toml", cwd=tmp_path, environ={})
    store = FolderStore(job.root / "read")
    summary = asyncio.run(execute(job.job, load_agent(job.job), store, job_json=job.job_json))
    assert summary.exit_code == 0
    return store, job.job


def test_an_unchanged_job_has_only_its_failure_to_try_again(opened: tuple[FolderStore, Any]) -> None:
    store, job = opened
    assert changes_since(store, job) == Changes(failed=1)


def test_new_changed_and_gone_items_are_counted(opened: tuple[FolderStore, Any], tmp_path: Path) -> None:
    store, job = opened
    docs = tmp_path / "docs"
    (docs / "a.txt").write_text("another text")
    (docs / "b.txt").unlink()
    (docs / "f.txt").write_text("f")
    (docs / "g.txt").write_text("g")
    before = sorted(path for path in store.folder.rglob("*") if path.is_file()) if store.folder else []
    found = changes_since(store, job)
    assert found == Changes(new=2, changed=1, gone=1, failed=1) and found.to_run == 4
    assert found.as_json()["to_run"] == 4
    assert before == sorted(path for path in store.folder.rglob("*") if path.is_file()) if store.folder else []


def test_what_people_posted_is_not_counted_as_new(opened: tuple[FolderStore, Any]) -> None:
    store, job = opened
    (summary,) = store.summaries()
    message = RedoMessage(
        version=1,
        id="0123456789abcdef",
        run_id=summary.run_id,
        key="docs/a.txt",
        gen=0,
        by="ada",
        at="2026-05-04T22:03:11.042Z",
        keep_before=None,
        now=False,
    )
    store.post([message])
    assert changes_since(store, job) == Changes(failed=1)


def test_params_that_differ_run_everything_again(opened: tuple[FolderStore, Any], tmp_path: Path) -> None:
    store, _ = opened
    text = (tmp_path / "job.toml").read_text()
    (tmp_path / "job.toml").write_text('params.tone = "kind"\n' + text)
    job = open_job("job.toml", cwd=tmp_path, environ={}).job
    found = changes_since(store, job)
    assert found is not None and (found.other, found.to_run) == (4, 5)


def test_a_job_that_never_finished_has_nothing_to_compare_with(tmp_path: Path) -> None:
    flags = {"name": "new", "agent": "agent.py:agent", "items": {"lines": "items.txt"}}
    job = open_job(None, flags=Layer("flags", flags), cwd=tmp_path, environ={}).job
    assert changes_since(FolderStore(tmp_path / ".agentrun" / "new"), job) is None
