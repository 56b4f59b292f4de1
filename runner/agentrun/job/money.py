"""What a job says about money: its budgets, and the prices of its models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agentrun.job.fields import PRICE, Value, Values, nearest
from agentrun.values.units import ModelPrice

BUDGETS = ("budget", "token_budget", "item_budget", "item_token_budget")
NO_LIMIT = "none"
"""In place of a budget: removes one of the job file or of an earlier launch."""
PER_MILLION = "in US dollars per million tokens"


def read_budget(values: Values, key: str = "run.budget", *, example: str = "5.00") -> float | None:
    """In US dollars; None if there is none, or it is removed."""
    if _is_removed(values, key):
        return None
    what = f'write US dollars, such as {example} ("none": no budget)'
    return values.number(key, what, fits=lambda found: found > 0)


def read_token_budget(values: Values, key: str = "run.token_budget") -> int | None:
    if values.get(key) is None or _is_removed(values, key):
        return None
    return values.whole(key, 1, least=1, zero='"none": no budget')


def _is_removed(values: Values, key: str) -> bool:
    value = values.get(key)
    return value is not None and value.found == NO_LIMIT


def read_prices(values: Values) -> dict[str, ModelPrice]:
    """By the name of the model; JobError says what is wrong with one."""
    return {model: _price(value, model) for model, value in values.below("prices").items()}


def price_table(model: str) -> str:
    """The heading of a model's prices in a job file."""
    escaped = model.replace("\\", "\\\\").replace('"', '\\"')
    return f'[prices."{escaped}"]'


def _price(value: Value, model: str) -> ModelPrice:
    if not isinstance(value.found, Mapping) or not model.strip():
        model = model if model.strip() and model not in PRICE else "gpt-5-mini"
        raise value.wants(
            f"write a table with the model's name: {price_table(model)} with input = … and output = …, {PER_MILLION}"
        )
    table = {name: found for name, found in value.found.items() if found is not None}
    for name, found in table.items():
        if isinstance(found, Mapping):
            inner = value._replace(key=f"{value.key}.{name}")
            whole = price_table(f"{model}.{name}")
            raise inner.refuse(f'is a table inside that of "{model}"; put a name with dots in quotes: {whole}')
        if name not in PRICE:
            hint = nearest(name, PRICE) or f"known here: {', '.join(PRICE)}"
            raise value._replace(key=f"{value.key}.{name}").refuse(f"is not a known key; {hint}")
    for name in PRICE[:2]:
        if name not in table:
            raise value.refuse(f"has no {name}; write {name} = …, {PER_MILLION} (0 if it is free)")
    return ModelPrice(**{name: _dollars(value, name, found) for name, found in table.items()})


def _dollars(value: Value, name: str, found: Any) -> float:
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not math.isfinite(found) or found < 0:
        raise value._replace(key=f"{value.key}.{name}", found=found).wants(
            f"write a number, {PER_MILLION}, such as 0.25 (0 if it is free)"
        )
    return float(found)
