"""agentrun runs an agent over a batch of items, unattended, and never pays twice for the same item."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrun.agents.context import Context, current
    from agentrun.agents.messages import Answer
    from agentrun.api import arun, run
    from agentrun.errors import (
        AgentError,
        AgentrunError,
        BusyError,
        CheckpointError,
        DiskError,
        Fail,
        ItemsError,
        JobError,
        LaterError,
        Parked,
        PlanError,
        Retry,
        RunError,
        Skip,
        SourceChangedError,
        StaleResults,
        Stop,
        TrustError,
        UsageError,
    )
    from agentrun.item import Item
    from agentrun.job.job import Job
    from agentrun.store.memory import MemoryStore
    from agentrun.summary import Summary

# Loaded on first use: `agentrun status` needs next to nothing of this.
_HOMES = {
    "Answer": "agents.messages",
    "Context": "agents.context",
    "Item": "item",
    "Job": "job.job",
    "MemoryStore": "store.memory",
    "Summary": "summary",
    "arun": "api",
    "current": "agents.context",
    "run": "api",
}
_ERRORS = [
    "AgentError",
    "AgentrunError",
    "BusyError",
    "CheckpointError",
    "DiskError",
    "Fail",
    "ItemsError",
    "JobError",
    "LaterError",
    "Parked",
    "PlanError",
    "Retry",
    "RunError",
    "Skip",
    "SourceChangedError",
    "StaleResults",
    "Stop",
    "TrustError",
    "UsageError",
]

__version__ = "0.1.0"
__all__ = [
    "AgentError",
    "AgentrunError",
    "Answer",
    "BusyError",
    "CheckpointError",
    "Context",
    "DiskError",
    "Fail",
    "Item",
    "ItemsError",
    "Job",
    "JobError",
    "LaterError",
    "MemoryStore",
    "Parked",
    "PlanError",
    "Retry",
    "RunError",
    "Skip",
    "SourceChangedError",
    "StaleResults",
    "Stop",
    "Summary",
    "TrustError",
    "UsageError",
    "arun",
    "current",
    "run",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name) or ("errors" if name in _ERRORS else None)
    if home is None:
        raise AttributeError(f"module 'agentrun' has no attribute {name!r}")
    value = getattr(import_module(f"agentrun.{home}"), name)
    globals()[name] = value
    return value
