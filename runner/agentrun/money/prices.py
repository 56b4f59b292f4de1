"""What usage costs, in US dollars: as reported, by the prices that the job gives, or by the list of genai-prices.

Nothing is fetched: the list is as old as the package. Importing it takes about 0.3 s, so it waits for the first price.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentrun.money.usage import COST_DIGITS, TOKEN_FIELDS, Reported
from agentrun.values.units import ModelPrice

NO_PRICES: Mapping[str, ModelPrice] = {}


def price(reported: Reported, prices: Mapping[str, ModelPrice] = NO_PRICES) -> float | None:
    """What the usage costs; None if that is unknown, never a guess.

    `prices` are those that the job gives. They come before the price list, and a reported cost before both.
    """
    if reported.cost is not None and not reported.estimated:
        return reported.cost
    if (given := _given(reported, prices)) is not None:
        cost = given.of(
            input_tokens=reported.input_tokens,
            output_tokens=reported.output_tokens,
            read=reported.cache_read_tokens,
            written=reported.cache_write_tokens,
        )
        return round(cost, COST_DIGITS)
    return reported.cost if reported.cost is not None else _listed(reported)


def _given(reported: Reported, prices: Mapping[str, ModelPrice]) -> ModelPrice | None:
    """By the model's name exactly as it is reported, with the provider before it or without."""
    if reported.model is None:
        return None
    return prices.get(reported.model) or prices.get(f"{reported.provider}:{reported.model}")


def _listed(reported: Reported) -> float | None:
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
    """What is missing if `price` returned None."""
    if reported.model is None:
        return "usage without the name of a model has no price"
    known = f'no price is known for the model "{reported.model}"'
    return known if has_price_list() else f"{known}, because the price list is not installed"


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
