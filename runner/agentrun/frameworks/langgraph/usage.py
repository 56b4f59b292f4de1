"""What the models of a graph used, reported when it happens: the state may have a message twice, or not at all."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from agentrun.agents.context import Context


class UsageReporter(BaseCallbackHandler):
    """Not an async handler: LangChain runs those in another thread while a sync model call blocks the loop, and our
    message would wait there for that loop."""

    run_inline = True

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        for candidates in response.generations:
            first = candidates[0] if candidates else None
            message = first.message if isinstance(first, ChatGeneration) else None
            if isinstance(message, AIMessage) and message.usage_metadata:
                self._ctx.usage(message)
