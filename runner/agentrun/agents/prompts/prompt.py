"""A prompt, its files read and everything checked that can be before the first item."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.errors import AgentError
from agentrun.job.job import Structured
from agentrun.job.prompt import prompt_file
from agentrun.values.templates import check_prompt, names_in

if TYPE_CHECKING:
    from agentrun.job.job import Job


KEY_NAMES: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
}
BASE_URL_NAME = "OPENAI_BASE_URL"
_PACKAGES = {"openai": "openai", "anthropic": "anthropic", "google": "google.genai"}
INSTALL = "install it, in the checkout, with: pip install '.[llm]'"


@dataclass(frozen=True, slots=True)
class Schema:
    """A JSON Schema that describes an object."""

    form: Mapping[str, Any]
    """The schema itself, as it was read."""

    @property
    def title(self) -> str:
        return str(self.form.get("title", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What is asked of which model, for each item. It holds no key: that stays in the environment."""

    text: str
    system: str | None
    provider: str
    model: str
    """Without the provider."""
    schema: Schema | None
    structured: Structured | None = None
    base_url: str | None
    max_output_tokens: int | None
    temperature: float | None
    params: Mapping[str, Any]
    concurrency: int
    timeout_seconds: float | None

    def parts(self) -> Iterator[bytes]:
        """What the fingerprint covers."""
        schema = self.schema.form if self.schema is not None else None
        asked = [self.text, self.system, self.provider, self.model, schema, self.base_url]
        yield b"prompt"
        yield json.dumps([*asked, self.max_output_tokens, self.temperature]).encode()
        # Only if it is given: prompts from before there was a choice keep their fingerprints.
        if self.structured is not None:
            yield self.structured.encode()


def read_prompt(job: Job, environ: Mapping[str, str]) -> Prompt:
    """The job's prompt; AgentError says what is wrong with it."""
    assert job.prompt is not None and job.model is not None
    provider, _, model = job.model.partition(":")
    prompt = Prompt(
        text=_read_text(job, "prompt", job.prompt),
        system=_read_text(job, "system", job.system) if job.system is not None else None,
        provider=provider,
        model=model,
        schema=_read_schema(job.base / job.schema) if job.schema is not None else None,
        structured=job.structured,
        base_url=job.base_url,
        max_output_tokens=job.max_output_tokens,
        temperature=job.temperature,
        params=job.params,
        concurrency=job.concurrency,
        timeout_seconds=job.timeout_seconds,
    )
    named = {name for text in (prompt.text, prompt.system or "") for name in names_in(text)}
    if not named - set(job.params):
        would_do = "{text} or {file}" if job.items.kind == "files" else "{text}"
        raise AgentError(f"prompt: it says the same for every item; write {would_do} where the item belongs")
    _check_installed(prompt)
    if not (find_key(provider, environ) or base_url_of(prompt, environ)):
        names = " or ".join(KEY_NAMES[provider])
        raise AgentError(f"prompt: the model {job.model} needs {names}; set it in the environment, or in env_file")
    return prompt


def base_url_of(prompt: Prompt, environ: Mapping[str, str]) -> str | None:
    """The server that is asked, if not the provider's own: what the job says, then what the environment does."""
    if prompt.provider != "openai":
        return None
    return prompt.base_url or environ.get(BASE_URL_NAME, "").strip() or None


def find_key(provider: str, environ: Mapping[str, str]) -> str:
    """The key for the provider's models; empty where there is none. AgentError where it cannot be one."""
    for name in KEY_NAMES[provider]:
        # Kept in a file, it often has a line end.
        if key := environ.get(name, "").strip():
            if not re.fullmatch(r"[!-~]+", key):
                raise AgentError(f"prompt: {name} has a character in it that no key has; set it again")
            return key
    return ""


def _read_text(job: Job, key: str, given: str) -> str:
    """The text itself, or that of the file it names, which is checked as the job's own text was."""
    path = prompt_file(given)
    if path is None:
        return given[1:] if given.startswith("@@") else given
    text = _read_file(job.base / path, f"{key}: ")
    if not text.strip():
        raise AgentError(f"{key}: {job.base / path} is empty")
    try:
        check_prompt(text, kind=job.items.kind, params=job.params, attaches=key == "prompt")
    except ValueError as error:
        raise AgentError(f"{key}: {job.base / path} {error}") from None
    return text


def _read_file(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise AgentError(f"{what}there is no file {path}") from None
    except OSError as error:
        raise AgentError(f"{what}{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AgentError(f"{what}{path} is not UTF-8; save it as UTF-8") from None


def _read_schema(path: Path) -> Schema:
    text = _read_file(path, "schema: ")
    try:
        form = json.loads(text)
    except ValueError as error:
        raise AgentError(f"schema: {path} is not JSON: {error}") from None
    except RecursionError:
        raise AgentError(f"schema: {path} is nested too deep to be read; flatten it") from None
    if not isinstance(form, dict) or form.get("type") != "object":
        would_do = '{"type": "object", "properties": {…}}'
        raise AgentError(f"schema: {path} does not describe an object; write a JSON Schema such as {would_do}")
    if find_spec("jsonschema") is None:
        raise AgentError(f"schema: it is checked by jsonschema, which is of the extra llm; {INSTALL}")
    from agentrun.agents.prompts.schema import fault_of_schema

    schema = Schema(form)
    if (fault := fault_of_schema(schema)) is not None:
        raise AgentError(f"schema: {path} is no JSON Schema: {fault}")
    return schema


def _check_installed(prompt: Prompt) -> None:
    for package in ("pydantic_ai", _PACKAGES[prompt.provider]):
        try:
            is_there = find_spec(package) is not None
        except ModuleNotFoundError:  # of google.genai, where there is no google
            is_there = False
        if not is_there:
            raise AgentError(f"prompt: it needs the extra llm, and there is no {package} here; {INSTALL}")
