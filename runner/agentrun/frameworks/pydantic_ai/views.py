"""What a step of an agent of pydantic-ai is asked, and what people see of its result."""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_core import to_jsonable_python


def response_in(payload: object) -> ModelResponse:
    """The response that a step keeps as JSON."""
    response: ModelResponse = JSON_CODEC.load(ModelResponse, payload)
    return response


def asked_of_model(model_name: str, cache_key: tuple[object, ...]) -> object:
    """What is new in a model request: its last message. Those before it are remembered themselves."""
    messages = next((part for part in cache_key if isinstance(part, list)), [])
    return model_name, _untimed(ModelMessagesTypeAdapter.dump_python(messages[-1:], mode="json"))


def arguments_in(cache_key: tuple[object, ...]) -> object:
    """The arguments of a tool call, or None for what has none."""
    arguments = next((part for part in cache_key if isinstance(part, dict)), None)
    return to_jsonable_python(arguments, serialize_unknown=True)


def view_of_response(payload: object) -> str:
    """What the model said, and the tool calls that it asked for."""
    parts = []
    for part in response_in(payload).parts:
        if isinstance(part, TextPart):
            parts.append(part.content)
        elif isinstance(part, ToolCallPart):
            given = ", ".join(f"{name}={view_of(value)}" for name, value in part.args_as_dict().items())
            parts.append(f"{part.tool_name}({given})")
    return "\n".join(parts)


def view_of_result(payload: object) -> str:
    """What a tool returned, or how else its call ended."""
    if not isinstance(payload, dict):
        return view_of(payload)
    if "result" in payload:
        result = payload["result"]
        return result if isinstance(result, str) else view_of(result)
    kind = str(payload.get("kind", "")).replace("_", " ")
    return f"{kind}: {payload['message']}" if payload.get("message") else kind


def view_of(payload: object) -> str:
    return json.dumps(payload, ensure_ascii=False)


def _untimed(value: Any) -> Any:
    """Without the times at which messages were made: each attempt makes its own."""
    if isinstance(value, dict):
        return {name: _untimed(part) for name, part in value.items() if name != "timestamp"}
    return [_untimed(part) for part in value] if isinstance(value, list) else value
