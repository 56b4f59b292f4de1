"""LangGraph with SqliteSaver and durability="sync": one thread, a node that takes an item and comes back to itself.

    python -m benchmarks.contenders.langgraph_sync [resume]

A step of the graph is an item, so there is a checkpoint after each. The state holds the position and the latest
output only: the outputs before it are in the thread's history. That favours it: a list of results in the state, which
is what its users would rather have, is written anew at each step and grows with progress. SqliteSaver sets WAL, and
SQLite's own default is synchronous=FULL. To resume is to invoke the thread without an input.
"""

from __future__ import annotations

import sys
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks import work


class State(TypedDict):
    position: int
    output: dict[str, Any]


def main() -> None:
    items = list(work.read_items(work.source()))

    def step(state: State) -> State:
        return {"position": state["position"] + 1, "output": work.produce(items[state["position"]])}

    builder = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: "step" if state["position"] < len(items) else END)
    with SqliteSaver.from_conn_string("checkpoints.sqlite") as saver:
        saver.setup()
        if not items:
            return
        graph = builder.compile(checkpointer=saver)
        config: RunnableConfig = {"configurable": {"thread_id": "bench"}, "recursion_limit": len(items) + 10}
        begin: State | None = None if sys.argv[1:] == ["resume"] else {"position": 0, "output": {}}
        graph.invoke(begin, config, durability="sync")


if __name__ == "__main__":
    main()
