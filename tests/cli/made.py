"""A run made of records, as launches would have left it, for the commands that people talk to it with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from msgspec import Raw, convert

from agentrun.checkpoint.record import Kind, Record
from agentrun.checkpoint.summary import Summary, first_checkpoint
from agentrun.items.port import digest
from agentrun.store.folder.store import FolderStore
from agentrun.views.finding import open_job

AGENT = "def agent(item): return item.text\n"


class Made:
    """The job `drafts` over lines, in `base`. The lock is not held: nobody is at work."""

    def __init__(self, base: Path, keys: list[str], **values: Any) -> None:
        self.base = base
        (base / "items.txt").write_text("".join(f"{key}\n" for key in keys))
        (base / "agent.py").write_text(AGENT)
        carry = "carry = true\n" if values.get("carry") else ""
        text = f'name = "drafts"\nagent = "agent.py:agent"\n{carry}[items]\nlines = "items.txt"\n'
        (base / "drafts.toml").write_text(text)
        opened = open_job("drafts.toml", cwd=base, environ={})
        self.job, self.folder, self.keys = opened.job, opened.root / "drafts", keys
        self._job_json = opened.job_json
        self.checkpoint = first_checkpoint(self.job, number=1)
        context = self.checkpoint.context
        context.identity, context.launches, context.agent = self.job.identity(), 1, "v1"
        self.checkpoint.total = len(keys)

    @property
    def run_id(self) -> str:
        return self.checkpoint.run_id

    def commit(self, *records: Record, finish: bool = False) -> None:
        store = FolderStore(self.folder)
        lease = store.lock()
        try:
            store.load()
            self.checkpoint.seq += 1
            store.commit(self.checkpoint, records)
            store.keep("job.json", [self._job_json])
            if finish:
                store.finish(Summary(job="drafts", run_id=self.run_id, status="finished", total=len(self.keys)))
        finally:
            lease.release()

    def entry(self, key: str, kind: Kind = "done", output: Any = "an output", **fields: Any) -> Record:
        known: dict[str, Any] = {
            "kind": kind,
            "key": key,
            "gen": 0,
            "index": self.keys.index(key),
            "hash": digest(key.encode()).hex()[:16],
            "agent": "v1",
            "launch": 1,
            "at": 100.0,
            "seconds": 2.0,
            **fields,
        }
        if kind in ("done", "step"):
            known["output"] = Raw(orjson.dumps(output))
        return convert(known, Record)

    def failed(self, key: str, message: str = "it is no good", **fields: Any) -> Record:
        error = {"origin": "exception", "message": message, "types": ["builtins.ValueError"]}
        return self.entry(key, "failed", error=error, **fields)

    def waiting(self, key: str, text: str = "Send this draft?", n: int = 1, **details: Any) -> Record:
        question = {"n": n, "text": text, "details": details, "at": "2026-05-04T22:03:11.042Z"}
        return self.entry(key, "waiting", question=question)

    def posted(self) -> list[dict[str, Any]]:
        """The messages in the inbox, oldest first."""
        return [orjson.loads(path.read_bytes()) for path in sorted(self.folder.glob("inbox/*.json"))]
