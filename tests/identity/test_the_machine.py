"""The machine's fault taken for the items': an odd umask, no more descriptors, no more processes, others' folders; and
users' data taken for control codes."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from identity.place import COMMAND, Ended, Place, environment
from needs import require_linux, require_program, require_root
from waiting import PATIENCE_SECONDS


@pytest.fixture
def user(place: Place) -> Iterator[User]:
    """Somebody who is not root, with a uid that no other test has: limits count all processes of a user."""
    require_linux()
    require_root()
    require_program("setpriv", "prlimit")
    # Not below tmp_path, which only root may enter.
    folder = Path(tempfile.mkdtemp(prefix="agentrun-machine-"))
    uid = 60_000 + os.getpid() % 5_000
    os.chown(folder, uid, uid)
    yield User(Place(folder, place.begun), uid)
    shutil.rmtree(folder)


class User:
    def __init__(self, place: Place, uid: int) -> None:
        self.place, self._uid = place, uid

    def __call__(self, *words: str, wrapper: tuple[str, ...] = ()) -> Ended:
        """Run `agentrun …`, by `wrapper` if there is one."""
        become = ["setpriv", f"--reuid={self._uid}", f"--regid={self._uid}", "--clear-groups"]
        # Python itself may be in root's home.
        become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        return subprocess.run(
            [*become, *wrapper, COMMAND, *words],
            cwd=self.place.folder,
            env=environment({"HOME": str(self.place.folder)}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def unfinished(self) -> dict[str, int]:
        """How the items stand."""
        shown = json.loads(self("status", "work", "--json").stdout)
        counts: dict[str, int] = shown["counts"]
        return {state: count for state, count in counts.items() if count}


AGENTS = {
    "process": "def agent(item, ctx):\n    (ctx.out / 'a').write_text('x')\n    return item.text\n",
    "loop": "async def agent(item, ctx):\n    print('seen')\n    (ctx.dir / 'a').write_text('x')\n    return 1\n",
}


@pytest.mark.parametrize(
    ("kind", "umask"), [("process", "0177"), ("loop", "0177"), ("program", "0177"), ("program", "0777")]
)
def test_any_umask_will_do(user: User, kind: str, umask: str) -> None:
    user.place.lines(2)
    if kind == "program":
        user.place.job(command=["sh", "-c", "agentrun log noted && echo {text}"])
    else:
        user.place.write("agent.py", AGENTS[kind])
        user.place.job(agent="agent.py:agent")
    limit = "--concurrency" if kind == "process" else "--limit"
    wrapper = ("sh", "-c", f'umask {umask}; exec "$@"', "sh")
    first = user("start", "work.toml", limit, "1", wrapper=wrapper)
    assert first.returncode == (0 if kind == "process" else 4), first
    ended = user("start", "work.toml", wrapper=wrapper)
    assert ended.returncode == 0 and len(user.place.results()) == 2, ended


def test_without_descriptors_an_item_of_an_agent_on_the_loop_goes_back(user: User) -> None:
    user.place.lines(3)
    user.place.write(
        "agent.py",
        "import os\n"
        "kept = []\n"
        "async def agent(item):\n"
        "    while item.index == 1:\n"
        "        kept.append(os.open('items.txt', os.O_RDONLY))\n"
        "        if len(kept) > 200:\n"
        "            return 'enough'\n"
        "    return item.text\n",
    )
    user.place.job(agent="agent.py:agent", run="retries = 0")
    ended = user("start", "work.toml", wrapper=("prlimit", "--nofile=64:64"))
    assert ended.returncode == 75 and "too many open files" in ended.stderr and "ulimit -n" in ended.stderr, ended
    # Also what was done before is on disk, and nothing counts as a crash.
    assert user.unfinished() == {"done": 1, "pending": 2}
    assert json.loads((user.place.folder / ".agentrun/work/state.json").read_bytes())["running"] == []
    assert user("resume", "work").returncode == 0
    assert user.place.outputs() == {"item 0": "item 0", "item 1": "enough", "item 2": "item 2"}


def test_in_a_worker_the_descriptors_are_the_items_own(user: User) -> None:
    user.place.lines(3)
    user.place.write(
        "agent.py",
        "import os\n"
        "def agent(item):\n"
        "    kept = []\n"
        "    while item.index == 1:\n"
        "        kept.append(os.open('items.txt', os.O_RDONLY))\n"
        "    return item.text\n",
    )
    user.place.job(agent="agent.py:agent", run="retries = 0")
    assert user("start", "work.toml", wrapper=("prlimit", "--nofile=64:64")).returncode == 1
    assert user.unfinished() == {"done": 2, "failed": 1}


@pytest.mark.parametrize("kind", ["process", "thread", "program", "serve"])
def test_without_processes_or_threads_nothing_fails_and_the_run_is_resumed(user: User, kind: str) -> None:
    user.place.lines(2)
    user.place.write("agent.py", "def agent(item):\n    return item.text\n")
    user.place.write("serve.py", SERVE)
    agent: dict[str, Any] = {"agent": "agent.py:agent"}
    if kind == "thread":
        agent["isolation"] = "thread"
    elif kind == "program":
        agent = {"command": ["echo", "{text}"]}
    elif kind == "serve":
        agent = {"command": ["python3", "serve.py"], "serve": True}
    user.place.job(**agent, run="retries = 0")
    # Enough for the runner and its guardian.
    ended = user("start", "work.toml", wrapper=("prlimit", "--nproc=2:2"))
    assert ended.returncode == 75 and "no more processes or threads" in ended.stderr, ended
    assert user.unfinished() == {"pending": 2}
    assert user("resume", "work").returncode == 0
    assert user.place.outputs() == {"item 0": "item 0", "item 1": "item 1"}


SERVE = """
import json, sys
for line in sys.stdin:
    item = json.loads(line)
    print(json.dumps({"id": item.get("id"), "type": "done", "output": item["text"]}), flush=True)
