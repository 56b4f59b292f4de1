"""A ReAct graph in three ways: itself, in a plain function, and with LangGraph's own saver in SQLite."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from agentrun import Item
from llm.tools import note, search, weigh

TOOLS = [search, weigh, note]
llm = ChatOpenAI(model="gpt-5-mini", max_retries=0).bind_tools(TOOLS)


async def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
    return {"messages": [await llm.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_node("tools", ToolNode(TOOLS))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")

graph = builder.compile()


async def plain(item: Item) -> str:
    return _answer(await graph.ainvoke(_question(item)))


class Own:
    """The thread is the item; durability is LangGraph's default, "async"."""

    def __init__(self) -> None:
        self._saver = AsyncSqliteSaver.from_conn_string("checkpoints.sqlite")
        self._opening = asyncio.Lock()
        self._graph: Any = None

    async def __call__(self, item: Item) -> str:
        async with self._opening:
            if self._graph is None:
                self._graph = builder.compile(checkpointer=await self._saver.__aenter__())
        config: RunnableConfig = {"configurable": {"thread_id": item.key}}
        is_new = not (await self._graph.aget_state(config)).values
        return _answer(await self._graph.ainvoke(_question(item) if is_new else None, config))

    async def aclose(self) -> None:
        if self._graph is not None:
            await self._saver.__aexit__(None, None, None)


def _question(item: Item) -> MessagesState:
    return {"messages": [HumanMessage(item.text)]}


def _answer(state: dict[str, Any]) -> str:
    return str(state["messages"][-1].text)
