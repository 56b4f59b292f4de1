"""The server for other agents, over the Model Context Protocol: reading by default, the rest by allow-list.

It needs the extra `mcp`; nothing here is imported by any other command. (`import mcp` is the SDK.)
"""
