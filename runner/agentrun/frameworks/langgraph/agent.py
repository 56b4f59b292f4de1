"""A graph as the agent of a job, and within an agent of one's own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from agentrun.agents.adapters import AsyncAgent
from agentrun.agents.context import Context, place, within
from agentrun.agents.memory import ItemMemory, digest_of
from agentrun.errors import AgentError
from agentrun.frameworks.langgraph.saver import ItemJournal, JournalSaver, StartsWhenSaved
from agentrun.frameworks.langgraph.shapes import AnyGraph, input_of, output_of
from agentrun.frameworks.langgraph.thread import Thread
from agentrun.frameworks.langgraph.usage import UsageReporter
from agentrun.item import Item

if TYPE_CHECKING:
    from agentrun.job.job import Job

NAME = "langgraph"
INPUT_KEY = "agentrun_input"
"""The digest of a thread's input, among the metadata of its checkpoints."""

_runs: WeakKeyDictionary[Context, Counter[str]] = WeakKeyDictionary()
"""How many runs of each name an attempt has started."""


def agent_of(target: Any, job: Job) -> AsyncAgent:
    """The agent that runs a graph to its end for each item."""
    graph = _compiled(target)
    _check(graph, job.graph_output)

    async def agent(item: Item, *, ctx: Context) -> Any:
        given = input_of(graph, item, key_field=job.items.key)
        return await run(graph, given, ctx=ctx, output=job.graph_output)

    return agent


async def run(
    graph: Any,
    input: Any,
    *,
    ctx: Context,
    config: RunnableConfig | None = None,
    output: str | None = None,
    name: str = "",
) -> Any:
    """Run a graph to its end, from where earlier attempts of the item left it; its output, as JSON has it.

    `graph` is a compiled graph, a StateGraph or an `@entrypoint`; `input` and `config` are those of `ainvoke`. Every
    node that finished is remembered. An `interrupt()` parks the item until a person answers. `output` names a field of
    the state; without it the output is the text of the last message if the state has only messages, else the state.

    Each call within an attempt has a thread of its own, known by `name` and by which call of that name it is. Calls
    side by side, or in an order that may change, need different names.
    """
    journal, thread_id = _names(ctx, name)
    memory = ItemMemory(ctx)
    ready, watchers = await _with_saver(_compiled(graph), ctx, ItemJournal(memory, journal))
    ours: RunnableConfig = {
        "configurable": {"thread_id": thread_id},
        "callbacks": [UsageReporter(ctx), *watchers],
        "metadata": {INPUT_KEY: digest_of(input)},
    }
    thread = Thread(ready, merge_configs(config, ours), memory, journal)
    saved = await thread.saved()
    before = cast(dict[str, Any], saved.metadata).get(INPUT_KEY) if saved is not None else None
    if before not in (None, digest_of(input)):
        ctx.log(f"[agentrun] {journal} is given another input than before; the graph continues with the one it had")
    with within(place_of_task):
        state = await thread.run(input)
    return output_of(state, output)


def _compiled(graph: Any) -> AnyGraph:
    if isinstance(graph, StateGraph):
        try:
            return graph.compile()
        except ValueError as error:
            raise AgentError(f"the graph cannot be compiled: {error}") from error
    if isinstance(graph, Pregel):
        return graph
    raise AgentError(f"it is a {type(graph).__name__}; a graph is a StateGraph, compiled or not, or an @entrypoint")


def _check(graph: AnyGraph, output: str | None) -> None:
    """AgentError for what would be wrong with every item."""
    channels = graph.output_channels
    if output is not None and not isinstance(channels, str) and output not in channels:
        has = ", ".join(channels)
        raise AgentError(f'[langgraph] output = "{output}": the graph\'s state has no such field; it has {has}')
    for name, inner in graph.get_subgraphs(recurse=True):
        if isinstance(inner, Pregel) and (inner.interrupt_before_nodes or inner.interrupt_after_nodes):
            fix = "ask by interrupt() in a node of it, or set the breakpoint in the outer graph"
            raise AgentError(f"its subgraph {name} has breakpoints (interrupt_before, interrupt_after); {fix}")


def _names(ctx: Context, name: str) -> tuple[str, str]:
    """The journal's name and the thread's id, of this call."""
    if "~" in name:
        raise ValueError(f"the name of a run is {name!r}; it must be without ~")
    base = f"{place()}{NAME} {name}" if name else f"{place()}{NAME}"
    counted = _runs.setdefault(ctx, Counter())
    counted[base] += 1
    journal = base if counted[base] == 1 else f"{base}~{counted[base]}"
    return journal, ctx.key("thread" if journal == NAME else f"thread {journal}")


def place_of_task() -> str:
    """The node or task that is calling: LangGraph knows it by the checkpoint that it ran from, in every attempt."""
    try:
        namespace = str(get_config()["configurable"].get("checkpoint_ns") or "")
    except RuntimeError:  # between nodes
        return ""
    name = namespace.rpartition("|")[2].partition(":")[0]
    return f"{name} {digest_of(namespace)}/" if namespace else ""


async def _with_saver(
    graph: AnyGraph, ctx: Context, journal: ItemJournal
) -> tuple[AnyGraph, list[BaseCallbackHandler]]:
    """The graph with our saver, or with its own if that outlives the process; and who must hear of its nodes."""
    own = graph.checkpointer
    if isinstance(own, BaseCheckpointSaver) and not isinstance(own, InMemorySaver):
        ctx.log(f"[agentrun] the graph keeps its state itself, by its {type(own).__name__}; agentrun keeps the answers")
        return graph, []
    saver = JournalSaver(journal)
    await saver.load()
    return graph.copy({"checkpointer": saver}), [StartsWhenSaved(saver)]
