"""Models whose responses are remembered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

from agents import Handoff, Model, ModelProvider, ModelResponse, ModelSettings, ModelTracing, Tool, Usage
from agents.agent_output import AgentOutputSchemaBase
from agents.items import TResponseInputItem, TResponseOutputItem, TResponseStreamEvent
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from openai import APIError, OpenAIError
from openai.types.responses import ResponseCompletedEvent, ResponseFunctionToolCall, ResponseOutputMessage
from openai.types.responses.response_prompt_param import ResponsePromptParam
from pydantic import TypeAdapter

from agentrun.errors import Stop
from agentrun.frameworks.openai_agents.internals import clean_up, without_hidden_retries
from agentrun.frameworks.openai_agents.scope import Carried, Run, current_run

_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


class ItemModel(Model):
    """The user's model. Within a run that is remembered, each response is a step and its usage is reported."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        # What some models have beyond the interface, such as whether they support prompt cache keys.
        if name == "_model":
            raise AttributeError(name)
        return getattr(self._model, name)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        async def ask() -> ModelResponse:
            return await self._model.get_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )

        run = current_run()
        if run is None:
            return await ask()

        async def call() -> Any:
            # A retry inside the client is neither seen nor slowed down; the run's own retries are both.
            with without_hidden_retries() if model_settings.retry is None else nullcontext():
                response = await ask()
            self._report(run, response.usage)
            # What was not set stays so: the SDK compares tool calls with their form of the first time.
            return _RESPONSE.dump_python(response, mode="json", exclude_unset=True, by_alias=True)

        request = (self.name, system_instructions, input)
        known = await run.remember(f"model {run.agent}", call, request=request, view=_view)
        return _RESPONSE.validate_python(known)

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        run = current_run()
        if run is not None:
            run.warn(f"agent {run.agent!r} streams, so its model's responses are not remembered: it is asked again")
        stream = self._model.stream_response(
            system_instructions,
            input,
            model_settings,
            tools,
            output_schema,
            handoffs,
            tracing,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            prompt=prompt,
        )
        async for event in stream:
            if run is not None and isinstance(event, ResponseCompletedEvent) and event.response.usage:
                run.ctx.usage(event.response)
            yield event

    @property
    def name(self) -> str | None:
        """The model's name, if it has one."""
        name = getattr(self._model, "model", None)
        return str(name) if name else None

    def _report(self, run: Run, used: Usage) -> None:
        if not used.requests and not used.total_tokens:
            return  # its server said nothing of usage
        is_openai = isinstance(self._model, OpenAIResponsesModel | OpenAIChatCompletionsModel)
        details = used.input_tokens_details
        run.ctx.usage(
            model=self.name,
            provider="openai" if is_openai else None,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cache_read_tokens=details.cached_tokens or 0,
            cache_write_tokens=getattr(details, "cache_write_tokens", 0) or 0,
            requests=used.requests or 1,
        )

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return self._model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await clean_up(self._model, owner)

    async def close(self) -> None:
        await self._model.close()


def remembering(model: Model) -> Model:
    """The model, remembered."""
    return model if isinstance(model, ItemModel) else ItemModel(model)


class ItemProvider(ModelProvider):
    """The user's provider; its models are remembered."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        if name == "_provider":
            raise AttributeError(name)
        return getattr(self._provider, name)

    def get_model(self, model_name: str | None) -> Model:
        try:
            return remembering(self._provider.get_model(model_name))
        except APIError:
            raise
        except OpenAIError as error:
            # The client cannot be made, for want of a key above all: that is so for every item.
            raise Carried(Stop(str(error))) from error

    async def aclose(self) -> None:
        await self._provider.aclose()


def _view(known: Any) -> str:
    """The text that the model said, and the calls that it asks for."""
    return "\n".join(filter(None, map(_words, _RESPONSE.validate_python(known).output)))


def _words(item: TResponseOutputItem) -> str:
    if isinstance(item, ResponseFunctionToolCall):
        return call_text(item.name, item.arguments)
    if isinstance(item, ResponseOutputMessage):
        return "".join(part.text if part.type == "output_text" else part.refusal for part in item.content)
    kind = item.get("type", "") if isinstance(item, dict) else item.type
    return "" if kind == "reasoning" else f"[{kind}]"


def call_text(name: str, arguments: str) -> str:
    """The call of a tool, in one line."""
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        return f"{name}({arguments})"
    return f"{name}({', '.join(f'{key}={json.dumps(value, ensure_ascii=False)}' for key, value in given.items())})"
