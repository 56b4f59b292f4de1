"""An agent of the Agents SDK in three ways: itself, in a plain function, and with the SDK's own session in SQLite."""

from __future__ import annotations

from agents import Agent, Runner, SQLiteSession, function_tool

from agentrun import Item
from llm.tools import note, search, weigh

assistant = Agent(
    name="assistant",
    instructions="Find it out, and write it down.",
    model="gpt-5-mini",
    tools=[function_tool(search), function_tool(weigh), function_tool(note)],
)


async def plain(item: Item) -> str:
    return str((await Runner.run(assistant, item.text)).final_output)


async def own(item: Item) -> str:
    """The session is the item. What it has of a run that was killed is continued, without asking again."""
    session = SQLiteSession(item.key, "sessions.sqlite")
    try:
        has_begun = bool(await session.get_items())
        result = await Runner.run(assistant, [] if has_begun else item.text, session=session)
        return str(result.final_output)
    finally:
        session.close()
