"""What an attempt used: read off a provider's response, checked, added up, shown.

A usage message says `model`, `provider`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`
(of which `cache_write_1h_tokens` for an hour, where told), `requests` and `cost`. `input_tokens` counts all that went
in, cached or not. What records and runs keep is the total: `cost`, `input_tokens`, `output_tokens`, `requests`.

The responses are known by their shape: nothing of the SDKs is imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

TOKEN_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
)
TOTALS = ("input_tokens", "output_tokens", "requests")
MOST = 2**53
"""Beyond it a number is no count of tokens, and other readers of the JSON would lose digits."""
COST_DIGITS = 10

_WHAT_WOULD_DO = (
    "give a response of the OpenAI, Anthropic or Google SDK, or a result of pydantic-ai, as it is or as its JSON; "
    "or numbers: model=, input_tokens=, output_tokens=; or cost="
)


def read_usage(response: Any) -> dict[str, Any]:
    """The usage message of a response, or of its `usage` alone (which does not say the model).

    ValueError if there is no usage in it.
    """
    usage = _usage_in(response)
    if usage is None:
        raise ValueError(f"there is no usage in {_described(response)}; {_WHAT_WOULD_DO}")
    if _has(usage, "prompt_tokens"):
        found = _of_openai_chat(usage)
    elif _has(usage, "prompt_token_count") or _has(usage, "promptTokenCount"):
        found = _of_google(usage)
    elif _has(usage, "total_input_tokens"):
        found = _of_google_interaction(usage)
    elif _has(usage, "cache_read_tokens"):
        found = _of_pydantic_ai(usage, response)
    elif _is_anthropic(usage, response):
        found = _of_anthropic(usage)
    else:
        found = _of_openai_responses(usage, response)
    for name in ("model", "model_name", "model_version", "modelVersion"):
        if "model" not in found and isinstance(model := _get(response, name), str) and model:
            found["model"] = model
    cached = (found.get("cache_read_tokens") or 0) + (found.get("cache_write_tokens") or 0)
    if cached > (found.get("input_tokens") or 0):
        # A server that counts them apart, whatever its dialect says.
        found["input_tokens"] = (found.get("input_tokens") or 0) + cached
    return check_usage(found)


def check_usage(message: Mapping[str, Any]) -> dict[str, Any]:
    """A usage message with every field, as far as it makes sense; ValueError says what does not."""
    if all(message.get(name) is None for name in ("cost", "input_tokens", "output_tokens")):
        raise ValueError(f"usage says neither tokens nor a cost; {_WHAT_WOULD_DO}")
    checked: dict[str, Any] = {}
    for name in ("model", "provider"):
        value = message.get(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"usage: {name} is {_shown(value)}; it is text")
        checked[name] = value or None
    for name in TOKEN_FIELDS:
        checked[name] = _count(name, message.get(name), 0)
    checked["requests"] = _count("requests", message.get("requests"), 1)
    if not checked["cache_write_1h_tokens"]:
        del checked["cache_write_1h_tokens"]
    elif checked["cache_write_1h_tokens"] > checked["cache_write_tokens"]:
        raise ValueError("usage: cache_write_1h_tokens is more than cache_write_tokens, which it is a part of")
    cached = checked["cache_read_tokens"] + checked["cache_write_tokens"]
    if cached > checked["input_tokens"]:
        raise ValueError(
            f"usage: input_tokens is {checked['input_tokens']}, and {cached} were read from and written to the cache; "
            f"input_tokens is the total, with these"
        )
    checked["cost"] = _cost(message.get("cost"))
    return checked


def add_usage(total: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The sum of two, each a total or a message. It has a cost if one of them has."""
    costs = [one["cost"] for one in (total, more) if one.get("cost") is not None]
    added: dict[str, Any] = {"cost": round(math.fsum(costs), COST_DIGITS)} if costs else {}
    return added | {name: (total.get(name) or 0) + (more.get(name) or 0) for name in TOTALS}


def format_cost(cost: float) -> str:
    """Money as people write it: $12.34, and of less than a dollar the digits that say something: $0.0312."""
    if cost >= 1 or not cost:
        return f"${cost:,.2f}"
    if cost < 0.000001:
        return "<$0.000001"
    digits = max(2, 2 - math.floor(math.log10(cost)))
    shown = f"{cost:.{min(digits, 6)}f}"
    while shown.endswith("0") and len(shown) > len("0.00"):
        shown = shown[:-1]
    return f"${shown}"


def format_tokens(usage: Mapping[str, Any]) -> str:
    return f"{usage.get('input_tokens') or 0:,} tokens in, {usage.get('output_tokens') or 0:,} out"


# ---- the shapes


def _usage_in(response: Any) -> Any:
    """Where the numbers are; None where there are none."""
    for name in ("usage", "usage_metadata", "usageMetadata"):
        usage = _get(response, name)
        if callable(usage) and not _has_tokens(usage):
            # pydantic-ai's was a method once.
            usage = usage()
        if usage is not None and _has_tokens(usage):
            return usage
    return response if _has_tokens(response) else None


