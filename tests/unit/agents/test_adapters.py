"""Objects of frameworks are recognised by the names of their classes, and nothing is imported for others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from agentrun.agents.adapters import adapter_for
from agentrun.agents.agent import agent_from_function, load_agent
from agentrun.errors import AgentError
from agentrun.job.job import Job
from unit.agents.test_agent import job

# As a framework makes them: what is looked at is the module and the name.
StateGraph = type("StateGraph", (), {"__module__": "langgraph.graph.state"})
SdkAgent = type("AgentBase", (), {"__module__": "agents.agent"})
PydanticAgent = type("AbstractAgent", (), {"__module__": "pydantic_ai.agent.abstract"})


@pytest.fixture(autouse=True)
def _interpreter_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """In the place of LangGraph's, which may not be installed."""
    module = ModuleType("agentrun.frameworks.langgraph")

    def agent_of(target: Any, job: Job) -> Any:
        async def agent(item: Any, ctx: Any) -> Any:
            return target

        return agent

    module.agent_of = agent_of  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("made", "extra"),
    [
        (StateGraph(), "langgraph"),
        (type("Mine", (StateGraph,), {})(), "langgraph"),
        (SdkAgent(), "openai-agents"),
        (PydanticAgent(), "pydantic-ai"),
    ],
)
def test_an_object_is_known_by_its_class_or_one_it_inherits_from(made: Any, extra: str) -> None:
    found = adapter_for(made)
    assert found is not None and found.extra == extra


@pytest.mark.parametrize(
    "made", [len, lambda item: item, StateGraph, type("AgentBase", (), {"__module__": "agents"})(), 3]
)
def test_other_objects_and_the_classes_themselves_are_nobodys(made: Any) -> None:
    assert adapter_for(made) is None


def test_it_runs_on_the_loop_and_is_handed_the_context(tmp_path: Path, adapter: ModuleType) -> None:
    agent = agent_from_function(StateGraph(), job(tmp_path))
    assert (agent.isolation, agent.is_async, agent.wants_ctx) == ("loop", True, True)
    with pytest.raises(AgentError, match="is for sync agents"):
        agent_from_function(StateGraph(), job(tmp_path, isolation="thread"))


def test_a_function_without_parameters_is_called_for_it(tmp_path: Path, adapter: ModuleType) -> None:
    assert agent_from_function(lambda: StateGraph(), job(tmp_path)).isolation == "loop"
    with pytest.raises(AgentError, match="it takes no item"):
        agent_from_function(lambda: 3, job(tmp_path))

    def broken() -> Any:
        raise KeyError("no key")

    with pytest.raises(AgentError, match="it was called for an agent, and raised KeyError: 'no key'"):
        agent_from_function(broken, job(tmp_path))


def test_what_the_adapter_says_is_said_with_the_agents_name(tmp_path: Path, adapter: ModuleType) -> None:
    def refuse(target: Any, job: Job) -> Any:
        raise AgentError("it has no nodes; add one")

    adapter.agent_of = refuse  # type: ignore[attr-defined]
    (tmp_path / "graph_under_test.py").write_text(GRAPH)
    (tmp_path / "graph_parts.py").write_text("parts = 1\n")
    with pytest.raises(AgentError, match=r"graph_under_test\.py:graph: it has no nodes; add one"):
        load_agent(job(tmp_path, agent="graph_under_test.py:graph"))


GRAPH = dedent("""
    from graph_parts import parts
    graph = type("StateGraph", (), {"__module__": "langgraph.graph.state"})()
""")


def test_its_fingerprint_is_that_of_its_file_the_folders_modules_and_its_output(
    tmp_path: Path, adapter: ModuleType
) -> None:
    def fingerprint(folder: str = "job", **changes: Any) -> str:
        for name in ("graph_under_test", "graph_parts"):
            sys.modules.pop(name, None)
        base = tmp_path / folder
        return load_agent(job(base, agent=f"{where}graph_under_test.py:graph", **changes)).fingerprint

    for folder in ("job", "beside"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "graph_under_test.py").write_text(GRAPH)
        (tmp_path / folder / "graph_parts.py").write_text("parts = 1\n")
    where = ""
    seen = [fingerprint(), fingerprint(graph_output="answer")]
    assert fingerprint() == seen[0]
    (tmp_path / "job" / "graph_parts.py").write_text("parts = 20\n")
    seen.append(fingerprint())
    where = "../beside/"
    seen.append(fingerprint())
    (tmp_path / "beside" / "graph_under_test.py").write_text(GRAPH + "# changed\n")
    seen.append(fingerprint())
    assert len(set(seen)) == 5
