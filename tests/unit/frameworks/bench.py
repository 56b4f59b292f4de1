"""A bench for agents from frameworks: launches of one agent over a few items, in this process, with crashes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from agentrun.agents.agent import Agent, agent_from_function
from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.messages import Message, Reply
from agentrun.checkpoint.message import decode_message
from agentrun.checkpoint.record import Question, Record
from agentrun.checkpoint.summary import Summary
from agentrun.executors.loop import LoopExecutor
from agentrun.job.job import Job
from unit.launch.bench import Died, FakeExecutor, World

_ids = itertools.count(1)


class AgentExecutor(FakeExecutor):
    """The executor of async agents; it keeps what the attempts printed and logged."""

    def __init__(self, job: Job, agent: Agent) -> None:
        super().__init__()
        self._inner = LoopExecutor(job, agent)
        self.log = ""
        self._died: asyncio.Future[Outcome]

    def die(self) -> None:
        """End the launch here and now, as a process does."""
        self._died.set_exception(Died("died"))

    async def start(self) -> None:
        await self._inner.start()

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        self.began.append(attempt.item.key)
        died = self._died = asyncio.get_running_loop().create_future()

        async def mortal(message: Message) -> Reply:
            """After the launch's death nothing is answered, and no attempt ends."""
            if died.done():
                raise Died("died")
            try:
                return await channel(message)
            except Died as error:
                if not died.done():
                    died.set_exception(error)
                raise

        running = asyncio.ensure_future(self._inner.run(attempt, mortal))
        try:
            await asyncio.wait({running, died}, return_when=asyncio.FIRST_COMPLETED)
            return died.result() if died.done() else running.result()
        finally:
            running.cancel()
            await asyncio.wait({running})
            if attempt.log_path.exists():
                self.log += attempt.log_path.read_text()

    async def rest(self) -> None:
        await self._inner.rest()

    async def close(self) -> None:
        await self._inner.close()


class Bench:
    """One job, launch after launch."""

    def __init__(self, base: Path) -> None:
        self.world = World(base, "memory")
        self.log = ""
        self._agents: dict[int, tuple[Agent, Job]] = {}
        self.items({"id": "x"})

    def items(self, *records: Mapping[str, Any]) -> None:
        self.world.base.joinpath("items.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in records))

    def _new_executor(self, target: Any) -> AgentExecutor:
        job = self.world.job
        # Its fingerprint takes longer than a launch.
        loaded, of = self._agents.get(id(target), (None, None))
        if loaded is None or of is not job:
            loaded, _ = self._agents[id(target)] = (agent_from_function(target, job), job)
        self._executor = AgentExecutor(job, loaded)
        return self._executor

    def go(self, agent: Any, **options: Any) -> Summary:
        executor = self._new_executor(agent)
        try:
            return self.world.go(executor=executor, overwrite=True, **options)
        finally:
            self.log = executor.log

    def crash(self, agent: Any, *, commits: int, landed: bool) -> None:
        self.world.crash(executor=self._new_executor(agent), commits=commits, landed=landed, overwrite=True)

    def die(self) -> None:
        """Called by an agent: the process dies, with everything that is in flight."""
        self._executor.die()

    def clear(self) -> None:
        self.world.clear()

    def answer(
        self, *, yes: bool = True, text: str = "", details: Mapping[str, Any] | None = None, key: str = "x"
    ) -> None:
        """Answer the item's question."""
        asked = self.question(key)
        with self.world.store().reader() as reader:
            run_id = reader.run_id
        about = {"version": 1, "id": f"{next(_ids):016x}", "kind": "answer", "run_id": run_id, "key": key, "gen": 0}
        given = {"yes": yes, "text": text, "details": dict(details or {})}
        told = {**about, "by": "ada", "at": "2026-11-01T10:00:00Z", "question": asked.n, "answer": given}
        self.world.store().post([decode_message(orjson.dumps(told))])

    def question(self, key: str = "x") -> Question:
        found = [record.question for record in self.world.records() if record.kind == "waiting" and record.key == key]
        assert isinstance(found[-1], Question)
        return found[-1]

    def post(self, kind: str, key: str = "x", **more: Any) -> None:
        with self.world.store().reader() as reader:
            run_id = reader.run_id
        about = {"version": 1, "id": f"{next(_ids):016x}", "kind": kind, "run_id": run_id, "key": key, "gen": 0}
        told = {**about, "by": "ada", "at": "2026-11-01T10:00:00Z", **more}
        self.world.store().post([decode_message(orjson.dumps(told))])

    def outputs(self) -> dict[str, Any]:
        return {line["key"]: line["output"] for line in self.world.results()}

    @property
    def output(self) -> Any:
        return self.outputs()["x"]

    def steps(self) -> list[Record]:
        return [record for record in self.world.records() if record.kind == "step"]

    def failure(self) -> str:
        """Why the item failed."""
        found = [record.error for record in self.world.records() if record.kind == "failed"]
        assert found[-1] is not None
        return found[-1].cause
