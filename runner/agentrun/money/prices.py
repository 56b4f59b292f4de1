"""What usage costs, in US dollars: as reported, or by the price list of the installed genai-prices.

Nothing is fetched: the list is as old as the package. Importing it takes about 0.3 s, so it waits for the first price.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.money.usage import COST_DIGITS, TOKEN_FIELDS, Reported

FREE = "ctx.usage(cost=0) if it is free"


def price(reported: Reported) -> float | None:
    """What the usage costs; None if that is unknown, never a guess."""
    if reported.cost is not None:
        return reported.cost
    if reported.model is None:
        return None
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    used = Usage(**{name: count for name in TOKEN_FIELDS if (count := getattr(reported, name))})
    for provider, model in _candidates(reported.model, reported.provider):
        try:
            found = calc_price(used, model, provider_id=provider)
        except LookupError:
            continue
        except ValueError:
            # The model has a price, but the usage does not fit it.
            return None
        return round(float(found.total_price), COST_DIGITS)
    return None


def why_no_price(reported: Reported) -> str:
    """What is missing if `price` returned None, and the line to add."""
    if reported.model is None:
        return (
            "usage without a model has no price; "
            f"name it: ctx.usage(response, model=…), or give ctx.usage(response, cost=…), or {FREE}"
        )
    if not has_price_list():
        return (
            'prices need the extra llm: install agentrun-batch with it, as in pip install -e ".[llm]"; '
            f"or give the cost: ctx.usage(response, cost=…), or {FREE}"
        )
    return f'no price is known for the model "{reported.model}"; give the cost: ctx.usage(response, cost=…), or {FREE}'


def has_price_list() -> bool:
    from importlib.util import find_spec

    try:
        return find_spec("genai_prices") is not None
    except ModuleNotFoundError:
        return False


def _candidates(model: str, provider: str | None) -> Iterator[tuple[str | None, str]]:
    """The names to look up, in order: `openai:gpt-5-mini` includes its provider."""
    before, colon, after = model.partition(":")
    if colon and before and after:
        yield before, after
    model = model.removeprefix("models/")
    yield provider, model
    # Many providers speak OpenAI's API: the shape says openai, the name says who makes the model. Not with a tag or
    # a path, as local models have.
    if provider == "openai" and ":" not in model and "/" not in model:
        yield None, model
