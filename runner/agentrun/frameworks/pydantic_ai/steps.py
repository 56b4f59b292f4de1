"""A run of an agent of pydantic-ai, as steps of the item and questions to people.

| step | name |
|---|---|
| model request | `<run>: model`, by order: a run makes one at a time |
| tool call | `<run>: <tool> <call id>`: calls are made side by side, in any order; the model's id stays the same |
| a run within a tool | `<step of the tool>/<run>: …` |
| others (the tools of a server, checks of arguments) | pydantic-ai's name, by order, with the call id if there is one |

`<run>` is the agent's name, with `~2` for its second run within the attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self
from weakref import WeakKeyDictionary

from pydantic_ai import (
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_jsonable_python

from agentrun.agents.context import Answer, Context, place
from agentrun.agents.memory import ItemMemory, SideBySide
from agentrun.errors import Fail
from agentrun.frameworks.pydantic_ai.views import (
    arguments_in,
    asked_of_model,
    response_in,
    view_of,
    view_of_response,
    view_of_result,
)

_runs: WeakKeyDictionary[Context, Counter[str]] = WeakKeyDictionary()
"""How many runs of each name an attempt has made."""


@dataclass
class Run:
    """One run of an agent within an attempt."""

    name: str
    ctx: Context
    memory: ItemMemory
    asked: Counter[str] = field(default_factory=Counter)
    calls: SideBySide = field(default_factory=SideBySide)

    @classmethod
    def of(cls, ctx: Context, name: str) -> Self:
        """The attempt's next run of this name, within the tool that makes it."""
        full = f"{place()}{name}"
        counts = _runs.setdefault(ctx, Counter())
        counts[full] += 1
        return cls(full if counts[full] == 1 else f"{full}~{counts[full]}", ctx, ItemMemory(ctx))

    async def resolve(self, _: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        """The answers of people to the calls; raises Parked until all are given."""
        results = DeferredToolResults()
        for call in requests.approvals:
            args = call.args_as_dict()
            answer = await self._ask(f"Approve {call.tool_name}?", call, requests, {"args": args})
            edited = answer.details.get("args", args)
            if not answer:
                results.approvals[call.tool_call_id] = ToolDenied(answer.text or "The tool call was denied.")
            elif not isinstance(edited, dict):
                raise Fail(f"the approval of {call.tool_name} has no arguments but {edited!r}; ask again with a redo")
            else:
                results.approvals[call.tool_call_id] = ToolApproved(override_args=edited if edited != args else None)
        for call in requests.calls:
            details = {"args": call.args_as_dict(), "result": None}
            answer = await self._ask(f"What does {call.tool_name} return?", call, requests, details)
            given = answer.details.get("result")
            if answer:
                results.calls[call.tool_call_id] = given if given is not None else answer.text
            else:
                results.calls[call.tool_call_id] = ModelRetry(answer.text or "The tool call was refused.")
        return results

    async def _ask(
        self, question: str, call: ToolCallPart, requests: DeferredToolRequests, details: dict[str, Any]
    ) -> Answer:
        key = f"{self.name}: {call.tool_call_id}"
        self.asked[key] += 1
        if self.asked[key] > 1:
            # Some servers give the same id again: an answer must never count for another call.
            key += f"~{self.asked[key]}"
        if metadata := requests.metadata.get(call.tool_call_id):
            details["metadata"] = to_jsonable_python(metadata, serialize_unknown=True)
        return await self.memory.ask(question, details, key=key)


class Steps(JournalCallableOperationBackend[None]):
    """Runs each operation of pydantic-ai as a step of the item."""

    def __init__(self, this: Run | None, name: str) -> None:
        same = RoleBasedOperationConfig[None](model=None, event=None, capability=None, tool=None)
        super().__init__(agent_name=name, config=same)
        self._run = this

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,
    ) -> object:
        this = self._run
        assert this is not None, "an agent that was only checked is being run"
        context = next((part for part in cache_key if isinstance(part, RunContext)), None)
        call_id = context.tool_call_id if context is not None else None
        if isinstance(operation_id, ModelRequestId | ModelCompactMessagesId):
            what = "model" if isinstance(operation_id, ModelRequestId) else "model.compact"

            async def request() -> object:
                payload = await body()
                _report(payload, this.ctx)
                return payload

            asked = asked_of_model(operation_id.model_name, cache_key)
            return await this.memory.step(f"{this.name}: {what}", request, request=asked, view=view_of_response)
        if isinstance(operation_id, ToolsetCallToolId) and call_id is not None and context is not None:
            step = f"{this.name}: {context.tool_name} {call_id}"
            remembered = partial(this.memory.step, step, body, request=arguments_in(cache_key), view=view_of_result)
            return await this.calls.make(remembered)
        # Operations that are not known here, too: a later pydantic-ai may have more of them.
        return await this.memory.step(
            f"{name} {call_id}" if call_id is not None else name, body, request=arguments_in(cache_key), view=view_of
        )


class ItemDurability(BaseDurabilityCapability[Any]):
    """What makes a run of an agent durable: its operations are steps of the item."""

    engine_spec = DurabilityEngineSpec(
        engine_name="agentrun",
        durable_unit_noun="step",
        durable_container_noun="item",
        codec=JSON_CODEC,
        serialization_failure=lambda error: Fail(f"a result of the agent cannot be kept as JSON: {error}"),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
    )

    def __init__(self, this: Run | None, *, name: str, models: dict[str, Model] | None = None) -> None:
        super().__init__(name=name, models=models)
        self._run = this

    @property
    def in_durable_context(self) -> bool:
        return True

    def get_durable_operation_backend(self) -> Steps:
        return Steps(self._run, self.name)

    def get_default_run_id(self) -> str | None:
        return self._run.ctx.key(f"pydantic-ai {self._run.name}") if self._run is not None else None

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id)

    def get_model_settings(self) -> Callable[[RunContext[Any]], ModelSettings]:
        """The runner retries, and slows down for everybody; the model's SDK must not do so behind its back."""

        def settings(context: RunContext[Any]) -> ModelSettings:
            is_ignored = "max_retries" in getattr(context.model, "unsupported_settings", ())
            is_set = "max_retries" in (context.model_settings or {})
            return ModelSettings() if is_ignored or is_set else ModelSettings(max_retries=0)

        return settings


def _report(payload: object, ctx: Context) -> None:
    """Report what a response used; nothing if the server did not say, as nothing is better than a guess."""
    response = response_in(payload)
    if not response.usage.unmeasured_requests:
        ctx.usage(response)
