from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from agentrun.money.providers import read_usage
from agentrun.money.usage import Reported, Usage, format_cost, format_tokens

# The providers' JSON, as their SDKs hold it in objects with the same names.
CHAT = {
    "object": "chat.completion",
    "model": "gpt-5-mini-2025-08-07",
    "choices": [],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "total_tokens": 110,
        "prompt_tokens_details": {"cached_tokens": 40, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
}
RESPONSES = {
    "object": "response",
    "model": "gpt-5-mini",
    "output": [],
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 7},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 110,
    },
}
EMBEDDING = {
    "object": "list",
    "model": "text-embedding-3-small",
    "data": [],
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}
ANTHROPIC = {
    "type": "message",
    "model": "claude-sonnet-4-5-20250929",
    "content": [],
    "usage": {
        "input_tokens": 50,
        "output_tokens": 7,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 200,
        "cache_creation": {"ephemeral_5m_input_tokens": 80, "ephemeral_1h_input_tokens": 120},
        "service_tier": "standard",
    },
}
GOOGLE = {
    "model_version": "gemini-2.5-flash",
    "candidates": [],
    "usage_metadata": {
        "prompt_token_count": 100,
        "candidates_token_count": 10,
        "thoughts_token_count": 30,
        "cached_content_token_count": 20,
        "tool_use_prompt_token_count": 3,
        "total_token_count": 143,
    },
}
GOOGLE_JSON = {
    "modelVersion": "gemini-2.5-flash",
    "candidates": [],
    "usageMetadata": {
        "promptTokenCount": 100,
        "candidatesTokenCount": 10,
        "thoughtsTokenCount": 30,
        "cachedContentTokenCount": 20,
        "toolUsePromptTokenCount": 3,
        "totalTokenCount": 143,
    },
}
INTERACTION = {
    "model": "gemini-2.5-flash",
    "usage": {
        "total_input_tokens": 100,
        "total_output_tokens": 10,
        "total_thought_tokens": 30,
        "total_cached_tokens": 20,
        "total_tool_use_tokens": 3,
        "total_tokens": 143,
    },
}

GEMINI = {
    "provider": "google",
    "model": "gemini-2.5-flash",
    "input_tokens": 103,
    "output_tokens": 40,
    "cache_read_tokens": 20,
}
SAID: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        CHAT,
        {
            "provider": "openai",
            "model": "gpt-5-mini-2025-08-07",
            "input_tokens": 100,
            "output_tokens": 10,
            "cache_read_tokens": 40,
        },
    ),
    (
        RESPONSES,
        {
            "provider": "openai",
            "model": "gpt-5-mini",
            "input_tokens": 100,
            "output_tokens": 10,
            "cache_read_tokens": 40,
            "cache_write_tokens": 7,
        },
    ),
    (EMBEDDING, {"provider": "openai", "model": "text-embedding-3-small", "input_tokens": 5, "output_tokens": 0}),
    (
        ANTHROPIC,
        {
            "provider": "anthropic",
            "model": "claude-sonnet-4-5-20250929",
            "input_tokens": 1250,
            "output_tokens": 7,
            "cache_read_tokens": 1000,
            "cache_write_tokens": 200,
            "cache_write_1h_tokens": 120,
        },
    ),
    (GOOGLE, GEMINI),
    (GOOGLE_JSON, GEMINI),
    (INTERACTION, GEMINI),
]


def as_object(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_object(one) for name, one in value.items()})
    return value


@pytest.mark.parametrize(("response", "said"), SAID, ids=["chat", "responses", "embed", "anthropic", "g", "json", "i"])
def test_a_response_is_read_as_an_object_and_as_its_json(response: dict[str, Any], said: dict[str, Any]) -> None:
    assert read_usage(response) == Reported(**said)
    assert read_usage(as_object(response)) == Reported(**said)


