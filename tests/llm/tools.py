"""The tools that the loopback model calls, for the agents of all frameworks: launches have the tests on their path.

A tool appends one line to `tools.log` in the job's folder when it has come to its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import time

SECONDS = 0.01
"""How long one takes, so that kills hit them, too."""


async def search(topic: str) -> str:
    """Find what is known about a topic."""
    return await _use("search", topic=topic)


async def weigh(claim: str) -> str:
    """Say how likely a claim is."""
    return await _use("weigh", claim=claim)


async def note(text: str) -> str:
    """Write something down."""
    return await _use("note", text=text)


async def send(letter: str) -> str:
    """Send a letter; where a person must approve something, it is this."""
    return await _use("send", letter=letter)


async def _use(tool: str, **arguments: str) -> str:
    await asyncio.sleep(SECONDS)
    line = json.dumps({"at": time.monotonic(), "tool": tool, "arguments": arguments})
    log = os.open("tools.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(log, f"{line}\n".encode())
    finally:
        os.close(log)
    return f"{tool} of {', '.join(arguments.values())}"
