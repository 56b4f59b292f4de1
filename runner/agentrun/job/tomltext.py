"""The text of a job file, for messages: the line of each key, and what to write where it is not TOML. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from agentrun.values.text import quoted

_STRING = (
    r'"""(?:\\.|[^\\])*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'(?!""")"(?:\\.|[^"\\\n])*"|'
    r"(?!''')'[^'\n]*'"
)
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|(?P<comment>#[^\n]*)|(?P<sign>[\[\]{{}}\n\"'])|[^\[\]{{}}\n\"'#]+", re.DOTALL
)
_PART = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"[ \t]*\[+\s*({_KEY})\s*\]+")
_ASSIGNED = re.compile(rf"[ \t]*({_KEY})[ \t]*=")


class Fault(NamedTuple):
    """Where a text is not TOML, and why, with what would do."""

    line: int
    column: int
    why: str


def find_line(text: str, key: str) -> int | None:
    """The line of a dotted key, or of the table that holds it; None if it is not found. The text is TOML."""
    lines = _find_lines(text)
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return lines.get(key)


def _find_lines(text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    table, depth, line, at, is_start = "", 0, 1, 0, True
    while at < len(text):
        if is_start and (header := _HEADER.match(text, at)):
            table, at = _dotted(header[1]), header.end()
            lines.setdefault(table, line)
        elif is_start and (assigned := _ASSIGNED.match(text, at)):
            key = _dotted(assigned[1])
            lines.setdefault(f"{table}.{key}" if table else key, line)
            at = assigned.end()
        is_start = False
        if (token := _TOKEN.match(text, at)) is None:
            break
        depth += (token[0] in ("[", "{")) - (token[0] in ("]", "}"))
        line += token[0].count("\n")
        is_start = token[0] == "\n" and depth <= 0
        at = token.end()
    return lines


def _dotted(key: str) -> str:
    return ".".join(part.strip("\"'") for part in re.findall(_PART, key))


def explain(text: str, fault: Fault) -> Fault:
    """What the parser found, with what to write instead where that can be told."""
    if any(words in fault.why for words in ("Illegal character", "Unterminated string", "Expected \"'")):
        opened = _open_quote(text)
        if opened is not None:
            return opened
    line = text.split("\n")[fault.line - 1].strip() if fault.line <= text.count("\n") + 1 else ""
    if fault.why.startswith("Cannot declare"):
        return fault._replace(
            why=f"{line.partition('#')[0].strip()} is here a second time; put its values under the first"
        )
    what = _what_would_do(line, fault.why)
    return fault._replace(why=f"{fault.why[:1].lower()}{fault.why[1:]}{f'; {what}' if what else ''}")


def _open_quote(text: str) -> Fault | None:
    """The first text that is not closed."""
    at = 0
    while (token := _TOKEN.match(text, at)) is not None:
        if token["sign"] in ("'", '"'):
            sign = token["sign"]
            long = sign * 3
            line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            if text.startswith(long, at):
                return Fault(line, column, f"the text that begins here is not closed; put {long} at its end")
            what = f"put a {sign} at the end of the line, or {long} around text of several lines"
            return Fault(line, column, f"the text that begins here is not closed; {what}")
        at = token.end()
    return None


def _what_would_do(line: str, why: str) -> str:
    key, equals, value = (part.strip() for part in line.partition("="))
    value = value.partition(" #")[0].strip()
    if "Expected '='" in why:
        name, colon, rest = (part.strip() for part in line.partition(":"))
        return f"write {name} = {_as_toml(rest)}" if colon and rest else "write a key, = and a value"
    if "Unescaped" in why or "Invalid hex" in why:
        return "write a backslash twice, or put the text in single quotes"
    if "twice" in why or "overwrite" in why.lower():
        return "give it once"
    if "Unclosed array" in why:
        return "close the list with ]"
    if "inline table" in why.lower():
        return "close the table with }, all on one line"
    if "table declaration" in why or "']'" in why:
        return "write a table as [run], on a line of its own"
    if not equals or not key:
        return "write key = value, [table], or # and a comment"
    if "Invalid value" in why or "Expected newline" in why:
        if value in ("None", "null", "nil", ""):
            return f"write a value after {key} =, or leave the line out"
        return f"write {key} = {_as_toml(value)}"
    return ""


def _as_toml(value: str) -> str:
    """What somebody probably meant by a value that is not TOML."""
    if value.lower() in ("true", "false", "yes", "no", "on", "off"):
        return "true" if value.lower() in ("true", "yes", "on") else "false"
    if re.fullmatch("[0-9]+", value):
        return str(int(value))
    if re.fullmatch(r'\[.*\]|"[^"]*"', value):
        return value
    return quoted(value.strip("\"'\u2018\u2019\u201c\u201d\u201e"))
