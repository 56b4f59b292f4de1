"""A prompt's model, as pydantic-ai has it; and what it raises, as people can read it.

All models of `openai:` are spoken to by chat completions, at OpenAI as at every other server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx2
from pydantic_ai import NativeOutput, PromptedOutput, StructuredDict, ToolOutput
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from agentrun.agents.prompts.prompt import Prompt, base_url_of, find_key
from agentrun.agents.prompts.structured import Way
from agentrun.agents.servers import UNREACHED, address_of, unreached_server
from agentrun.agents.waits import asked_by_headers
from agentrun.errors import AgentSignal

_NO_KEY = "no-key"
_SHORTEST_SECRET = 4
_LONGEST_WORDS = 500
_MARGIN_SECONDS = 60.0
_LONGEST_SECONDS = 24 * 3600.0
OnResponse = Callable[[ModelResponse], Awaitable[None]]


def open_client(prompt: Prompt) -> httpx2.AsyncClient:
    """The connections, for all items. Its timeouts are beyond the attempt's own, which rules."""
    seconds = prompt.timeout_seconds + _MARGIN_SECONDS if prompt.timeout_seconds else _LONGEST_SECONDS
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=prompt.concurrency)
    return httpx2.AsyncClient(timeout=httpx2.Timeout(seconds, connect=30.0), limits=limits, follow_redirects=True)


def open_model(prompt: Prompt, client: httpx2.AsyncClient, environ: Mapping[str, str]) -> Model:
    key = find_key(prompt.provider, environ)
    if prompt.provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(prompt.model, provider=AnthropicProvider(api_key=key, http_client=client))
    if prompt.provider == "google":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        return GoogleModel(prompt.model, provider=GoogleProvider(api_key=key, http_client=client))
    from pydantic_ai.models.openai import OpenAIChatModel

    if (base_url := base_url_of(prompt, environ)) is None:
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIChatModel(prompt.model, provider=OpenAIProvider(api_key=key, http_client=client))
    from pydantic_ai.profiles.openai import OpenAIModelProfile, openai_model_profile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    # Servers of other makers know max_tokens, and some ignore the newer name; OpenAI's reasoning models refuse it.
    reasons = bool(openai_model_profile(prompt.model).get("openai_supports_reasoning"))
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=reasons)
    provider = OpenAICompatibleProvider(
        "openai", base_url=base_url, api_key=key or _NO_KEY, http_client=client, profile=profile
    )
    return OpenAIChatModel(prompt.model, provider=provider)


def settings_of(prompt: Prompt) -> ModelSettings:
    # No tries of the SDK's own: they would wait and pay unseen, beside the job's retries.
    settings = ModelSettings(max_retries=0)
    if prompt.max_output_tokens is not None:
        settings["max_tokens"] = prompt.max_output_tokens
    if prompt.temperature is not None:
        settings["temperature"] = prompt.temperature
    return settings


def takes_schema(prompt: Prompt, model: Model) -> bool:
    """Whether the provider is given the schema as such. Anthropic's own way takes only a part of JSON Schema."""
    return prompt.provider != "anthropic" and bool(model.profile.get("supports_json_schema_output"))


def output_of(prompt: Prompt, model: Model, way: Way) -> Any:
    """The kind of output: text, or what the schema describes; natively that is what the provider does best."""
    if prompt.schema is None:
        return str
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", prompt.schema.title).strip("_")[:60] or "answer"
    described = StructuredDict(dict(prompt.schema.form), name=name)
    if way == "prompt":
        # Not by pydantic-ai's own words: they are a second system message, which many models' templates refuse.
        return PromptedOutput(described, name=name, template=False)
    # A tool takes all of JSON Schema.
    return NativeOutput(described, name=name) if takes_schema(prompt, model) else ToolOutput(described, name=name)


