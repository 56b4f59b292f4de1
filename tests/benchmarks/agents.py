"""The agents that agentrun is given: the same work as everybody's, in the form of an agent."""

from __future__ import annotations

import agentrun
from benchmarks import work


async def answer(item: agentrun.Item) -> dict[str, str]:
    output = work.produce(item.data)
    if item.data["fails"]:
        raise agentrun.Fail("this one fails")
    return output


def burn(item: agentrun.Item) -> dict[str, str]:
    """Not async: it goes to worker processes."""
    return work.burn(item.data)
