from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from agentrun.money.prices import price, why_no_price
from agentrun.money.usage import Reported
from agentrun.values.units import ModelPrice


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
def test_a_model_that_is_not_known_has_no_price_and_is_named(model: str, provider: str | None) -> None:
    message = used(model=model, provider=provider)
    assert price(message) is None
    assert why_no_price(message) == f'no price is known for the model "{model}"'


def test_usage_without_a_model_has_no_price() -> None:
    assert price(used()) is None
    assert why_no_price(used()) == "usage without the name of a model has no price"


OWN = {"mine": ModelPrice(1.0, 10.0), "openai:gpt-5-mini": ModelPrice(0.0, 0.0)}


def test_a_price_of_the_job_is_per_million_tokens() -> None:
    assert price(used(model="mine"), OWN) == pytest.approx(0.001 + 0.001)
    cached = {"mine": ModelPrice(1.0, 10.0, cached_input=0.1, cache_write=2.0)}
    usage = used(model="mine", cache_read_tokens=500, cache_write_tokens=100)
    assert price(usage, OWN) == pytest.approx(0.002)
    assert price(usage, cached) == pytest.approx((400 * 1.0 + 500 * 0.1 + 100 * 2.0 + 100 * 10.0) / 1e6)


def test_a_price_of_the_job_comes_before_the_list_and_a_reported_cost_before_both() -> None:
    assert price(used(model="gpt-5-mini", provider="openai"), OWN) == 0.0
    assert price(used(model="gpt-5-mini"), OWN) != 0.0, "by its exact name, or with the provider before it"
    assert price(used(model="mine", cost=0.25), OWN) == 0.25
    # What pydantic-ai has worked out by the list is no better than the list.
    assert price(used(model="mine", cost=0.25, estimated=True), OWN) == pytest.approx(0.002)
    assert price(used(model="other", cost=0.25, estimated=True), OWN) == 0.25


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
    known = 'no price is known for the model "gpt-5-mini", because the price list is not installed'
    assert done.stdout == f"None {known}\n"


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
