"""agentrun log, inside a program: write a line to its item's log."""

from __future__ import annotations

from agentrun_cli.inside.command import WRONG, Left, as_text, open_caller


def main(words: list[str]) -> int:
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise Left(WRONG, "inside a program it writes a line to the item's log: agentrun log WORDS…")
    with open_caller() as caller:
        caller.call({"type": "log", "text": as_text(" ".join(words))})
    return 0
