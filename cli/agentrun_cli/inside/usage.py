"""agentrun usage: the tokens or the cost of a program's model call."""

from __future__ import annotations

import json
from typing import Any

from agentrun_cli.inside.command import WRONG, Left, connect, new_parser, read_file

USAGE = "[--model M] [--input-tokens N] [--output-tokens N] [--cost X] [--response FILE|-] …"
HELP = """In a program: report what a model call used.

\b
curl -s "$url" | tee answer.json | agentrun usage --response -
agentrun usage --model gpt-5-mini --input-tokens 812 --output-tokens 90

It counts for the item and for the budget. Give what you know; without --cost, the model's price is looked up.
--cost 0 means that it was free.

\b
  --model M                the model's name, as the provider calls it
  --provider P             openai, anthropic, google …
  --input-tokens N         all tokens sent, cached ones included
  --output-tokens N
  --cache-read-tokens N
  --cache-write-tokens N
  --requests N             how many calls this was; 1 by default
  --cost X                 in US dollars
  --response FILE|-        the provider's response as JSON, which has the rest
"""
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "requests")


def main(words: list[str]) -> int:
    parser = new_parser("usage")
    for name in ("model", "provider", "cost", "response", *_COUNTS):
        parser.add_argument("--" + name.replace("_", "-"), dest=name)
    given = {name: text for name, text in vars(parser.parse_args(words)).items() if text is not None}
    if not given:
        raise Left(WRONG, "give what was used, or --cost 0 if it was free; see: agentrun usage --help")
    message = _read_response(given.pop("response")) if "response" in given else {}
    for name, text in given.items():
        message[name] = _count(name, text) if name in _COUNTS else _dollars(text) if name == "cost" else text
    with connect() as runner:
        runner.call({**message, "type": "usage"})
    return 0


def _read_response(path: str) -> dict[str, Any]:
    from msgspec.structs import asdict

    from agentrun.money.providers import read_usage

    try:
        return asdict(read_usage(json.loads(read_file(path))))
    except (TypeError, ValueError) as error:
        raise Left(WRONG, f"--response {path}: {error}") from None


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Left(WRONG, f"--{name.replace('_', '-')} is {text!r}; write a whole number")
    return int(text)


def _dollars(text: str) -> float:
    try:
        dollars = float(text)
    except ValueError:
        dollars = -1.0
    if not 0 <= dollars < float("inf"):
        raise Left(WRONG, f"--cost is {text!r}; write US dollars, such as 0.03")
    return dollars
