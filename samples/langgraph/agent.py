"""A graph of LangGraph that answers letters, and asks a person before it pays money back."""

import sys
from pathlib import Path
from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

sys.path.append(str(Path(__file__).resolve().parent.parent))
import loopback_model  # a model on this machine; with a real one, ChatOpenAI(model="gpt-5-mini") is all it takes

ORDERS = {1001: "a lamp, 39.00, sent", 1002: "a kettle, 25.00, delivered", 1003: "a book, 12.50, sent"}


@tool
def look_up_order(order: int) -> str:
    """What was ordered, its price, and where it is."""
    return ORDERS.get(order, "delivered")


@tool
def refund(order: int, amount: float) -> str:
    """Pay money back, if a person says yes: until then the item waits, and the others continue."""
    if not interrupt(f"Pay back {amount:.2f} for order {order}?"):
        return "nothing is paid back"
    return f"{amount:.2f} paid back"


tools = [look_up_order, refund]
model = ChatOpenAI(model="loopback", base_url=loopback_model.start(), api_key="none", max_retries=0)  # type: ignore[arg-type]


async def think(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await model.bind_tools(tools).ainvoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("think", think)
graph.add_node("tools", ToolNode(tools))
graph.set_entry_point("think")
graph.add_conditional_edges("think", tools_condition)
graph.add_edge("tools", "think")
