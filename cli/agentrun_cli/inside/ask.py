"""agentrun ask: a question to a person; the item waits for the answer."""

from __future__ import annotations

import json
import os
from typing import Any

from agentrun_cli.inside.command import WRONG, Left, as_text, connect, new_parser, read_file, write

USAGE = "QUESTION [--detail NAME=VALUE]… [--details JSON|@FILE]"
HELP = """In a program: ask a person, and print the answer as JSON.

\b
answer=$(agentrun ask "Send this draft?" --detail draft="$draft") || exit 77

The exit code is 0 for yes and 1 for no. Until there is an answer the item is parked: the program is ended and the
other items continue; when somebody has answered, the item is run again.

\b
  --detail NAME=VALUE     what the person sees and may edit; may be repeated
  --details JSON|@FILE    the same as one JSON object
"""
YES, NO = 0, 1


def main(words: list[str]) -> int:
    parser = new_parser("ask")
    parser.add_argument("question", metavar="QUESTION")
    parser.add_argument("--detail", action="append", default=[])
    parser.add_argument("--details")
    given = parser.parse_args(words)
    details = _read_details(given.details) if given.details is not None else {}
    for detail in given.detail:
        name, equals, value = detail.partition("=")
        if not (name and equals):
            raise Left(WRONG, f"--detail is {detail!r}; write NAME=VALUE")
        details[as_text(name)] = as_text(value)
    with connect() as runner:
        answer = runner.call({"type": "ask", "question": as_text(given.question), "details": details})["answer"]
    # On a terminal in ASCII, so that nothing in it can be a control sequence.
    text = json.dumps(answer, ensure_ascii=os.isatty(1), separators=(",", ":"))
    write(text.encode("utf-8", "surrogatepass") + b"\n")
    return YES if answer["yes"] else NO


def _read_details(text: str) -> dict[str, Any]:
    where = "--details"
    if text.startswith("@"):
        where = text[1:]
        text = read_file(where).decode("utf-8", "replace")
    try:
        details = json.loads(text)
    except ValueError as error:
        raise Left(WRONG, f"{where} is not JSON: {error}") from None
    if not isinstance(details, dict):
        raise Left(WRONG, f'{where} must be a JSON object, such as {{"draft": "…"}}')
    return details
