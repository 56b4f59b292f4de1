"""A prompt and its model: the values of a job file that make an agent of them."""

from __future__ import annotations

import re
from collections.abc import Collection

from agentrun.job.fields import Values
from agentrun.job.job import Structured
from agentrun.values.templates import check_prompt

PROVIDERS = ("openai", "anthropic", "google")
"""The providers of a prompt's model: `openai:…`."""
_STRUCTURED: tuple[Structured, ...] = ("native", "prompt")


def prompt_file(text: str) -> str | None:
    """The path in a prompt of the form `@path`; None if the prompt is the text itself."""
    return text[1:].strip() if text.startswith("@") and not text.startswith("@@") else None


def read_prompt(values: Values, kind: str, params: Collection[str]) -> str | None:
    prompt = read_template(values, "prompt", kind, params)
    value = values.get("prompt")
    if value is not None and values.get("model") is None:
        raise value.refuse('needs a model; write model = "openai:gpt-5-mini", for example, or give --model')
    return prompt


def read_template(values: Values, key: str, kind: str, params: Collection[str]) -> str | None:
    """A prompt with its placeholders checked, or `@` and a path: that file is read when the agent is loaded."""
    text = values.text(key, 'write text, in quotes, or "@" and the path of a file: "@prompt.md"')
    if text is None:
        return None
    value = values.get(key)
    assert value is not None
    if (path := prompt_file(text)) is not None:
        if not path:
            raise value.wants('write the path of a file after the @, such as "@prompt.md"')
        return text
    try:
        check_prompt(text, kind=kind, params=params, attaches=key == "prompt")
    except ValueError as error:
        raise value.refuse(str(error)) from None
    return text


def read_model(values: Values) -> str | None:
    would_do = ", ".join(f"{name}:…" for name in PROVIDERS)
    model = values.text("model", 'write the provider and the model, such as "openai:gpt-5-mini"')
    if model is None:
        return None
    provider, colon, name = model.partition(":")
    if not colon or provider not in PROVIDERS or not name.strip():
        value = values.get("model")
        assert value is not None
        raise value.wants(
            f"write the provider and the model: {would_do}; for your own server use openai:… with base_url"
        )
    return model


def read_base_url(values: Values) -> str | None:
    url = values.text("base_url", 'write a URL such as "http://localhost:11434/v1"')
    if url is None:
        return None
    value = values.get("base_url")
    assert value is not None
    scheme, separator, rest = url.partition("://")
    host = rest.partition("/")[0]
    if scheme not in ("http", "https") or not separator or not host or re.search(r"\s", url):
        raise value.wants('write a URL such as "http://localhost:11434/v1"')
    if "@" in host:
        # Not quoted: it may contain a password.
        raise value.refuse("has a user in it; leave that out: keys come from the environment (OPENAI_API_KEY)")
    model = values.text("model")
    if model is not None and not model.startswith("openai:"):
        raise value.refuse(f'is for servers that speak the OpenAI API, but the model is "{model}"; write openai:…')
    return url


def read_structured(values: Values) -> Structured | None:
    structured = values.choice("structured", _STRUCTURED)
    if (value := values.get("structured")) is not None and values.get("schema") is None:
        raise value.refuse("is about a schema, and there is none; write schema = …, or leave it out")
    return structured
