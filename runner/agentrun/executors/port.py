"""The executor port: how the runner has one attempt of one item done, wherever that happens.

The channel carries a few JSON messages from the attempt to the runner, each answered:

    {"type": "log", "text": …}                              → {}
    {"type": "carry", "value": …}                           → {}
    {"type": "progress", "text": …}                         → {}
    {"type": "step_get", "name": …}                         → {"n": 0, "found": true, "output": "…"}, or without
    {"type": "step_put", "name": …, "n": 0, "output": "…"}  → {}, once it is on disk
    {"type": "ask", "question": …, "details": {…}}          → {"answer": {"yes": true, "text": …, …}} or {"park": true}
    {"type": "usage", "model": …, "input_tokens": …, "output_tokens": …, "cost": …, …} → {}

`n` counts how often the attempt asked for that name before. `output` is JSON as text. After {"park": true} the attempt
is to end, with the outcome `waiting`. Whatever is wrong with a message is answered {"error": …}.
"""

from __future__ import annotations

from typing import Protocol

from agentrun.agents.attempt import Attempt, Channel, Outcome


class Executor(Protocol):
    """Runs attempts, at most `concurrency` at a time; all methods are called on the event loop.

    `run` never raises for what an agent does: that is an Outcome. When it has returned, nothing of the attempt is
    alive any more. A timeout is the executor's to enforce, and gives `failed` with a `timeout` failure.
    Cancelling the task that awaits `run` ends the attempt and raises CancelledError when it is gone.
    """

    async def start(self) -> None: ...

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome: ...

    async def close(self) -> None:
        """End what is left, and let agents close. Called once, also after a failed start."""
        ...
