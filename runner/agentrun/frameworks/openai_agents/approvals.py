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
        await _decide_call(wanted, state, _run_of(wanted, run))
    return state


def _run_of(wanted: ToolApprovalItem, outer: Run) -> Run:
    """The run that makes the call: the innermost of those that wait for it."""
    waiting = [run for result, run in outer.within if any(wanted is one for one in result.interruptions)]
    return max(waiting, key=lambda run: len(run.prefix), default=outer)


async def _decide_call(wanted: ToolApprovalItem, state: RunState[Any], run: Run) -> None:
    name, arguments = wanted.qualified_name or wanted.name or "a tool", _parsed(wanted.arguments)
    call = run.call_name(wanted.call_id or name)
    question = f"{wanted.agent.name} wants to call {name}. Approve?"
    answer = await run.place.memory.ask(question, {"arguments": arguments}, key=call)
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
        run.edited[call] = chosen if isinstance(chosen, str) else json.dumps(chosen)
    state.approve(wanted)


def _parsed(arguments: str | None) -> Any:
    """The arguments as JSON; as text if they are none."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments
