"""An MCP server on standard input and output, with one tool; run as a program by the tests of agents."""

from __future__ import annotations

import os
import sys

from mcp.server import MCPServer

server = MCPServer("scale")


@server.tool()
def weigh(what: str) -> str:
    """Weigh something; the file that is named on the command line has a line for each call, and the process's id."""
    with open(sys.argv[1], "a") as log:
        log.write(f"{os.getpid()} weigh {what}\n")
    return f"{what} weighs 3 kg"


if __name__ == "__main__":
    server.run()
