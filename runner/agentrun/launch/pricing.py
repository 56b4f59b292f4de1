"""Under a budget every usage needs a price: what to do where one is missing. Whatever is suggested here works."""

from __future__ import annotations

from typing import Literal

from agentrun.errors import JobError
from agentrun.job.job import Job
from agentrun.job.money import PER_MILLION, price_table
from agentrun.money.prices import has_price_list, price, why_no_price
from agentrun.money.usage import Reported
from agentrun.runs.plan import Plan
from agentrun.values.text import quoted

_TOKENS = 1_000_000
"""A token budget to begin with."""
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
    if job.budget is None or job.model is None or plan.to_run <= plan.others:
        return
    provider, _, model = job.model.partition(":")
    asked = Reported(model=model, provider=provider, input_tokens=1, output_tokens=1)
    if price(asked, job.prices) is None:
        where = job.file.name if job.file is not None else job.name
        raise JobError(f"{where}: {no_price(asked)}; {how_to_price(job, asked)}", where=where, key="run.budget")


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
    tokens = f"--budget none --token-budget {_TOKENS}"
    if job.items.kind == "python":
        tokens = f'budget="none", token_budget={_TOKENS:_}'
    ways.append(f"limit tokens in place of dollars: {tokens}")
    return "; or ".join(ways)


def how_to_report(job: Job) -> str:
    """What makes an agent report its usage, or does without."""
    limits = [("budget", job.budget), ("token_budget", job.token_budget)]
    names = [name for name, limit in limits if limit is not None]
    if job.items.kind == "python":
        without = ", ".join(f'{name}="none"' for name in names)
    else:
        without = " ".join(f"--{name.replace('_', '-')} none" for name in names)
    if job.prompt is not None:
        return f"this server does not report usage; remove the budget: {without}"
    report, free = _usage_call(job, "response"), _usage_call(job, "free")
    where = "" if job.command is None else " in the program"
    return f"report it{where}: {report}, or {free} if it is free; or remove the budget: {without}"


def _usage_call(job: Job, what: Literal["model", "cost", "response", "free"]) -> str:
    """How the job's agent says it."""
    return (_IN_PYTHON if job.command is None else _IN_SERVED if job.serve else _IN_PROGRAM)[what]