"""


def test_where_fewer_programs_can_run_than_asked_for_the_others_wait(user: User) -> None:
    user.place.lines(6)
    user.place.job(command=["sleep", "0.2"], run="concurrency = 4\nretries = 0")
    ended = user("start", "work.toml", wrapper=("prlimit", "--nproc=7:7"))
    assert ended.returncode == 0 and len(user.place.results()) == 6, ended


# ---- folders for the items' files


@pytest.mark.parametrize("fault", ["owned by another", "writable by all", "trusted"])
def test_a_folder_for_files_that_another_user_made_is_refused_at_the_start(place: Place, fault: str) -> None:
    require_root()
    place.lines(1)
    place.write("agent.py", "def agent(item, ctx):\n    (ctx.out / 'a').write_text('x')\n    open('ran', 'w')\n")
    place.job(agent="agent.py:agent")
    home = place.folder / "work.results.files"
    home.mkdir()
    home.chmod(0o777 if fault == "writable by all" else 0o755)
    if fault != "writable by all":
        os.chown(home, 65534, 65534)
    ended = place("start", "work.toml", AGENTRUN_TRUST=str(home) if fault == "trusted" else "")
    if fault == "trusted":
        assert ended.returncode == 0 and len(list(home.iterdir())) == 1, ended
        return
    assert ended.returncode == 2 and f"{home}: " in ended.stderr and not (place.folder / "ran").exists(), ended
    assert f"AGENTRUN_TRUST={home}" in ended.stderr, ended


# ---- what a terminal is shown


def test_try_shows_a_terminal_no_control_codes_of_the_output(place: Place) -> None:
    place.write("items.jsonl", json.dumps({"id": "a\u202eb"}) + "\n")
    place.write("agent.py", "def agent(item):\n    return 'c1 \\x9b31m, rtl \\u202e, esc \\x1b[31m'\n")
    place.job(agent="agent.py:agent", items='jsonl = "items.jsonl"\nkey = "id"')
    shown = on_terminal(place, "try", "work.toml")
    assert not set(shown) & set("\x9b\u202e\x1b"), shown
    (line,) = (json.loads(line) for line in shown.splitlines() if line.startswith("{"))
    assert line["output"] == "c1 \x9b31m, rtl \u202e, esc \x1b[31m"


def on_terminal(place: Place, *words: str) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, *words],
        cwd=place.folder,
        env=environment({"NO_COLOR": "1"}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # nobody has it open any more
    os.close(ours)
    assert process.wait(PATIENCE_SECONDS) == 0, shown
    return shown.decode()
