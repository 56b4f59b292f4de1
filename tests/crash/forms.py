"""A job in each form of results, and its second run: one item changed, one is new, one is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.checkpoint.summary import Summary
from agentrun.errors import AgentrunError
from agentrun.job.job import ItemsSpec, Job
from agentrun.system.disk import Disk
from crash.inspection import BEFORE, Stage
from crash.model import State
from crash.workload import FakeAgent, Teller, Workload, nobody

Form = Literal["jsonl", "csv", "folder"]
OUTPUTS: dict[Form, str] = {"jsonl": "out/lines.jsonl", "csv": "out/table.csv", "folder": "out/files/{key}.md"}
FIRST = {"a/b": "one", "same": "two", "gone": "three"}
SECOND = {"a/b": "changed", "same": "two", "new": "four"}
KEPT = {"same"}
"""What the second run need not run."""
FOREIGN = b"nobody's but mine\n"


class Answers(FakeAgent):
    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        self.attempted.append(attempt.item.key)
        if self.on_attempt is not None:
            self.on_attempt(attempt)
        data = attempt.item.data
        assert isinstance(data, dict)
        return Outcome("done", orjson.dumps(output_of(data["v"])))


def output_of(value: str) -> dict[str, Any]:
    return {"v": value, "n": [1]}


def results_of(form: Form, items: dict[str, str]) -> State:
    """The files of an undisturbed run, without any of the code under test."""
    if form == "jsonl":
        lines = [{"index": n, "key": key, "output": output_of(value)} for n, (key, value) in enumerate(items.items())]
        return {"out/lines.jsonl": b"".join(orjson.dumps(line) + b"\n" for line in lines)}
    if form == "csv":
        rows = [f"{n},{key},{value},[1]\n" for n, (key, value) in enumerate(items.items())]
        return {"out/table.csv": "".join(["index,key,v,n\n", *rows]).encode()}
    files = {f"out/files/{key.replace('/', '_')}.md": value for key, value in items.items()}
    return {path: orjson.dumps(output_of(value)) + b"\n" for path, value in files.items()}


@dataclass(slots=True)
class TwoRuns:
    """`start` is what the first run and somebody else have left on disk; `launch` works on the second."""

    base: Path
    form: Form
    workload: Workload = field(init=False)
    stage: Stage = field(init=False)
    start: State = field(init=False)

    def __post_init__(self) -> None:
        self.workload = Workload(self.base, 0, compact_over_bytes=1 << 30)
        self.workload.lay_out()
        self.stage = Stage(self.workload)
        self._give(FIRST)
        assert self.launch().exit_code == 0
        assert self._found() == results_of(self.form, FIRST)
        for path in self._foreign():
            path.write_bytes(FOREIGN)
        self._give(SECOND)
        self.start = self._on_disk()

    @property
    def job(self) -> Job:
        items = ItemsSpec(kind="jsonl", pattern="items.jsonl", key="id")
        return replace(self.workload.job(), items=items, output=OUTPUTS[self.form])

    def show(self, state: State) -> None:
        self.stage.disturbed()
        self.stage.show({**BEFORE, **state})
        self.stage.disturbed()

    def launch(
        self,
        disk: Disk | None = None,
        tell: Teller = nobody,
        on_attempt: Callable[[Attempt], None] | None = None,
    ) -> Summary:
        agent = Answers(on_attempt=on_attempt)
        try:
            return self.workload.launch(agent, job=self.job, disk=disk, tell=tell, allow_gone=True)
        except AgentrunError as error:
            raise AssertionError(f"the launch was refused: {error}") from error

    def check(self) -> None:
        """At every instant: what is not ours is as it was, and each of our files is whole, old or new."""
        self._check_foreign()
        old, new = results_of(self.form, FIRST), results_of(self.form, SECOND)
        for path, content in self._found().items():
            assert content in (old.get(path), new.get(path)), f"{path}: {content!r}"

    def check_complete(self) -> None:
        self._check_foreign()
        found = self._found()
        assert found == results_of(self.form, SECOND), f"the results are {found}"
        # A claim whose run is filed already is anybody's, and no launch looks for it.
        hidden = [path for path in (self.base / "out").rglob(".*") if path.suffix != ".claim"]
        left = [path for path in hidden if path not in self._foreign()]
        assert not left, f"left behind: {left}"

    def _check_foreign(self) -> None:
        for path in self._foreign():
            assert path.read_bytes() == FOREIGN, f"{path} was touched"

    def _foreign(self) -> list[Path]:
        folder = self.base / "out" / ("files" if self.form == "folder" else "")
        # The last one looks like a temporary file, but of a name that we never had.
        return [folder / "README.md", folder / ".hidden.md", folder / ".other.md.0123456789ab.tmp"]

    def _give(self, items: dict[str, str]) -> None:
        lines = [orjson.dumps({"id": key, "v": value}) + b"\n" for key, value in items.items()]
        (self.base / "items.jsonl").write_bytes(b"".join(lines))

    def _found(self) -> State:
        """The files of the output that may be ours."""
        foreign = {str(path.relative_to(self.base)) for path in self._foreign()}
        found = {str(path.relative_to(self.base)): path for path in (self.base / "out").rglob("*") if path.is_file()}
        return {
            name: path.read_bytes()
            for name, path in found.items()
            if name not in foreign and not path.name.startswith(".")
        }

    def _on_disk(self) -> State:
        found: State = {}
        for folder in ("out", "state"):
            for path in [self.base / folder, *sorted((self.base / folder).rglob("*"))]:
                found[str(path.relative_to(self.base))] = path.read_bytes() if path.is_file() else None
        return found
