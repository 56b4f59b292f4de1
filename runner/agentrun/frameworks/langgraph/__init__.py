"""LangGraph: a graph as an agent.

    agent = "graph.py:graph"          # a compiled graph, a StateGraph, an @entrypoint, or a function that returns one

    from agentrun.frameworks import langgraph

    async def answer(item, ctx):
        return await langgraph.run(graph, {"question": item.text}, ctx=ctx, output="answer")

`saver` keeps the graph's checkpoints in the item's journal, `questions` turns interrupts into questions and answers
into what `interrupt()` returns, `shapes` turns items into inputs and states into outputs, `thread` runs a graph to its
end.
"""

from agentrun.frameworks.langgraph.agent import agent_of, run

__all__ = ["agent_of", "run"]
