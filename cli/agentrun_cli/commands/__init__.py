"""The commands, a file each: their names, in the order of the help."""

COMMANDS = (
    "start", "resume", "try", "status", "stop", "items", "show", "log", "failures", "results", "report", "runs",
    "diff", "ui", "review", "answer", "redo", "edit", "skip", "notify", "export", "import", "rekey", "repair",
    "clear", "init", "mcp", "completion",
)  # fmt: skip
INSIDE = ("step", "ask", "usage")
"""For use inside a program that is an agent."""
