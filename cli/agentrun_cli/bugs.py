"""Bugs in agentrun itself: the traceback goes to a file, for a report, and not to whoever was using it."""

from __future__ import annotations

from agentrun_cli.terminal import clean


def describe_bug(error: BaseException) -> str:
    """Write the traceback to a file of its own; one line that says what it was, and where the file is."""
    import tempfile
    import traceback

    try:
        fd, path = tempfile.mkstemp(prefix="agentrun-bug-", suffix=".txt")
        with open(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(error))
        where = f"; please report it, with {path}"
    except OSError:
        where = ""
    return f"this is a bug in agentrun: {type(error).__name__}: {clean(error)}{where}"
