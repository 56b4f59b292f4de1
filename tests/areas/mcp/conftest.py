"""The server for other agents, spoken to by the SDK's own client: in this process, and as the real command."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import agentrun, begin, environment, job, nothing_left
from needs import require_module

require_module("mcp", extra="mcp")

import anyio  # noqa: E402
from mcp import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402
from mcp.server import MCPServer  # noqa: E402
from mcp_types import CallToolResult, Implementation, TextContent  # noqa: E402

from waiting import PATIENCE_SECONDS  # noqa: E402

__all__ = ["agentrun", "begin", "job", "nothing_left"]

COMMAND = str(Path(sys.executable).parent / "agentrun")
NAME = "test client"


class Caller:
    """A client that asks for the tools by name."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What the tool returns; it must not be an error."""
        said = await self._call(tool, arguments)
        assert not said.is_error, text_of(said)
        assert isinstance(said.structured_content, dict)
        return said.structured_content

    async def error(self, tool: str, **arguments: Any) -> str:
        """The message of a tool that must fail."""
        said = await self._call(tool, arguments)
        assert said.is_error, said.structured_content
        return text_of(said)

    async def _call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        said = await self.client.call_tool(tool, arguments)
        assert isinstance(said, CallToolResult)
        return said


def text_of(said: CallToolResult) -> str:
    return "".join(one.text for one in said.content if isinstance(one, TextContent))


@asynccontextmanager
async def serve(folder: Path, *words: str, name: str = NAME, mode: str = "auto") -> AsyncIterator[Caller]:
    """The real command in the folder, with a client."""
    server = StdioServerParameters(command=COMMAND, args=["mcp", *words], cwd=folder, env=environment())
    with open(os.devnull, "w") as nowhere:
        transport = stdio_client(server, errlog=nowhere)
        async with Client(transport, client_info=Implementation(name=name, version="1"), mode=mode) as client:
            yield Caller(client)


@asynccontextmanager
async def serve_here(server: MCPServer[Any], *, name: str = NAME) -> AsyncIterator[Caller]:
    """A server in this process, with a client."""
    async with Client(server, client_info=Implementation(name=name, version="1")) as client:
        yield Caller(client)


Story = Callable[[], Awaitable[None]]


def play(story: Story) -> None:
    """Run it on a loop of its own. The limit only guards against hangs."""

    async def bounded() -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            await story()

    anyio.run(bounded)


@pytest.fixture
def drafts(tmp_path: Path) -> Path:
    """A folder with a job over lines, `drafts`: a line with `ask` in it asks, one with `bad` fails."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "drafts.toml").write_text(JOB)
    (tmp_path / "names.txt").write_text("Ada\nask Ben\nbad Cyd\nask Dora\n")
    return tmp_path


AGENT = """\
def agent(item, ctx):
    if "bad" in item.text:
        raise ValueError("no good: " + item.text)
    if "ask" in item.text:
        answer = ctx.ask("Send this?", draft="Dear " + item.text)
        return {"sent": answer.yes, "draft": answer["draft"], "text": answer.text, "by": answer.by}
    return "Dear " + item.text
"""
JOB = """\
agent = "agent.py:agent"
[items]
lines = "names.txt"
[run]
retries = 0
"""
