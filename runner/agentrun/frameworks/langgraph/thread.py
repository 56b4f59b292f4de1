"""A thread: one run of a graph for an item, from wherever earlier attempts left it, to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.errors import is_invalid_resume
from langgraph.types import Command, Interrupt, Send, StateSnapshot
from pydantic import ValidationError

from agentrun.agents.memory import ItemMemory
from agentrun.errors import Fail, Skip
from agentrun.frameworks.langgraph.questions import DoesNotFit, question_of
from agentrun.frameworks.langgraph.shapes import AnyGraph
from agentrun.frameworks.langgraph.views import NEXT, TASKS

TRIGGERS = (NEXT, "join:")
"""How the channels begin that start a node."""


@dataclass
class Thread:
    """The graph has a checkpointer, and the config the thread's id.

    **Invariant: what the graph does next is decided by the thread's newest checkpoint and the answers on disk alone.**
    """

    graph: AnyGraph
    config: RunnableConfig
    memory: ItemMemory
    name: str
    """The beginning of its questions' keys."""
    _refused: Counter[str] = field(default_factory=Counter)
    """How many answers to an interrupt did not fit its schema."""
    _why: str = ""

    async def saved(self) -> CheckpointTuple | None:
        """The newest checkpoint; None for a new thread."""
        checkpointer = self.graph.checkpointer
        assert isinstance(checkpointer, BaseCheckpointSaver)
        return await checkpointer.aget_tuple(self.config)

    async def run(self, given: Any) -> Any:
        """The state at the graph's end. `given` is for a new thread; Parked if a person must answer first."""
        if (saved := await self.saved()) is not None:
            self._check_same_graph(saved)
            given = (await self._next(await self.graph.aget_state(self.config))).given
        while True:
            state = await self._go(given)
            step = await self._next(await self.graph.aget_state(self.config))
            if step.is_end:
                return state
            if not step.is_answered:
                at = ", ".join(step.at)
                fix = "ask by interrupt() in a node; breakpoints of subgraphs cannot be answered"
                raise Fail(f"the graph stopped before {at}, without a question; {fix}")
            given = step.given

    async def _go(self, given: Any) -> Any:
        try:
            return await self.graph.ainvoke(given, self.config, durability="sync")
        except ValidationError as error:
            if not is_invalid_resume(error) or not isinstance(given, Command) or not isinstance(given.resume, dict):
                raise
            # LangGraph keeps nothing of an answer that does not fit: the person is asked again.
            waiting = {one.id for one in (await self.graph.aget_state(self.config)).interrupts}
            if not (refused := waiting & given.resume.keys()):
                raise
            self._refused.update(refused)
            self._why = "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in error.errors())

    # ---- people

    async def _next(self, state: StateSnapshot) -> _Step:
        """What the thread needs now. Asks a person where the graph does."""
        if state.interrupts:
            values = {one.id: await self._answer(one) for one in state.interrupts}
            return _Step(Command(resume=values), is_answered=True)
        if not state.next:
            return _Step(is_end=True)
        if (stop := await self._breakpoint(state)) is None:
            return _Step(at=state.next)
        answer = await self.memory.ask(stop, {}, key=f"{self.name} {state.config['configurable']['checkpoint_id']}")
        if not answer:
            raise Skip(f"refused by {answer.by}: {answer.text}" if answer.text else f"refused by {answer.by}")
        return _Step(is_answered=True)

    async def _answer(self, interrupt: Interrupt[Any]) -> Any:
        """What `interrupt()` returns. Each answer that does not fit is followed by the question once more."""
        asked = question_of(interrupt)
        while True:
            text, key = asked.text, f"{self.name} {interrupt.id}"
            if refused := self._refused[interrupt.id]:
                key, text = f"{key}~{refused + 1}", f"{text}\n(the last answer does not fit: {self._why})"
            answer = await self.memory.ask(text, asked.details, key=key)
            try:
                return asked.resume(answer)
            except DoesNotFit as error:
                self._refused[interrupt.id] += 1
                self._why = str(error)

    async def _breakpoint(self, state: StateSnapshot) -> str | None:
        """The question at one of the breakpoints that the graph was compiled with; None if it is not at one.

        From the checkpoint, not from where the graph stopped: a resumed graph passes the next breakpoint, although a
        crash, not a person, has stopped it.
        """
        if before := _among(state.next, self.graph.interrupt_before_nodes):
            return f"Continue with {before}? The graph stops before it."
        if state.parent_config is None or not self.graph.interrupt_after_nodes:
            return None
        ran = (await self.graph.aget_state(state.parent_config)).next
        after = _among(ran, self.graph.interrupt_after_nodes)
        return f"Continue after {after} with {', '.join(state.next)}? The graph stops there." if after else None

    # ---- a graph that was changed

    def _check_same_graph(self, saved: CheckpointTuple) -> None:
        """Fail if the next node is gone: LangGraph would take the thread for one that has ended."""
        values = saved.checkpoint["channel_values"]
        pending = [(channel, value) for _, channel, value in saved.pending_writes or ()]
        sent = [*(values.get(TASKS) or ()), *(value for channel, value in pending if channel == TASKS)]
        triggers = {*values, *(channel for channel, _ in pending)} - self.graph.channels.keys()
        gone = sorted(
            {channel.rpartition(":")[2] for channel in triggers if channel.startswith(TRIGGERS)}
            | {one.node for one in sent if isinstance(one, Send) and one.node not in self.graph.nodes}
        )
        if gone:
            fix = "give the node its old name again, or start the item over with: agentrun redo"
            raise Fail(
                f"the graph has changed since this item was run: {', '.join(gone)} is next, and not in it; {fix}"
            )


@dataclass(frozen=True)
class _Step:
    given: Command[Any] | None = None
    is_end: bool = False
    is_answered: bool = False
    """Whether a person answered, now or before."""
    at: tuple[str, ...] = ()


def _among(nodes: Sequence[str], chosen: Any) -> str:
    """Those of the nodes that are chosen, for people; an asterisk chooses all."""
    return ", ".join(dict.fromkeys(node for node in nodes if chosen == "*" or node in chosen))
