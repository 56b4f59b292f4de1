from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from agentrun.money.prices import price, why_no_price
from agentrun.money.usage import Reported


def used(**fields: Any) -> Reported:
    return Reported(**{"input_tokens": 1000, "output_tokens": 100, **fields})


def test_a_cost_that_is_given_is_the_price() -> None:
    assert price(used(cost=0.25, model="gpt-5-mini")) == 0.25
    assert price(Reported(cost=0)) == 0.0


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-5-mini", "openai"),
        ("gpt-5-mini-2025-08-07", "openai"),
        ("gpt-5-mini", None),
        ("openai:gpt-5-mini", None),
        ("openai-responses:gpt-5-mini", None),
        ("claude-sonnet-4-5-20250929", "anthropic"),
        ("anthropic:claude-sonnet-4-5", None),
        ("gemini-2.5-flash", "google"),
        ("models/gemini-2.5-flash", "google"),
        ("google-gla:gemini-2.5-flash", None),
        ("gemini-2.5-flash", "google-vertex"),
        # Through OpenAI's SDK, at another provider.
        ("deepseek-chat", "openai"),
    ],
)
def test_a_known_model_has_a_price(model: str, provider: str | None) -> None:
    cost = price(used(model=model, provider=provider))
    assert cost is not None and 0 < cost < 0.1


def test_the_names_of_one_model_have_one_price() -> None:
    names = [("gpt-5-mini", "openai"), ("openai:gpt-5-mini", None), ("gpt-5-mini-2025-08-07", None)]
    assert len({price(used(model=model, provider=provider)) for model, provider in names}) == 1


def test_what_came_from_the_cache_is_cheaper_and_an_hour_in_it_dearer() -> None:
    def claude(**fields: Any) -> float:
        cost = price(used(model="claude-sonnet-4-5", provider="anthropic", **fields))
        assert cost is not None
        return cost

    assert claude(cache_read_tokens=900) < claude() < claude(cache_write_tokens=900)
    assert claude(cache_write_tokens=900) < claude(cache_write_tokens=900, cache_write_1h_tokens=900)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("foo", None),
        ("foo", "openai"),
        ("gpt-5-mini", "nobody-knows"),
        ("llama3.2:3b", "openai"),
        ("deepseek-r1:8b", "openai"),
        ("meta-llama/Llama-3.1-8B-Instruct", "openai"),
        (":", None),
    ],
)
def test_a_model_that_is_not_known_has_no_price_and_the_line_to_add_is_told(model: str, provider: str | None) -> None:
    message = used(model=model, provider=provider)
    assert price(message) is None
    assert why_no_price(message) == (
        f'no price is known for the model "{model}"; '
        f"give the cost: ctx.usage(response, cost=…), or ctx.usage(cost=0) if it is free"
    )


def test_usage_without_a_model_has_no_price() -> None:
    assert price(used()) is None
    assert "ctx.usage(response, model=…)" in why_no_price(used())


def test_without_the_price_list_there_is_no_price_and_the_extra_is_named() -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name == "genai_prices":
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Missing())
from agentrun.money.prices import price, why_no_price
from agentrun.money.usage import Reported
message = Reported(model="gpt-5-mini", input_tokens=3)
print(price(message), why_no_price(message))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("None prices need the extra llm")
    assert "ctx.usage(response, cost=…)" in done.stdout


def test_nothing_is_fetched() -> None:
    code = """
import sys, threading
def refuse(event, args):
    assert event not in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"), event
sys.addaudithook(refuse)
from agentrun.money.prices import price
from agentrun.money.usage import Reported
assert price(Reported(model="gpt-5-mini", input_tokens=3)) is not None
assert threading.active_count() == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    before = threading.active_count()
    price(used(model="gpt-5-mini"))
    assert threading.active_count() == before
