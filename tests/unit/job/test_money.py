"""What a job says about money: budgets, also removed ones, and the prices of models."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import JobError
from agentrun.job.build import build_job
from agentrun.job.fields import Layer
from agentrun.job.job import Job
from agentrun.job.money import price_table
from agentrun.values.units import ModelPrice

LEAST = 'agent = "agent.py:work"\n[items]\nlines = "items.txt"\n'


def build(text: str, flags: dict[str, Any] | None = None) -> Job:
    layers = [Layer("job.toml", tomllib.loads(LEAST + text), LEAST + text), Layer("command line", flags or {})]
    return build_job(layers, base=Path("/base"), file=Path("/base/job.toml"), default_name="job")


def test_prices_are_read_by_the_name_of_the_model() -> None:
    job = build("""
        [prices."gpt-4.1"]
        input = 2
        output = 8.0
        cached_input = 0.5
        cache_write = 2.5
        [prices.mine]
        input = 0
        output = 0
    """)
    assert job.prices == {"gpt-4.1": ModelPrice(2.0, 8.0, 0.5, 2.5), "mine": ModelPrice(0.0, 0.0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[prices.m]\ninput = 1\n", "line 4: prices.m has no output; write output = …, in US dollars per million"),
        ('[prices.m]\ninput = 1\noutput = "2"\n', 'line 6: prices.m.output is "2"; write a number, in US dollars'),
        ("[prices.m]\ninput = -1\noutput = 2\n", "line 5: prices.m.input is -1; write a number"),
        ("[prices.m]\ninput = nan\noutput = 2\n", "line 5: prices.m.input is"),
        ("[prices.m]\ninput = true\noutput = 2\n", "line 5: prices.m.input is true"),
        ("[prices.m]\ninput = 1\noutput = 2\ncached = 1\n", "line 7: prices.m.cached is not a known key; did you mean"),
        ("[prices]\nm = 3\n", "line 5: prices.m is 3; write a table with the model's name: [prices.\"m\"]"),
        ("[prices]\ninput = 3\n", "line 5: prices.input is 3; write a table with the model's name: [prices."),
        ("[prices.gpt-4.1]\ninput = 1\noutput = 2\n", 'line 4: prices.gpt-4.1 is a table inside that of "gpt-4"; put'),
        ("[run]\nbudget = 0\n", 'line 5: run.budget is 0; write US dollars, such as 5.00 ("none": no budget)'),
        ('[run]\ntoken_budget = "many"\n', 'line 5: run.token_budget is "many"; write a whole number, 1 or more ('),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_line_and_what_would_do(text: str, message: str) -> None:
    with pytest.raises(JobError) as caught:
        build(text)
    assert str(caught.value).startswith("job.toml: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("model", ["m", "gpt-4.1", 'a "b"\\c', "org/model:8b"])
def test_the_table_that_a_message_names_is_read_as_that_model(model: str) -> None:
    assert set(build(f"{price_table(model)}\ninput = 1\noutput = 2\n").prices) == {model}


@pytest.mark.parametrize("key", ["budget", "token_budget"])
def test_none_removes_the_budget_of_a_weaker_layer(key: str) -> None:
    text = f"[run]\n{key} = 5\n"
    assert getattr(build(text), key) == 5
    assert getattr(build(text, {"run": {key: "none"}}), key) is None
    assert getattr(build(f'[run]\n{key} = "none"\n', {"run": {key: 7}}), key) == 7


def test_a_stronger_layer_has_its_own_price_for_a_model() -> None:
    job = build("[prices.m]\ninput = 1\noutput = 2\n", {"prices": {"m": {"input": 3, "output": 4}}})
    assert job.prices == {"m": ModelPrice(3.0, 4.0)}
