"""agentrun log, inside a program: a line in its item's log."""

from __future__ import annotations

from agentrun_cli.inside.command import WRONG, Left, as_text, connect


def main(words: list[str]) -> int:
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise Left(WRONG, "inside a program this writes a line to the item's log: agentrun log WORDS…")
    with connect() as runner:
        runner.call({"type": "log", "text": as_text(" ".join(words))})
    return 0
