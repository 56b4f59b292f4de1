"""A graph that uses tools and asks five times: twice in one node with the same words, in two nodes side by side, and in
a subgraph. And an agent of LangChain whose tool must be approved."""

from __future__ import annotations

from typing import Annotated

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AnyMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from llm.tools import search, send

llm = ChatOpenAI(model="gpt-5-mini", max_retries=0)


def joined(before: list[str], more: list[str]) -> list[str]:
    return [*before, *more]


class Asked(MessagesState):
    said: Annotated[list[str], joined]


async def model(state: Asked) -> dict[str, list[AnyMessage]]:
    return {"messages": [await llm.bind_tools([search]).ainvoke(state["messages"])]}


async def twice(state: Asked) -> dict[str, list[str]]:
    return {"said": [interrupt("The same?"), interrupt("The same?")]}


async def left(state: Asked) -> dict[str, list[str]]:
    return {"said": [interrupt("Left?")]}


async def right(state: Asked) -> dict[str, list[str]]:
    return {"said": [interrupt("Right?")]}


async def inside(state: Asked) -> dict[str, list[str]]:
    return {"said": [interrupt("Inside?")]}


inner = StateGraph(Asked).add_node("inside", inside).add_edge(START, "inside").compile()


async def within(state: Asked) -> dict[str, list[str]]:
    return {"said": (await inner.ainvoke({"messages": [], "said": []}))["said"]}


def after_model(state: Asked) -> str:
    return "tools" if tools_condition(dict(state)) == "tools" else "twice"


builder = StateGraph(Asked).add_node("model", model).add_node("tools", ToolNode([search])).add_node("twice", twice)
builder.add_node("left", left).add_node("right", right).add_node("within", within)
builder.add_edge(START, "model").add_conditional_edges("model", after_model, ["tools", "twice"])
builder.add_edge("tools", "model").add_edge("twice", "left").add_edge("twice", "right")
builder.add_edge(["left", "right"], "within")
graph = builder.compile()

approved = create_agent(llm, [search, send], middleware=[HumanInTheLoopMiddleware({"send": True})])
