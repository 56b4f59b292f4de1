"""Jobs whose launches are forked off a warm process: the executors are the real ones, and a launch begins at once.

Only a process without threads may fork, so what uses this is run by `harness.run_apart`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrun.agents.agent import load_agent
from agentrun.checkpoint.record import Record, decode_record
from agentrun.checkpoint.summary import Summary
from agentrun.executors.choice import open_executor
from agentrun.job.job import ItemsSpec, Job
from agentrun.job.options import Options
from agentrun.launch.execute import execute
from agentrun.launch.launch import COMPACT_OVER_BYTES, Launch
from agentrun.store.folder.store import FolderStore
from agentrun.system.disk import Disk
from crash.command_line import COMMAND
from crash.harness import Forked
from crash.workload import NAME
from waiting import PATIENCE_SECONDS

REDO_LIMIT_BYTES = 700
"""A few records, so that most of them are in the journal."""
NOTE = """
import asyncio, os, time
from pathlib import Path

def note(*words):
    fd = os.open(Path(__file__).parent / "notes.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
    os.close(fd)
"""
"""How an agent leaves word that outlives it: the beginning of an agent.py. A shell appends to `notes.log`."""


class Place:
    """A folder with a job, and the launches of it. `agent` is the text of an agent.py with a function `agent`, or of
    a program if that is the job's `command`."""

    def __init__(self, base: Path, keys: Sequence[str], agent: str, **values: Any) -> None:
        self.base = base
        base.mkdir(parents=True)
        (base / "items.txt").write_text("".join(f"{key}\n" for key in keys))
        file = base / ("agent.sh" if "command" in values else "agent.py")
        file.write_text(agent)
        file.chmod(0o700)
        # Random kills hit an item more often than an item should kill its runner.
        given: dict[str, Any] = {"crash_limit": 0, "stop_after_failures": 0, "output": "results.jsonl"} | values
        given |= {} if "command" in values else {"agent": "agent.py:agent"}
        items = ItemsSpec(kind="lines", pattern="items.txt")
        self.job = Job(name=NAME, base=base, items=items, params={}, **{"agent": None, **given})
        self.agent = load_agent(self.job)

    @property
    def folder(self) -> Path:
        return self.base / "state" / NAME

    @property
    def output(self) -> Path:
        return self.base / "results.jsonl"

    @property
    def is_begun(self) -> bool:
        return (self.folder / "state.json").exists()

    @property
    def is_complete(self) -> bool:
        return not self.is_begun and any((self.folder / "runs").glob("*.json"))

    def clear(self) -> None:
        """As if there had been no launch."""
        shutil.rmtree(self.base / "state", ignore_errors=True)
        for path in (self.base / "notes.log", self.output, self.base / "results.partial.jsonl"):
            path.unlink(missing_ok=True)

    def notes(self) -> list[str]:
        """The lines that the agent has noted."""
        try:
            return (self.base / "notes.log").read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []

    def records(self) -> list[Record]:
        """What is on disk, of the unfinished run or of that which has ended."""
        store = FolderStore(self.folder)
        if self.is_begun and store.load().finished is None:
            return [record for _, record in store.scan()]
        if not (ended := store.summaries()):
            return []
        path = self.folder / "runs" / f"{ended[0].run_id}.jsonl"
        if not path.exists():
            # It is finished, and the journal was about to be filed.
            (path,) = self.folder.glob("journal-*.jsonl")
        # What is behind its length was never whole.
        text = path.read_bytes()[: ended[0].journal_length]
        return [decode_record(line) for line in text.split(b"\n")[:-1]]

    # ---- launches

    def launch(self, *, compacts: bool = False, disk: Disk | None = None) -> Summary:
        """One launch here, to its end. Goes on with a run; where there is none, begins it."""
        options = Options(resume=self.is_begun, wait_seconds=PATIENCE_SECONDS)
        store = FolderStore(self.folder, disk=disk, redo_limit_bytes=REDO_LIMIT_BYTES)
        if self.agent.isolation == "process":
            path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
            return asyncio.run(execute(self.job, self.agent, store, options=options, environ={"PATH": path}))
        # What runs in the runner itself leaves no processes behind, and needs no guardian: a launch is quicker without.
        launch = Launch(
            self.job,
            store,
            agent=self.agent.fingerprint,
            options=options,
            disk=disk,
            compact_over_bytes=1 if compacts else COMPACT_OVER_BYTES,
        )
        try:
            return launch.prepare() or asyncio.run(self._work(launch))
        finally:
            launch.close()

    async def _work(self, launch: Launch) -> Summary:
        executor = open_executor(self.job, self.agent, guardian=None, environ={})
        try:
            return await launch.work(executor)
        finally:
            await executor.close()

    def start(self, *, compacts: bool = False, disk: Disk | None = None) -> Forked:
        """A launch in a child, which exits as the command would; its summary is then in `summary`."""
        return Forked(lambda: self._launch_and_tell(compacts, disk), self.base / "complaints")

    def _launch_and_tell(self, compacts: bool, disk: Disk | None) -> int:
        summary = self.launch(compacts=compacts, disk=disk)
        (self.base / "summary.json").write_text(json.dumps(summary.as_json()))
        return summary.exit_code

    @property
    def summary(self) -> dict[str, Any]:
        """Of the last launch that came to its end."""
        found: dict[str, Any] = json.loads((self.base / "summary.json").read_bytes())
        return found
