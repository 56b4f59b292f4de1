"""A run made of records, as launches would have left it, in either store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from agentrun.agents.failure import Failure
from agentrun.checkpoint.record import Kind, Question, Record
from agentrun.checkpoint.summary import Summary, first_checkpoint
from agentrun.items.port import digest
from agentrun.job.fields import Layer
from agentrun.store.folder.store import FolderStore
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Lease, Store
from agentrun.views.finding import KnownJob, open_job
from unit.records import make_record

StoreKind = Literal["folder", "memory"]
STORES: tuple[StoreKind, ...] = ("folder", "memory")


def content_hash(text: str) -> str:
    """Of a line of the source, as a record says it."""
    return digest(text.encode()).hex()[:16]


class Made:
    """The job `made` over lines, in `base`. Nobody is at work on it, except within `at_work`."""

    def __init__(self, base: Path, keys: list[str], kind: StoreKind = "folder", **values: Any) -> None:
        self.base, self.keys = base, keys
        self.items = base / "items.txt"
        self.items.write_text("".join(f"{key}\n" for key in keys))
        (base / "agent.py").write_text("def agent(item): ...\n")
        flags = {"name": "made", "agent": "agent.py:agent", "items": {"lines": "items.txt"}, **values}
        opened = open_job(None, flags=Layer("flags", flags), cwd=base, environ={})
        self.job, self.folder = opened.job, opened.root / opened.job.name
        self.store: Store = MemoryStore() if kind == "memory" else FolderStore(self.folder, redo_limit_bytes=400)
        self.known = KnownJob("made", self.store, self.job)
        self.checkpoint = first_checkpoint(self.job, number=1)
        self.checkpoint.total = len(keys)
        context = self.checkpoint.context
        context.identity, context.launches, context.agent = self.job.identity(), 1, "v1"
        self._lease: Lease | None = None

    @property
    def run_id(self) -> str:
        return self.checkpoint.run_id

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """This process is the runner."""
        if self._lease is not None:
            yield
            return
        self._lease = self.store.lock(wait_seconds=0)
        try:
            self.store.load()
            yield
        finally:
            self._lease.release()
            self._lease = None

    def commit(self, *records: Record, **values: Any) -> None:
        with self.at_work():
            self.checkpoint.seq += 1
            for name, value in values.items():
                setattr(self.checkpoint, name, value)
            self.store.commit(self.checkpoint, records)

    def finish(self, **values: Any) -> None:
        with self.at_work():
            self.checkpoint.seq += 1
            self.store.commit(self.checkpoint)
            known: dict[str, Any] = {
                "job": "made",
                "run_id": self.run_id,
                "status": "finished",
                "total": len(self.keys),
            }
            self.store.finish(Summary(**{**known, **values}))

    def record(self, key: str, kind: Kind = "done", output: Any = "an output", **fields: Any) -> Record:
        known: dict[str, Any] = {
            "index": self.keys.index(key) if key in self.keys else 0,
            "hash": content_hash(key),
            "at": 100.0,
            "seconds": 2.0,
            **fields,
        }
        if kind in ("done", "step"):
            known["output"] = output
        return make_record(key, kind, **known)

    def failed(self, key: str, message: str = "it is no good", **fields: Any) -> Record:
        error = Failure("exception", message, types=("builtins.ValueError",))
        return self.record(key, "failed", error=error, **fields)

    def waiting(self, key: str, text: str = "Send this draft?", n: int = 1, **details: Any) -> Record:
        question = Question(n=n, text=text, details=details, at="2026-05-04T22:03:11.042Z")
        return self.record(key, "waiting", question=question)
