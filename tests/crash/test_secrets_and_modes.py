"""Secrets are written nowhere; what we write is ours alone; what others could have planted is refused."""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from crash.command_line import AGENTS, COMMAND, Place, place
from needs import require_root
from waiting import PATIENCE_SECONDS, eventually

# It uses its secrets, prints, and fails now and then; it does not say them.
AGENT = """
import asyncio, os, time

def work(item):
    assert os.environ["CANARY_ENV"].startswith("canary-") and os.environ["CANARY_FILE"].startswith("canary-")
    print("working on", item.text)
    while item.text == "3" and not os.path.exists("go"):
        time.sleep(0.01)
    if int(item.text) % 2:
        raise ValueError("it is odd: " + item.text)
    return {"square": int(item.text) ** 2}

def sync_agent(item):
    return work(item)

async def async_agent(item):
    return work(item)
"""
SCRIPT = """#!/bin/sh
[ -n "$CANARY_ENV" ] && [ -n "$CANARY_FILE" ] || exit 65
echo "working on $1" >&2
while [ "$1" = 3 ] && [ ! -e go ]; do sleep 0.01; done
[ $(($1 % 2)) = 0 ] || exit 65
echo "{\\"square\\": $(($1 * $1))}"
"""


def lay_out(job: Place) -> None:
    job.head = 'env_file = "secrets.env"\nneeds_env = ["CANARY_ENV", "CANARY_FILE"]'
    job.lay_out()
    (job.base / "agent.py").write_text(AGENT)
    (job.base / "agent.sh").write_text(SCRIPT)


def files_below(base: Path) -> list[Path]:
    return [path for path in base.rglob("*") if path.is_file() and not path.is_symlink()]


@pytest.mark.parametrize("kind", AGENTS)
def test_a_secret_is_written_nowhere(kind: str) -> None:
    in_environment, in_file = f"canary-{secrets.token_hex(8)}", f"canary-{secrets.token_hex(8)}"
    with place(kind=kind, total=6, concurrency=2, run={"retries": 0}) as job:
        lay_out(job)
        (job.base / "secrets.env").write_text(f"CANARY_FILE={in_file}\n")
        bugs_before = set(Path(tempfile.gettempdir()).glob("agentrun-bug-*"))
        environ = {"CANARY_ENV": in_environment}
        first = job.start(**environ)
        eventually((job.folder / "state.json").exists, "it works")
        first.kill()
        first.wait()
        (job.base / "go").touch()
        assert job.finish(**environ) == 1, job.said
        for arguments in (["status"], ["status", "--json"], ["items"], ["failures"], ["log"], ["show", "--index", "1"]):
            name, *rest = arguments
            with open(job.base / "said.log", "ab") as said:
                subprocess.run(
                    [COMMAND, name, "job", *rest],
                    cwd=job.base,
                    env=job.environment(**environ),
                    stdout=said,
                    stderr=said,
                    check=False,
                )
        assert job.finish("--plan", **environ) == 0, job.said
        # Nor where something is wrong with the secrets themselves.
        (job.base / "secrets.env").write_text(f"CANARY_FILE='{in_file}\n")
        assert job.finish(**environ) == 2
        (job.base / "secrets.env").write_text(f"CANARY_FILE {in_file}\n")
        assert job.finish(**environ) == 2
        assert (job.folder / "state.json").exists() and any((job.folder / "logs").iterdir())
        new_bugs = set(Path(tempfile.gettempdir()).glob("agentrun-bug-*")) - bugs_before
        for path in [*files_below(job.base), *new_bugs]:
            if path.name != "secrets.env":
                text = path.read_bytes()
                assert in_environment.encode() not in text, f"the environment's secret is in {path}"
                assert in_file.encode() not in text, f"the file's secret is in {path}"
        job.check_words()