class WatchedModel(WrapperModel):
    """A model whose every response is shown, as soon as it is there: also those that are not taken."""

    def __init__(self, wrapped: Model, on_response: OnResponse) -> None:
        super().__init__(wrapped)
        self._on_response = on_response

    def prepare_messages(
        self, messages: list[ModelMessage], model_request_parameters: ModelRequestParameters | None = None
    ) -> list[ModelMessage]:
        """The question as it was written: for some models pydantic-ai would add to `system`, and escape tags."""
        if len(messages) == 1:
            return messages
        return super().prepare_messages(messages, model_request_parameters)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        response = await super().request(messages, model_settings, model_request_parameters)
        await self._on_response(response)
        return response


def readable(error: Exception, prompt: Prompt, environ: Mapping[str, str]) -> Exception:
    """The error with a message for people, and without the key, which a server may have sent back.

    What pydantic-ai raises keeps its class and its facts, which say whether it passes by itself.
    """
    if isinstance(error, AgentSignal):
        return _bare(error)
    key = find_key(prompt.provider, environ)
    secrets = [key] if len(key) >= _SHORTEST_SECRET else []
    if isinstance(error, AgentRunError):
        _keep_server(error, prompt, environ)
        error.message = _without(_message(error, prompt), secrets)
        error.args = (error.message,)
        if isinstance(error, UnexpectedModelBehavior | ModelAPIError):
            error.body = None
        if isinstance(error, ModelAPIError):
            error.provider_error_code = _without(error.provider_error_code or "", secrets)
            error.provider_error_type = _without(error.provider_error_type or "", secrets)
        if isinstance(error, ModelHTTPError):
            if error.retry_after is None and error.headers:
                error.retry_after = asked_by_headers(error.headers, status=error.status_code, now=time.time())
            error.headers = None  # what they say of waiting is in retry_after
        return _bare(error)
    from traceback import format_exception

    if any(secret in "".join(format_exception(error)) for secret in secrets):
        return RuntimeError(_without(f"{type(error).__name__}: {error}", secrets))
    return error


def words_in(error: ModelHTTPError, prompt: Prompt, environ: Mapping[str, str]) -> str:
    """What the server said with an error, in one line and without the key."""
    key = find_key(prompt.provider, environ)
    said = " ".join(_said(error.body).split())
    return _without(said, [key] if len(key) >= _SHORTEST_SECRET else [])


def _keep_server(error: AgentRunError, prompt: Prompt, environ: Mapping[str, str]) -> None:
    """Which server was not reached is said by the causes, which are about to be taken off; else by the base_url."""
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    asked = getattr(error, "retry_after", None)
    server = unreached_server(error, status=status, asked_wait=asked)
    if not server and status == 503 and asked is None:
        server = address_of(base_url_of(prompt, environ) or "")
    setattr(error, UNREACHED, server)


def _message(error: AgentRunError, prompt: Prompt) -> str:
    model = f"{prompt.provider}:{prompt.model}"
    if isinstance(error, ModelHTTPError):
        said, hint = _clip(_said(error.body)), ""
        if error.status_code == 404:
            hint = f"; is the model's name right{', and the base_url' if prompt.base_url else ''}?"
        return f"HTTP {error.status_code} from {model}{f': {said}' if said else ''}{hint}"
    # Their own texts are general; what is at the root of it says more.
    root: BaseException = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    said, why = str(error).rstrip("."), str(root) or type(root).__name__
    if said.startswith("Exceeded maximum output retries"):
        said = "no answer that fits, though it was told what does not"
    return f"{model}: {_clip(said)}{'' if why.rstrip('.') in str(error) else f': {_clip(why)}'}"


def _said(body: Any) -> str:
    """What the body of an error says in words."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        said = inner.get("message") if isinstance(inner, dict) else inner
        return str(said or body)
    return str(body or "").strip()


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST_WORDS else text[: _LONGEST_WORDS - 1] + "…"


def _without(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text


def _bare(error: Exception) -> Exception:
    """Without causes and frames: they are the libraries' own, and quote what the server said."""
    error.__cause__ = error.__context__ = None
    error.__suppress_context__ = True
    error.__notes__ = []
    return error.with_traceback(None)