def test_usage_alone_is_read_without_a_model() -> None:
    read = read_usage(as_object(ANTHROPIC).usage)
    assert (read.model, read.provider, read.input_tokens) == (None, "anthropic", 1250)
    assert read_usage(CHAT["usage"]).input_tokens == 100
    assert read_usage({"input_tokens": 3, "output_tokens": 2}).provider is None


def test_a_message_of_anthropic_without_a_cache_is_known_by_its_type() -> None:
    read = read_usage({"type": "message", "model": "claude", "usage": {"input_tokens": 3, "output_tokens": 2}})
    assert (read.provider, read.input_tokens) == ("anthropic", 3)


def test_counts_that_are_not_told_are_none() -> None:
    chat = as_object({**CHAT, "usage": {**CHAT["usage"], "prompt_tokens_details": None}})  # type: ignore[dict-item]
    assert read_usage(chat).cache_read_tokens == 0
    google = as_object({**GOOGLE, "usage_metadata": {"prompt_token_count": 4, "candidates_token_count": None}})
    assert (read_usage(google).input_tokens, read_usage(google).output_tokens) == (4, 0)


def test_a_server_that_counts_cached_tokens_apart_is_believed() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 90}}
    assert read_usage({"model": "m", "usage": usage}).input_tokens == 100