def _has_tokens(usage: Any) -> bool:
    names = ("input_tokens", "prompt_tokens", "prompt_token_count", "promptTokenCount", "total_input_tokens")
    return any(_has(usage, name) for name in names)


def _of_openai_chat(usage: Any) -> dict[str, Any]:
    """Chat completions; embeddings, which have no completion."""
    details = _get(usage, "prompt_tokens_details")
    return {
        "provider": "openai",
        "input_tokens": _get(usage, "prompt_tokens"),
        "output_tokens": _get(usage, "completion_tokens"),
        "cache_read_tokens": _get(details, "cached_tokens"),
        "cache_write_tokens": _get(details, "cache_write_tokens"),
    }


def _of_openai_responses(usage: Any, response: Any) -> dict[str, Any]:
    details = _get(usage, "input_tokens_details")
    is_openai = details is not None or _get(response, "object") == "response"
    return {
        "provider": "openai" if is_openai else None,
        "input_tokens": _get(usage, "input_tokens"),
        "output_tokens": _get(usage, "output_tokens"),
        "cache_read_tokens": _get(details, "cached_tokens"),
        "cache_write_tokens": _get(details, "cache_write_tokens"),
    }


def _is_anthropic(usage: Any, response: Any) -> bool:
    names = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return any(_has(usage, name) for name in names) or _get(response, "type") == "message"


def _of_anthropic(usage: Any) -> dict[str, Any]:
    """Its input_tokens are those that the cache had no part in."""
    read = _count("cache_read_input_tokens", _get(usage, "cache_read_input_tokens"), 0)
    written = _count("cache_creation_input_tokens", _get(usage, "cache_creation_input_tokens"), 0)
    return {
        "provider": "anthropic",
        "input_tokens": _count("input_tokens", _get(usage, "input_tokens"), 0) + read + written,
        "output_tokens": _get(usage, "output_tokens"),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "cache_write_1h_tokens": _get(_get(usage, "cache_creation"), "ephemeral_1h_input_tokens"),
    }


def _of_google(usage: Any) -> dict[str, Any]:
    """Snake case in Python, camel case in JSON. What it thinks, it writes; what its tools say, it reads."""

    def count(*names: str) -> int:
        found = [value for name in names if (value := _get(usage, name)) is not None]
        return _count(names[0], found[0] if found else None, 0)

    tools = count("tool_use_prompt_token_count", "toolUsePromptTokenCount")
    # The live API says response for candidates.
    said = count("candidates_token_count", "candidatesTokenCount", "response_token_count", "responseTokenCount")
    return {
        "provider": "google",
        "input_tokens": count("prompt_token_count", "promptTokenCount") + tools,
        "output_tokens": said + count("thoughts_token_count", "thoughtsTokenCount"),
        "cache_read_tokens": count("cached_content_token_count", "cachedContentTokenCount"),
    }


def _of_google_interaction(usage: Any) -> dict[str, Any]:
    def count(name: str) -> int:
        return _count(name, _get(usage, name), 0)

    return {
        "provider": "google",
        "input_tokens": count("total_input_tokens") + count("total_tool_use_tokens"),
        "output_tokens": count("total_output_tokens") + count("total_thought_tokens"),
        "cache_read_tokens": count("total_cached_tokens"),
    }


def _of_pydantic_ai(usage: Any, response: Any) -> dict[str, Any]:
    """Of a run, or of one response. It may be priced already, request by request, which is more exact than we can."""
    requests = _count("requests", _get(usage, "requests"), 1)
    if missing := _count("unmeasured_requests", _get(usage, "unmeasured_requests"), 0):
        raise ValueError(
            f"{missing} of {max(missing, requests)} requests in {_described(response)} came back without usage, so "
            f"what they cost is not known; let the server report it, or give input_tokens= and output_tokens=, or cost="
        )
    last = _last_response(response)
    found = {name: _get(usage, name) for name in (*TOKEN_FIELDS, "cost")}
    found |= {"provider": _text(last, "provider_name"), "requests": requests or 1}
    if (model := _text(last, "model_name")) is not None:
        found["model"] = model
    return found


def _last_response(result: Any) -> Any:
    if _has(result, "model_name"):
        return result
    try:
        return _get(result, "response")
    except ValueError:
        # A run without any.
        return None


# ---- values


def _get(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def _has(of: Any, name: str) -> bool:
    return _get(of, name) is not None


def _text(of: Any, name: str) -> str | None:
    value = _get(of, name)
    return value if isinstance(value, str) and value else None


def _count(name: str, value: Any, otherwise: int) -> int:
    if value is None:
        return otherwise
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
        raise ValueError(f"usage: {name} is {_shown(value)}; it is a whole number, 0 or more")
    return value


def _cost(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not 0 <= value < math.inf:
        raise ValueError(f"usage: cost is {_shown(value)}; it is US dollars, 0 or more")
    return round(float(value), COST_DIGITS)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _described(response: Any) -> str:
    kind = type(response)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(response, Mapping):
        return f"this {name} (it has {', '.join(map(str, list(response)[:8])) or 'nothing'})"
    return f"this {name}"