@pytest.mark.parametrize("umask", [0o000, 0o022])
@pytest.mark.parametrize("kind", AGENTS)
def test_folders_are_0700_and_files_0600_at_every_moment(kind: str, umask: int) -> None:
    with place(kind=kind, total=6, concurrency=2, run={"retries": 0}) as job:
        lay_out(job)
        (job.base / "secrets.env").write_text("CANARY_FILE=canary-\n")
        before = os.umask(umask)
        try:
            first = job.start(CANARY_ENV="canary-")
        finally:
            os.umask(before)
        eventually(lambda: list((job.folder / "logs").glob(".slot-*")) and (job.folder / "log.jsonl").exists(), "logs")
        check_modes(job.folder.parent)
        (job.base / "go").touch()
        assert first.wait(timeout=PATIENCE_SECONDS) == 1, job.said
        check_modes(job.folder.parent)
        for name in ("state.json", "job.json", "log.jsonl", "lock", "logs"):
            assert (job.folder / name).exists(), name


def check_modes(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        try:
            found = path.lstat()
        except FileNotFoundError:  # replaced meanwhile
            continue
        assert stat.S_IMODE(found.st_mode) == (0o700 if path.is_dir() else 0o600), f"{path}: {found.st_mode:o}"


PLANTED = [
    ".agentrun",
    ".agentrun/.gitignore",
    ".agentrun/job",
    ".agentrun/job/state.json",
    ".agentrun/job/lock",
    ".agentrun/job/journal-1.jsonl",
    ".agentrun/job/log.jsonl",
    ".agentrun/job/job.json",
    ".agentrun/job/logs",
    ".agentrun/job/logs/.slot-0.log",
    ".agentrun/job/logs/1-LOG",
    ".agentrun/job/runs",
]


@pytest.mark.parametrize("to", ["a file", "a folder", "nothing"])
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_symlink_is_never_followed(name: str, to: str, cheap_job: Place) -> None:
    from agentrun.outputs.logs import log_name

    job = cheap_job
    target = job.base / "victim"
    if to == "a file":
        target.write_text("precious")
        target.chmod(0o600)
    elif to == "a folder":
        target.mkdir(mode=0o700)
    link = job.base / name.replace("1-LOG", log_name("1"))
    for folder in reversed(list(link.relative_to(job.base).parents)[:-1]):
        (job.base / folder).mkdir(mode=0o700, exist_ok=True)
    link.symlink_to(target)
    code = job.finish()
    # 65: a job.json that somebody else wrote is read no further.
    assert code in (0, 2, 74) or (code == 65 and name.endswith("job.json")), job.said
    job.check_words()
    if to == "a file":
        assert target.read_text() == "precious", f"{name} was followed"
    elif to == "a folder":
        assert not list(target.iterdir()), f"{name} was followed"
    else:
        assert not target.exists(), f"{name} was followed"
    if code:
        assert link.is_symlink() and str(link.name) in job.said, job.said
    else:
        # Replaced by a file of our own, or left alone where the run does not need it.
        assert job.results_path.exists()


@pytest.fixture
def cheap_job(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """One item that prints and is done, one that prints and fails."""
    agent = (
        "from agentrun import Fail\n"
        "async def async_agent(item):\n"
        "    print('hello')\n"
        "    if item.text == '1':\n"
        "        raise Fail('no')\n"
        "    return 'x' * 20_000\n"
    )
    with place(total=3, agent=agent, run={"allow_failures": 1, "retries": 0}) as job:
        yield job


@pytest.mark.parametrize("name", [".agentrun", ".agentrun/job", ".agentrun/job/runs", ".agentrun/job/logs"])
@pytest.mark.parametrize("fault", ["owned by another", "writable by the group", "writable by all"])
def test_a_folder_that_others_could_tamper_with_is_refused(name: str, fault: str, cheap_job: Place) -> None:
    if fault == "owned by another":
        require_root()
    folder = cheap_job.base / name
    folder.mkdir(mode=0o700, parents=True)
    for parent in (cheap_job.base / ".agentrun", cheap_job.base / ".agentrun/job"):
        if parent.exists():
            parent.chmod(0o700)
    if fault == "owned by another":
        os.chown(folder, 65534, 65534)
    else:
        folder.chmod(0o770 if "group" in fault else 0o777)
    assert cheap_job.finish() == 2, cheap_job.said
    assert str(folder) in cheap_job.said, cheap_job.said
    assert ("belongs to another user" if "owned" in fault else "can be written by others") in cheap_job.said
    cheap_job.check_words()
