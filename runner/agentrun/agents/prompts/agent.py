"""The agent that a prompt is: one question to a model for each item."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentrun.agents.prompts.attachment import read_attachment
from agentrun.agents.prompts.prompt import Prompt, Schema
from agentrun.agents.prompts.structured import Structure, Way, schema_in_words
from agentrun.errors import Fail
from agentrun.values.templates import prompt_for

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse

    from agentrun.agents.context import Context
    from agentrun.item import Item


OUTPUT_RETRIES = 1
"""How often an answer that does not fit is sent back with what is wrong with it, within one attempt."""
_LONGEST_QUOTE = 200


@dataclass(frozen=True, slots=True)
class Question:
    """What one attempt asks."""

    content: str | list[Any]
    system: str | None
    ctx: Context
    ours: list[Exception] = field(default_factory=list)
    """Errors that we raised ourselves while a response was looked at."""


class PromptAgent:
    """Made once per launch: all items share its connections, and what is known of the server."""

    def __init__(self, prompt: Prompt) -> None:
        from agentrun.agents.prompts.model import open_client, open_model, takes_schema

        self._prompt = prompt
        self._client = open_client(prompt)
        self._model = open_model(prompt, self._client, os.environ)
        self._structure = Structure(prompt.structured, may_change=takes_schema(prompt, self._model))
        self._agents = {self._structure.way: self._make_agent(self._structure.way)}

    def _make_agent(self, way: Way) -> Agent[None, Any]:
        from pydantic_ai import Agent

        from agentrun.agents.prompts.model import output_of, settings_of

        agent: Agent[None, Any] = Agent(
            output_type=output_of(self._prompt, self._model, way),
            model_settings=settings_of(self._prompt),
            retries={"output": OUTPUT_RETRIES},
        )
        if self._prompt.schema is not None:
            _check_output(agent, self._prompt.schema)
        return agent

    async def __call__(self, item: Item, ctx: Context) -> Any:
        from agentrun.agents.prompts.model import readable

        question = Question(self._question(item), self._system(item), ctx)
        try:
            return await self._answer(question)
        except Exception as error:
            if error in question.ours and not isinstance(error, Fail):
                raise  # the runner's answer to what was used
            raise readable(error, self._prompt, os.environ) from None

    async def _answer(self, question: Question) -> Any:
        """The answer; in words, if the server is unable to take the schema. `Structure` has the rule."""
        from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

        from agentrun.agents.prompts.model import words_in

        structure = self._structure
        if self._prompt.schema is None or structure.way == "prompt":
            return await self._ask(question, structure.way)
        began = structure.round
        try:
            return await self._ask(question, "native", structure.answered)
        except ModelHTTPError as error:
            said = words_in(error, self._prompt, os.environ)
            if (doubt := structure.doubt(error.status_code, said, began=began)) is None:
                raise
            warning, answers = _change_words(self._prompt, error.status_code, said), 0

            def confirm() -> None:
                nonlocal answers
                answers += 1
                if structure.confirm(doubt):
                    question.ctx.warn(warning)

            try:
                return await self._ask(question, "prompt", confirm)
            except ModelAPIError:
                if doubt.names_schema or answers:
                    raise
                raise error from None  # the schema was not the trouble

    async def _ask(self, question: Question, way: Way, on_answer: Callable[[], None] = lambda: None) -> Any:
        from agentrun.agents.prompts.model import WatchedModel

        async def see(response: ModelResponse) -> None:
            on_answer()
            try:
                await self._report(response, question.ctx)
                self._check_whole(response)
            except Exception as error:
                question.ours.append(error)
                raise

        if way not in self._agents:
            self._agents[way] = self._make_agent(way)
        content = question.content
        if way == "prompt" and self._prompt.schema is not None:
            words = schema_in_words(self._prompt.schema)
            content = content + words if isinstance(content, str) else _joined([*content, words])
        model = WatchedModel(self._model, see)
        return (await self._agents[way].run(content, instructions=question.system, model=model)).output

    async def aclose(self) -> None:
        await self._client.aclose()

    def _question(self, item: Item) -> str | list[Any]:
        """One text as such: some servers refuse a list of parts, and only attachments need one."""
        from pydantic_ai import BinaryContent

        try:
            texts = prompt_for(self._prompt.text, item, self._prompt.params)
        except ValueError as error:
            raise Fail(f"the prompt {error}") from None
        question: list[Any] = []
        for number, text in enumerate(texts):
            if number:
                assert item.path is not None
                attached: Any = read_attachment(item.path)
                if not isinstance(attached, str):
                    attached = BinaryContent(attached[0], media_type=attached[1])
                question.append(attached)
            question.append(text)
        joined = _joined(question)
        return joined if any(not isinstance(part, str) for part in joined) else "".join(joined)

    def _system(self, item: Item) -> str | None:
        if self._prompt.system is None:
            return None
        try:
            return "".join(prompt_for(self._prompt.system, item, self._prompt.params))
        except ValueError as error:
            raise Fail(f"system {error}") from None

    async def _report(self, response: ModelResponse, ctx: Context) -> None:
        if response.usage.unmeasured_requests:
            # Nothing is better than a guess: under a budget, an item without usage stops the run.
            return
        await ctx.usage(response, model=self._prompt.model, provider=self._prompt.provider)

    def _check_whole(self, response: ModelResponse) -> None:
        """A part of an answer is not the answer, and asking again would give as much."""
        if response.finish_reason == "length":
            limit = self._prompt.max_output_tokens
            at = f"at max_output_tokens = {limit}" if limit else "at the model's own limit"
            does = "raise it" if limit else "set max_output_tokens"
            raise Fail(f"the answer was cut off {at}; {does}, or ask for less")
        if response.finish_reason == "content_filter":
            details = response.provider_details or {}
            why = details.get("refusal") or details.get("content_filter_result")
            raise Fail(f"the provider's content filter stopped the answer{f': {why}' if why else ''}")


def _check_output(agent: Agent[None, Any], schema: Schema) -> None:
    from pydantic_ai import ModelRetry

    from agentrun.agents.prompts.schema import Checker

    checker = Checker(schema)

    @agent.output_validator
    def check(output: Any) -> Any:
        if (fault := checker.fault_of(output)) is not None:
            raise ModelRetry(f"the answer does not fit the schema: {fault}")
        return output


def _change_words(prompt: Prompt, status: int, said: str) -> str:
    quote = said if len(said) <= _LONGEST_QUOTE else said[: _LONGEST_QUOTE - 1] + "…"
    return (
        f"{prompt.provider}:{prompt.model} does not take a JSON Schema (HTTP {status}{f': {quote}' if quote else ''}); "
        "the schema is in the prompt from now on, and answers are checked against it as before. Set structured = "
        '"prompt" to do so from the start'
    )


def _joined(question: list[Any]) -> list[Any]:
    """Neighbouring texts as one, and no empty ones."""
    joined: list[Any] = []
    for part in question:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return joined
