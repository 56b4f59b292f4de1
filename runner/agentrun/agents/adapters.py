"""Adapters: how the objects of other frameworks become agents.

An object is recognised by the names of its classes, so that nothing is imported for those who use no framework. The
modules of `agentrun.frameworks` are named here, not imported: they stand above this package.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from agentrun.errors import AgentError

if TYPE_CHECKING:
    from agentrun.job.job import Job

AsyncAgent = Callable[..., Awaitable[Any]]
"""Called with an item, and with the context as `ctx`."""


class AdapterModule(Protocol):
    """What each module of `agentrun.frameworks` offers."""

    def agent_of(self, target: Any, job: Job) -> AsyncAgent:
        """The agent that runs the framework's object for an item; AgentError if it cannot be run."""


@dataclass(frozen=True)
class Adapter:
    """One framework: its name for people, our extra, its distribution, and the classes of its objects."""

    framework: str
    extra: str
    distribution: str
    classes: frozenset[str]
    """Qualified names; an object fits if its class has one of them, or inherits from it."""

    def fits(self, target: Any) -> bool:
        return any(f"{cls.__module__}.{cls.__qualname__}" in self.classes for cls in type(target).__mro__)

    def agent_of(self, target: Any, job: Job, *, name: str) -> AsyncAgent:
        """The agent that runs the object; AgentError says what is wrong with it, or with the framework's version."""
        try:
            module = cast(AdapterModule, import_module(f"agentrun.frameworks.{self.extra.replace('-', '_')}"))
        except ImportError as error:
            raise AgentError(f"{name}: {self._fault(error)}") from error
        try:
            return module.agent_of(target, job)
        except AgentError as error:
            raise AgentError(f"{name}: {error}") from error

    def _fault(self, error: ImportError) -> str:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = f"{self.distribution} {version(self.distribution)}"
        except PackageNotFoundError:
            found = self.distribution
        fix = f"install the one that agentrun knows, in the checkout, with: pip install '.[{self.extra}]'"
        return f"it is an agent of {self.framework}, and this {found} cannot be used: {error}; {fix}"


ADAPTERS = (
    Adapter(
        "LangGraph",
        "langgraph",
        "langgraph",
        frozenset({"langgraph.pregel.main.Pregel", "langgraph.graph.state.StateGraph"}),
    ),
    Adapter("the OpenAI Agents SDK", "openai-agents", "openai-agents", frozenset({"agents.agent.AgentBase"})),
    Adapter("pydantic-ai", "pydantic-ai", "pydantic-ai-slim", frozenset({"pydantic_ai.agent.abstract.AbstractAgent"})),
)


def adapter_for(target: Any) -> Adapter | None:
    """The adapter that the object fits, if there is one."""
    return next((adapter for adapter in ADAPTERS if adapter.fits(target)), None)
