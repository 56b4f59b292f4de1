"""A budget and a model without a price: told before the first item where the model is known, with what works."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentrun.errors import JobError
from agentrun.job.job import ItemsSpec, Job
from agentrun.launch.pricing import check_price, how_to_price, how_to_report
from agentrun.money.usage import Reported
from agentrun.runs.plan import Plan
from agentrun.values.units import ModelPrice

LINES = ItemsSpec(kind="lines", pattern="items.txt")
BASE = Path("/base")
PROMPT = Job(
    name="ask", base=BASE, file=BASE / "job.toml", items=LINES, params={}, output="o",
    prompt="{text}", model="openai:mine", budget=1.0,
)  # fmt: skip
AGENT = Job(name="work", base=BASE, items=LINES, params={}, output="o", agent="agent.py:work", budget=1.0)
PROGRAM = Job(name="work", base=BASE, items=LINES, params={}, output="o", command=("./work.sh",), budget=1.0)
PYTHON = replace(AGENT, items=ItemsSpec(kind="python", pattern=""))
USED = Reported(model="mine", input_tokens=1, output_tokens=1)


def test_a_prompt_with_a_budget_and_no_price_is_refused() -> None:
    with pytest.raises(JobError) as caught:
        check_price(PROMPT, Plan(run=1))
    assert str(caught.value) == (
        'job.toml: a budget is set, but no price is known for the model "mine"; add [prices."mine"] to job.toml, with '
        "input = … and output = …, in US dollars per million tokens; or limit tokens in place of dollars: "
        "--budget none --token-budget 1000000"
    )


@pytest.mark.parametrize(
    ("job", "plan"),
    [
        (replace(PROMPT, prices={"mine": ModelPrice(1.0, 2.0)}), Plan(run=1)),
        (replace(PROMPT, prices={"openai:mine": ModelPrice(0.0, 0.0)}), Plan(run=1)),
        (replace(PROMPT, model="openai:gpt-5-mini"), Plan(run=1)),
        (replace(PROMPT, budget=None, token_budget=1000), Plan(run=1)),
        # Nothing is to run: what is done is completed without a price.
        (PROMPT, Plan(kept=3)),
        (PROMPT, Plan(run=2, others=2)),
        # Which model an agent will use is not known before.
        (AGENT, Plan(run=1)),
    ],
)
def test_what_has_a_price_or_needs_none_is_not(job: Job, plan: Plan) -> None:
    check_price(job, plan)


@pytest.mark.parametrize(
    ("job", "reported", "advice"),
    [
        (AGENT, USED, "give the cost: ctx.usage(response, cost=…); or limit tokens"),
        (replace(AGENT, file=BASE / "job.toml"), USED, 'add [prices."mine"] to job.toml, with input = … and output'),
        (PROGRAM, USED, "give the cost in the program: agentrun usage --cost …; or limit tokens"),
        (PROGRAM, Reported(input_tokens=1), "name the model: agentrun usage --model …; or limit tokens"),
        (replace(PROGRAM, serve=True), Reported(input_tokens=1), 'name the model: {"type": "usage", "model": …}'),
        (PYTHON, USED, 'give prices={"mine": {"input": …, "output": …}}, in US dollars per million tokens; or limit'),
        (PYTHON, USED, 'limit tokens in place of dollars: budget="none", token_budget=1_000_000'),
    ],
)
def test_the_advice_fits_the_kind_of_agent(job: Job, reported: Reported, advice: str) -> None:
    assert advice in how_to_price(job, reported)


@pytest.mark.parametrize(
    ("job", "advice"),
    [
        (AGENT, "report it: ctx.usage(response), or ctx.usage(cost=0) if it is free; or remove the budget: "),
        (PROGRAM, "report it in the program: agentrun usage --response FILE, or agentrun usage --cost 0 if it is free"),
        (replace(AGENT, token_budget=9), "remove the budget: --budget none --token-budget none"),
        (replace(AGENT, budget=None, token_budget=9), "remove the budget: --token-budget none"),
        (PYTHON, 'remove the budget: budget="none"'),
        (PROMPT, "this server does not report usage; remove the budget: --budget none"),
    ],
)
def test_silence_has_its_advice_too(job: Job, advice: str) -> None:
    assert advice in how_to_report(job)
