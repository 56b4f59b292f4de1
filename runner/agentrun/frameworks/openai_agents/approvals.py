"""Calls that need an approval, as questions to people."""

from __future__ import annotations

import json
from typing import Any

from agents import RunResult, RunState
from agents.items import ToolApprovalItem
from openai.types.responses import ResponseFunctionToolCall

from agentrun.errors import Fail
from agentrun.frameworks.openai_agents.scope import Run


async def decide(result: RunResult, run: Run) -> RunState[Any]:
    """The state of a run that was interrupted, with a person's decision on each call; raises Parked until all are made.

    Nothing of the state is kept: the next attempt comes to the same calls by what it remembers.
    """
    state = result.to_state()
    for wanted in result.interruptions:
        await _decide_call(wanted, state, run)
    return state


async def _decide_call(wanted: ToolApprovalItem, state: RunState[Any], run: Run) -> None:
    name, arguments = wanted.qualified_name or wanted.name or "a tool", _parsed(wanted.arguments)
    call_id = wanted.call_id or name
    question = f"{wanted.agent.name} wants to call {name}. Approve?"
    answer = await run.place.memory.ask(question, {"arguments": arguments}, key=f"{run.prefix}{call_id}")
    if not answer:
        state.reject(wanted, rejection_message=answer.text or None)
        return
    chosen = answer.details.get("arguments", arguments)
    if chosen != arguments:
        if not isinstance(wanted.raw_item, ResponseFunctionToolCall):
            raise Fail(
                f"the arguments of {name} were edited in the answer, which only those of function tools can be; "
                f"redo the item, and approve the call as it is or refuse it"
            )
        run.edited[call_id] = chosen if isinstance(chosen, str) else json.dumps(chosen)
    state.approve(wanted)


def _parsed(arguments: str | None) -> Any:
    """The arguments as JSON; as text if they are none."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments
