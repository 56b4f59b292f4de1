"""Under a budget every usage needs a price: what to do where one is missing. Whatever is suggested here works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agentrun.errors import JobError
from agentrun.job.job import Job
from agentrun.job.money import BUDGETS, PER_MILLION, price_table
from agentrun.money.prices import has_price_list, price, why_no_price
from agentrun.money.usage import Reported
from agentrun.runs.plan import Plan
from agentrun.values.text import quoted

_TOKENS = 1_000_000
"""A token budget to begin with."""
_ITEM_TOKENS = 100_000
"""The same for one item."""
_IN_PYTHON = {
    "model": "ctx.usage(response, model=…)",
    "cost": "ctx.usage(response, cost=…)",
    "response": "ctx.usage(response)",
    "free": "ctx.usage(cost=0)",
}
_IN_PROGRAM = {
    "model": "agentrun usage --model …",
    "cost": "agentrun usage --cost …",
    "response": "agentrun usage --response FILE",
    "free": "agentrun usage --cost 0",
}
_IN_SERVED = {
    "model": '{"type": "usage", "model": …}',
    "cost": '{"type": "usage", "cost": …}',
    "response": '{"type": "usage", "model": …, "input_tokens": …, "output_tokens": …}',
    "free": '{"type": "usage", "cost": 0}',
}


def check_price(job: Job, plan: Plan) -> None:
    """JobError if a budget is set and the model of what is to run, where it is known before, has no price."""
    if not needs_prices(job) or job.model is None or plan.to_run <= plan.others:
        return
    provider, _, model = job.model.partition(":")
    asked = Reported(model=model, provider=provider, input_tokens=1, output_tokens=1)
    if price(asked, job.prices) is None:
        where = job.file.name if job.file is not None else job.name
        raise JobError(f"{where}: {no_price(asked)}; {how_to_price(job, asked)}", where=where, key="run.budget")


def needs_prices(job: Job) -> bool:
    """Whether every usage must have a price: dollars are limited, for the run or for an item."""
    return job.budget is not None or job.item_budget is not None


def no_price(reported: Reported) -> str:
    return f"a budget is set, but {why_no_price(reported)}"


def how_to_price(job: Job, reported: Reported) -> str:
    """What gives the usage a price, or does without."""
    ways = []
    if reported.model is None:
        ways.append(f"name the model: {_usage_call(job, 'model')}")
    elif job.file is not None:
        ways.append(
            f"add {price_table(reported.model)} to {job.file.name}, with input = … and output = …, {PER_MILLION}"
        )
    elif job.items.kind == "python":
        prices = f'prices={{{quoted(reported.model)}: {{"input": …, "output": …}}}}'
        ways.append(f"give {prices}, {PER_MILLION}")
    elif job.prompt is None:
        where = "" if job.command is None else " in the program"
        ways.append(f"give the cost{where}: {_usage_call(job, 'cost')}")
    if reported.model is not None and not has_price_list():
        ways.append('install agentrun-batch with the extra llm, as in pip install -e ".[llm]"')
    dollars = [("budget", job.budget, _TOKENS), ("item_budget", job.item_budget, _ITEM_TOKENS)]
    instead: list[tuple[str, str | int]] = []
    for name, limit, tokens in dollars:
        instead += [(name, "none"), (name.replace("budget", "token_budget"), tokens)] if limit is not None else []
    ways.append(f"limit tokens in place of dollars: {_given(job, instead)}")
    return "; or ".join(ways)


def how_to_report(job: Job) -> str:
    """What makes an agent report its usage, or does without."""
    limits = [(name, getattr(job, name)) for name in BUDGETS]
    without = _given(job, [(name, "none") for name, limit in limits if limit is not None])
    if job.prompt is not None:
        return f"this server does not report usage; remove the budget: {without}"
    report, free = _usage_call(job, "response"), _usage_call(job, "free")
    where = "" if job.command is None else " in the program"
    return f"report it{where}: {report}, or {free} if it is free; or remove the budget: {without}"


def no_usage(job: Job, key: str) -> str:
    """Without knowing what the items use, a limit for tokens means little: that, and what makes an agent report it."""
    said = f'tokens is set, but "{key}" finished without reporting its usage, and counts as none'
    if job.prompt is not None:
        return f"{said}; this server does not report usage; limit the requests with rate instead"
    return f"{said}; report it{'' if job.command is None else ' in the program'}: {_usage_call(job, 'response')}"


def _given(job: Job, values: Sequence[tuple[str, str | int]]) -> str:
    """How these values are given, in Python or as flags."""
    if job.items.kind == "python":
        return ", ".join(
            f"{name}={quoted(value) if isinstance(value, str) else f'{value:_}'}" for name, value in values
        )
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values)


def _usage_call(job: Job, what: Literal["model", "cost", "response", "free"]) -> str:
    """How the job's agent says it."""
    return (_IN_PYTHON if job.command is None else _IN_SERVED if job.serve else _IN_PROGRAM)[what]
