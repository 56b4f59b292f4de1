"""The usage in a provider's response, recognised by its shape: nothing of an SDK is imported.

Not by `genai_prices.extract_usage`: it has to be told the provider and the API (up to 58 of its extractors accept one
response, with different counts), reads only the camel-case JSON and no SDK's objects, and is there only with the extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from agentrun.money.usage import WHAT_WOULD_DO, Reported, whole_number


def read_usage(response: Any) -> Reported:
    """The usage in a response, or of its `usage` alone (which does not name the model).

    ValueError if it has no usage.
    """
    if _has(response, "total_cost_usd"):
        return _of_claude_agent(response)
    usage = _usage_in(response)
    if usage is None:
        raise ValueError(f"{_described(response)} has no usage; {WHAT_WOULD_DO}")
    if _has(usage, "prompt_tokens"):
        found = _of_openai_chat(usage)
    elif _has(usage, "prompt_token_count") or _has(usage, "promptTokenCount"):
        found = _of_google(usage)
    elif _has(usage, "total_input_tokens"):
        found = _of_google_interaction(usage)
    elif _has(usage, "cache_read_tokens"):
        found = _of_pydantic_ai(usage, response)
    elif _has(response, "response_metadata") or _has(usage, "input_token_details"):
        found = _of_langchain(usage, response)
    elif _is_anthropic(usage, response):
        found = _of_anthropic(usage)
    else:
        found = _of_openai_responses(usage, response)
    for name in ("model", "model_name", "model_version", "modelVersion"):
        if found.model is None and (model := _text(response, name)) is not None:
            found = replace(found, model=model)
    return _with_cost_of_litellm(found, response)


def _usage_in(response: Any) -> Any:
    """The part with the numbers; None if there is none."""
    for name in ("usage", "usage_metadata", "usageMetadata"):
        usage = _get(response, name)
        if callable(usage) and not _has_tokens(usage):
            # In older versions of pydantic-ai it is a method.
            usage = usage()
        if usage is not None and _has_tokens(usage):
            return usage
    of_run = _get(_get(response, "context_wrapper"), "usage")  # a result of the OpenAI Agents SDK
    if of_run is not None:
        return of_run
    return response if _has_tokens(response) else None


def _has_tokens(usage: Any) -> bool:
    names = ("input_tokens", "prompt_tokens", "prompt_token_count", "promptTokenCount", "total_input_tokens")
    return any(_has(usage, name) for name in names)


def _of_openai_chat(usage: Any) -> Reported:
    """Chat completions; embeddings, which have no completion."""
    details = _get(usage, "prompt_tokens_details")
    return _reported(
        provider="openai",
        input_tokens=_get(usage, "prompt_tokens"),
        output_tokens=_get(usage, "completion_tokens"),
        cache_read_tokens=_get(details, "cached_tokens"),
        cache_write_tokens=_get(details, "cache_write_tokens"),
    )


def _of_openai_responses(usage: Any, response: Any) -> Reported:
    details = _get(usage, "input_tokens_details")
    is_openai = details is not None or _get(response, "object") == "response"
    return _reported(
        provider="openai" if is_openai else None,
        input_tokens=_get(usage, "input_tokens"),
        output_tokens=_get(usage, "output_tokens"),
        cache_read_tokens=_get(details, "cached_tokens"),
        cache_write_tokens=_get(details, "cache_write_tokens"),
        # The Agents SDK adds the requests of a run up.
        requests=whole_number("requests", _get(usage, "requests"), 1) or 1,
    )


def _is_anthropic(usage: Any, response: Any) -> bool:
    names = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return any(_has(usage, name) for name in names) or _get(response, "type") == "message"


def _of_anthropic(usage: Any) -> Reported:
    """Its input_tokens exclude cached tokens."""
    read = whole_number("cache_read_input_tokens", _get(usage, "cache_read_input_tokens"), 0)
    written = whole_number("cache_creation_input_tokens", _get(usage, "cache_creation_input_tokens"), 0)
    return _reported(
        provider="anthropic",
        input_tokens=whole_number("input_tokens", _get(usage, "input_tokens"), 0) + read + written,
        output_tokens=_get(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=_get(_get(usage, "cache_creation"), "ephemeral_1h_input_tokens"),
    )


def _of_google(usage: Any) -> Reported:
    """Snake case in Python, camel case in JSON. Thoughts count as output, tool results as input."""

    def count(*names: str) -> int:
        found = [value for name in names if (value := _get(usage, name)) is not None]
        return whole_number(names[0], found[0] if found else None, 0)

    tools = count("tool_use_prompt_token_count", "toolUsePromptTokenCount")
    # The live API calls candidates "response".
    said = count("candidates_token_count", "candidatesTokenCount", "response_token_count", "responseTokenCount")
    return _reported(
        provider="google",
        input_tokens=count("prompt_token_count", "promptTokenCount") + tools,
        output_tokens=said + count("thoughts_token_count", "thoughtsTokenCount"),
        cache_read_tokens=count("cached_content_token_count", "cachedContentTokenCount"),
    )


def _of_google_interaction(usage: Any) -> Reported:
    def count(name: str) -> int:
        return whole_number(name, _get(usage, name), 0)

    return _reported(
        provider="google",
        input_tokens=count("total_input_tokens") + count("total_tool_use_tokens"),
        output_tokens=count("total_output_tokens") + count("total_thought_tokens"),
        cache_read_tokens=count("total_cached_tokens"),
    )


def _of_pydantic_ai(usage: Any, response: Any) -> Reported:
    """Of a run, or of one response. It may have a cost already, computed per request, which is more exact than ours:
    an estimate by the price list all the same."""
    requests = whole_number("requests", _get(usage, "requests"), 1)
    if missing := whole_number("unmeasured_requests", _get(usage, "unmeasured_requests"), 0):
        raise ValueError(
            f"{missing} of {max(missing, requests)} requests in {_described(response)} came back without usage, so "
            f"their cost is unknown; let the server report it, or give input_tokens= and output_tokens=, or cost="
        )
    last = _last_response(response)
    return _reported(
        model=_text(last, "model_name"),
        provider=_text(last, "provider_name"),
        input_tokens=_get(usage, "input_tokens"),
        output_tokens=_get(usage, "output_tokens"),
        cache_read_tokens=_get(usage, "cache_read_tokens"),
        cache_write_tokens=_get(usage, "cache_write_tokens"),
        cache_write_1h_tokens=_get(usage, "cache_write_1h_tokens"),
        requests=requests or 1,
        cost=_get(usage, "cost"),
    )


def _of_langchain(usage: Any, response: Any) -> Reported:
    """A message of LangChain, or its usage_metadata alone. Its input_tokens include cached tokens."""
    about, details = _get(response, "response_metadata"), _get(usage, "input_token_details")
    return _reported(
        model=_text(about, "model_name") or _text(about, "model"),
        provider=_text(about, "model_provider"),
        input_tokens=_get(usage, "input_tokens"),
        output_tokens=_get(usage, "output_tokens"),
        cache_read_tokens=_get(details, "cache_read"),
        cache_write_tokens=_get(details, "cache_creation"),
    )


def _of_claude_agent(result: Any) -> Reported:
    """The result of the Claude Agent SDK, or of `claude --output-format json`: of a whole session, with its cost."""
    usage, models = _get(result, "usage"), _get(result, "model_usage") or _get(result, "modelUsage") or {}
    found = _of_anthropic(usage or {})
    return replace(
        found,
        model=next(iter(models)) if len(models) == 1 else None,
        requests=whole_number("num_turns", _get(result, "num_turns"), 1) or 1,
        cost=_get(result, "total_cost_usd"),
        estimated=True,
    )


def _with_cost_of_litellm(found: Reported, response: Any) -> Reported:
    """LiteLLM's response is OpenAI's, and says beside it which provider answered and what that cost."""
    hidden = getattr(response, "_hidden_params", None)
    if not isinstance(hidden, Mapping):
        return found
    cost, provider = hidden.get("response_cost"), _text(hidden, "custom_llm_provider")
    if cost is not None:
        found = replace(found, cost=cost, estimated=True)
    return replace(found, provider=provider) if provider else found


def _reported(
    *,
    model: str | None = None,
    provider: str | None,
    input_tokens: Any,
    output_tokens: Any,
    cache_read_tokens: Any,
    cache_write_tokens: Any = None,
    cache_write_1h_tokens: Any = None,
    requests: int = 1,
    cost: Any = None,
) -> Reported:
    """The report with these values, which are as the response has them: a count may be None."""
    total = whole_number("input_tokens", input_tokens, 0)
    read = whole_number("cache_read_tokens", cache_read_tokens, 0)
    written = whole_number("cache_write_tokens", cache_write_tokens, 0)
    if read + written > total:
        # This server counts cached tokens separately, whatever its API says.
        total += read + written
    return Reported(
        model=model,
        provider=provider,
        input_tokens=total,
        output_tokens=output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=cache_write_1h_tokens,
        requests=requests,
        cost=cost,
        estimated=cost is not None,
    )


def _last_response(result: Any) -> Any:
    if _has(result, "model_name"):
        return result
    try:
        return _get(result, "response")
    except ValueError:
        # A run without any response.
        return None


def _get(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def _has(of: Any, name: str) -> bool:
    return _get(of, name) is not None


def _text(of: Any, name: str) -> str | None:
    value = _get(of, name)
    return value if isinstance(value, str) and value else None


def _described(response: Any) -> str:
    kind = type(response)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(response, Mapping):
        return f"this {name} (it has {', '.join(map(str, list(response)[:8])) or 'nothing'})"
    return f"this {name}"
