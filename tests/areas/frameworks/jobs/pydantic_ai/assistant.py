"""A pydantic-ai agent in two ways: itself, and in a plain function.

There is no third: pydantic-ai has no checkpointer of its own. Its durable execution is Temporal's, DBOS's or
Prefect's, and a message history is there to be saved when a run has ended, which is too late.
"""

from __future__ import annotations

from pydantic_ai import Agent

from agentrun import Item
from llm.tools import note, search, weigh

assistant = Agent("openai-chat:gpt-5-mini", instructions="Find it out, and write it down.", tools=[search, weigh, note])


async def plain(item: Item) -> str:
    return (await assistant.run(item.text)).output