@dataclass
class RunUsage:
    """As pydantic-ai has it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    requests: int = 0
    unmeasured_requests: int = 0
    cost: Decimal | None = None
    details: dict[str, int] = field(default_factory=dict)


@dataclass
class CallableUsage(RunUsage):
    """For a while it was both: an attribute, and a call that warns."""

    def __call__(self) -> RunUsage:
        raise DeprecationWarning("use .usage")


class Result:
    def __init__(self, usage: Any, model: str | None = "gpt-5-mini") -> None:
        self.usage = usage
        self._model = model

    @property
    def response(self) -> Any:
        if self._model is None:
            raise ValueError("No response found in the message history")
        return SimpleNamespace(model_name=self._model, provider_name="openai", usage=RunUsage(1, 1, requests=1))


RUN: dict[str, Any] = {"input_tokens": 60, "output_tokens": 5, "cache_read_tokens": 30, "requests": 3}


@pytest.mark.parametrize(
    "usage", [RunUsage(**RUN), CallableUsage(**RUN), lambda: RunUsage(**RUN)], ids=["attribute", "both", "method"]
)
def test_a_result_of_pydantic_ai_counts_the_whole_run(usage: Any) -> None:
    assert read_usage(Result(usage)) == Reported(
        provider="openai", model="gpt-5-mini", input_tokens=60, output_tokens=5, cache_read_tokens=30, requests=3
    )


def test_what_pydantic_ai_has_priced_is_taken_over() -> None:
    assert read_usage(Result(RunUsage(1, 1, requests=1, cost=Decimal("0.0125")))).cost == 0.0125


def test_a_run_without_a_response_has_no_model() -> None:
    assert read_usage(Result(RunUsage(1, 1), None)).model is None


def test_requests_that_came_back_without_usage_are_not_taken_for_free() -> None:
    with pytest.raises(ValueError, match=r"1 of 3 requests in this .*Result came back without usage.*cost="):
        read_usage(Result(RunUsage(9, 9, requests=3, unmeasured_requests=1)))


LANGCHAIN = {
    "type": "ai",
    "content": "Hello",
    "usage_metadata": {
        "input_tokens": 20,
        "output_tokens": 5,
        "total_tokens": 25,
        "input_token_details": {"cache_read": 8, "cache_creation": 4},
    },
    "response_metadata": {"model_name": "gpt-x", "model_provider": "openai", "finish_reason": "stop"},
}
AGENTS_SDK = {
    "requests": 3,
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 25,
    "request_usage_entries": [],
}
CLAUDE = {
    "subtype": "success",
    "num_turns": 4,
    "total_cost_usd": 0.25,
    "usage": {"input_tokens": 6, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 4, "output_tokens": 5},
    "model_usage": {"claude-x": {"inputTokens": 6}},
    "result": "Hello",
}


@pytest.mark.parametrize("shape", [lambda given: given, as_object], ids=["json", "object"])
def test_a_message_of_langchain_names_model_provider_and_cached_tokens(shape: Any) -> None:
    said = read_usage(shape(LANGCHAIN))
    assert (said.model, said.provider, said.input_tokens, said.output_tokens) == ("gpt-x", "openai", 20, 5)
    assert (said.cache_read_tokens, said.cache_write_tokens) == (8, 4)


@pytest.mark.parametrize("shape", [lambda given: given, as_object], ids=["json", "object"])
def test_what_the_agents_sdk_adds_up_has_its_number_of_requests(shape: Any) -> None:
    for given in (AGENTS_SDK, {"context_wrapper": {"usage": AGENTS_SDK}}):
        said = read_usage(shape(given))
        assert (said.requests, said.input_tokens, said.output_tokens, said.cache_read_tokens) == (3, 20, 5, 8)


@pytest.mark.parametrize("shape", [lambda given: given, as_object], ids=["json", "object"])
def test_a_result_of_the_claude_agent_sdk_has_its_cost(shape: Any) -> None:
    # Mappings within an object stay mappings in this SDK.
    said = read_usage(shape(CLAUDE) if shape is not as_object else SimpleNamespace(**CLAUDE))
    assert (said.model, said.requests, said.cost, said.estimated) == ("claude-x", 4, 0.25, True)
    assert (said.input_tokens, said.output_tokens, said.cache_read_tokens, said.cache_write_tokens) == (20, 5, 10, 4)
    both = read_usage({**CLAUDE, "model_usage": {"claude-x": {}, "claude-y": {}}})
    assert both.model is None and both.cost == 0.25
    assert read_usage({"total_cost_usd": 0.5, "usage": None}).cost == 0.5


def test_a_response_of_litellm_has_its_provider_and_its_cost() -> None:
    response = as_object({"model": "claude-x", "usage": {"prompt_tokens": 10, "completion_tokens": 2}})
    assert read_usage(response).provider == "openai"
    response._hidden_params = {"custom_llm_provider": "anthropic", "response_cost": 0.0125}
    said = read_usage(response)
    assert (said.model, said.provider, said.cost, said.estimated) == ("claude-x", "anthropic", 0.0125, True)
    response._hidden_params = {"custom_llm_provider": "ollama", "response_cost": None}
    assert read_usage(response).cost is None


@pytest.mark.parametrize("given", [{}, {"choices": []}, "text", None, 3, as_object({"usage": None, "model": "m"})])
def test_what_has_no_usage_is_refused_with_what_would_do(given: Any) -> None:
    with pytest.raises(ValueError, match=r"this .* has no usage.*input_tokens=, output_tokens=; or cost="):
        read_usage(given)


def test_what_was_given_is_named() -> None:
    with pytest.raises(ValueError, match=r"this dict \(it has id, choices\)"):
        read_usage({"id": 1, "choices": []})


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({}, "has neither tokens nor a cost"),
        ({"model": "m"}, "has neither tokens nor a cost"),
        ({"input_tokens": -1}, "input_tokens is -1; it must be a whole number, 0 or more"),
        ({"input_tokens": 1.5}, "input_tokens is 1.5"),
        ({"input_tokens": True}, "input_tokens is true"),
        ({"input_tokens": "12"}, 'input_tokens is "12"'),
        ({"output_tokens": 2**60}, "output_tokens is 1152921504606846976"),
        ({"cost": 1, "requests": -2}, "requests is -2"),
        ({"cost": float("nan")}, "cost is NaN; it must be US dollars"),
        ({"cost": float("inf")}, "cost is Infinity"),
        ({"cost": 1e300}, "at most 2"),
        ({"cost": -0.01}, "cost is -0.01"),
        ({"cost": "3"}, 'cost is "3"'),
        ({"cost": 1, "model": 3}, "model is 3; it must be text"),
        ({"input_tokens": 5, "cache_read_tokens": 4, "cache_write_tokens": 2}, "input_tokens is the total"),
        ({"input_tokens": 5, "cache_write_tokens": 1, "cache_write_1h_tokens": 2}, "which includes it"),
    ],
)
def test_a_message_that_makes_no_sense_is_refused(message: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError) as caught:
        Reported.read(message)
    assert why in str(caught.value)


@pytest.mark.parametrize("cost", [1e308, math.inf, -math.inf, math.nan, -1, 10**400, Decimal("NaN"), True, "1"])
def test_a_cost_that_nothing_can_hold_is_refused(cost: Any) -> None:
    with pytest.raises(ValueError, match=r"usage: cost is .*; it must be US dollars, 0 or more, and at most 2\*\*53"):
        Reported(cost=cost)


@pytest.mark.parametrize("tokens", [10**400, 2**53 + 1, -1, 1.5])
def test_a_count_that_nothing_can_hold_is_refused(tokens: Any) -> None:
    with pytest.raises(ValueError, match=r"input_tokens is .*; it must be a whole number, 0 or more, and at most"):
        Reported(input_tokens=tokens)


def test_a_number_that_python_does_not_write_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="input_tokens is a very large int; it must be"):
        Reported(input_tokens=10**5000)


def test_totals_have_room_up_to_what_every_reader_of_json_counts_exactly() -> None:
    total = Usage(input_tokens=2**53 - 10, requests=1)
    assert total.has_room_for(Usage(output_tokens=10, cost=2.0**53))
    assert not total.has_room_for(Usage(output_tokens=11))
    assert not Usage(cost=2.0**53).has_room_for(Usage(cost=2.0))
    assert not Usage(requests=2**53).has_room_for(Usage(requests=1))


def test_a_report_has_every_field() -> None:
    read = Reported.read({"cost": 0})
    assert (read.model, read.provider, read.cost) == (None, None, 0.0)
    assert (read.input_tokens, read.output_tokens, read.requests) == (0, 0, 1)
    assert (read.cache_read_tokens, read.cache_write_tokens, read.cache_write_1h_tokens) == (0, 0, 0)
    assert Reported.read({"input_tokens": 3, "type": "usage", "requests": 0}).requests == 0
    assert Reported(cost=1, model="").model is None


def test_sums_have_a_cost_if_one_part_has_and_stay_readable() -> None:
    total = Usage()
    total.add(Usage())
    assert total.as_json() == {}
    for _ in range(10):
        total.add(Usage.of(Reported(cost=0.1, input_tokens=3)))
    assert total.as_json() == {"cost": 1.0, "input_tokens": 30, "output_tokens": 0, "requests": 10}
    total.add(Usage(input_tokens=1))
    assert (total.cost, total.tokens) == (1.0, 31)
    free = Usage(cost=0.0)
    free.add(Usage())
    assert free.as_json() == {"cost": 0.0, "input_tokens": 0, "output_tokens": 0, "requests": 0}


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        (0, "$0.00"),
        (0.0312, "$0.0312"),
        (0.03, "$0.03"),
        (0.5, "$0.50"),
        (0.1234, "$0.123"),
        (0.000123456, "$0.000123"),
        (0.0000001, "<$0.000001"),
        (1.0, "$1.00"),
        (12.345, "$12.35"),
        (0.9999, "$1.00"),
        (1234567.891, "$1,234,567.89"),
    ],
)
def test_money_has_the_digits_that_say_something(cost: float, shown: str) -> None:
    assert format_cost(cost) == shown


def test_tokens_in_words() -> None:
    assert format_tokens(Usage(input_tokens=12345, output_tokens=6)) == "12,345 tokens in, 6 out"


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, agentrun.money.usage, agentrun.money.prices; "
        "print({'genai_prices', 'pydantic', 'httpx'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
