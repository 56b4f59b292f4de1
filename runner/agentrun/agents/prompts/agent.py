"""The agent that a prompt is: one question to a model for each item."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from agentrun.agents.prompts.attachment import read_attachment
from agentrun.agents.prompts.prompt import Prompt
from agentrun.errors import Fail
from agentrun.values.templates import prompt_for

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

    from agentrun.agents.context import Context
    from agentrun.item import Item


OUTPUT_RETRIES = 1
"""How often an answer that does not fit is sent back with what is wrong with it, within one attempt."""


class PromptAgent:
    """Made once per launch: all items share its connections."""

    def __init__(self, prompt: Prompt) -> None:
        from pydantic_ai import Agent

        from agentrun.agents.prompts.model import open_client, open_model, output_of, settings_of

        self._prompt = prompt
        self._client = open_client(prompt)
        self._model = open_model(prompt, self._client, os.environ)
        self._agent: Agent[None, Any] = Agent(
            output_type=output_of(prompt, self._model),
            model_settings=settings_of(prompt),
            retries={"output": OUTPUT_RETRIES},
        )
        if prompt.schema is not None:
            self._check_output()

    def _check_output(self) -> None:
        from pydantic_ai import ModelRetry

        from agentrun.agents.prompts.schema import Checker

        assert self._prompt.schema is not None
        checker = Checker(self._prompt.schema)

        @self._agent.output_validator
        def check(output: Any) -> Any:
            if (fault := checker.fault_of(output)) is not None:
                raise ModelRetry(f"the answer does not fit the schema: {fault}")
            return output

    async def __call__(self, item: Item, ctx: Context) -> Any:
        from agentrun.agents.prompts.model import WatchedModel, readable

        question, system = self._question(item), self._system(item)
        ours: list[Exception] = []

        async def see(response: ModelResponse) -> None:
            try:
                await self._report(response, ctx)
                self._check_whole(response)
            except Exception as error:
                ours.append(error)
                raise

        try:
            result = await self._agent.run(question, instructions=system, model=WatchedModel(self._model, see))
        except Exception as error:
            if error in ours and not isinstance(error, Fail):
                raise  # the runner's answer to what was used
            raise readable(error, self._prompt, os.environ) from None
        return result.output

    async def aclose(self) -> None:
        await self._client.aclose()

    def _question(self, item: Item) -> list[Any]:
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
        return _joined(question)

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


def _joined(question: list[Any]) -> list[Any]:
    """Neighbouring texts as one, and no empty ones."""
    joined: list[Any] = []
    for part in question:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return joined
