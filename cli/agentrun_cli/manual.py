"""The page that `--help` prints: what the command does, examples, then its options under headings.

Never wider than 80 columns, and nothing is cut: what is too long is wrapped.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

WIDEST, NARROWEST = 80, 40
WIDEST_NAME = 26
GROUPED_FROM = 16
"""A command with this many options shows them under the headings of `flags.GROUPS`."""


def command_page(command: Any, ctx: Any) -> str:
    """The help of one command; `command` and `ctx` are the parser's."""
    width, parameters = _width(), command.get_params(ctx)
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option" and not one.hidden and one.name != "help"]
    lines = [*_usage(command, ctx, arguments, has_options=bool(options), width=width), ""]
    lines += _description(command.help or "", width)
    described = [(_argument(one), one.help or "") for one in arguments if not one.hidden and one.help]
    groups = _groups(options) if len(options) >= GROUPED_FROM else {"Options": options}
    # The arguments need no heading: the usage names them.
    tables = {"": described} | {name: [_option(one) for one in group] for name, group in groups.items()}
    column = _column([row for rows in tables.values() for row in rows])
    for heading, rows in tables.items():
        if rows:
            lines += ["", *([f"{heading}:"] if heading else []), *_table(rows, column, width)]
    return "\n".join(lines)


def overview_page(group: Any, ctx: Any, examples: str, epilog: str) -> str:
    """The help of the whole command line: each command in a line."""
    width = _width()
    described = _description(f"{group.help or ''}\n\n\b\n{examples}", width)
    lines = ["Usage: agentrun COMMAND …", "", *described, "", "Commands:"]
    commands = [(name, group.get_command(ctx, name)) for name in group.list_commands(ctx)]
    rows = [(name, _first_line(command.help or "")) for name, command in commands if not command.hidden]
    return "\n".join([*lines, *_table(rows, _column(rows), width), "", *epilog.splitlines()])


def _width() -> int:
    return max(min(shutil.get_terminal_size().columns, WIDEST), NARROWEST)


def _first_line(text: str) -> str:
    return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())


def _usage(command: Any, ctx: Any, arguments: Sequence[Any], *, has_options: bool, width: int) -> Iterator[str]:
    words = [_argument(one) for one in arguments]
    if command.options_metavar != "[OPTIONS]":
        words.insert(0, command.options_metavar)
    elif has_options:
        words.insert(0, "[OPTIONS]")
    yield from _wrap(f"Usage: {ctx.command_path} {' '.join(words)}", width, hang="         ")


def _description(text: str, width: int) -> Iterator[str]:
    """The first paragraph, the examples, the rest. A paragraph that begins with \\b is printed as it is."""
    first, *rest = inspect.cleandoc(text).split("\n\n")
    verbatim = [one.removeprefix("\b\n").splitlines() for one in rest if one.startswith("\b\n")]
    examples = [lines for lines in verbatim if lines and "agentrun " in lines[0]]
    yield from _wrap(first, width)
    for lines in examples:
        yield from ("", "Examples:", *(f"  {line}" for line in lines))
    for one in rest:
        lines = one.removeprefix("\b\n").splitlines()
        if lines not in examples:
            yield ""
            yield from lines if one.startswith("\b\n") else _wrap(one, width)


def _groups(options: Sequence[Any]) -> dict[str, list[Any]]:
    from agentrun_cli.flags import GROUPS, OTHER

    found: dict[str, list[Any]] = {heading: [] for heading in (*GROUPS, OTHER)}
    for one in options:
        heading = next((heading for heading, names in GROUPS.items() if one.name in names), OTHER)
        found[heading].append(one)
    return found


def _argument(one: Any) -> str:
    name = (one.metavar or one.name.upper()).replace("...", "…")
    bare = name.strip("[]…") + ("…" if one.nargs == -1 and "--" not in name else "")
    if name.startswith("[") and "--" in name:
        return str(name)
    return bare if one.required else f"[{bare}]"


def _option(one: Any) -> tuple[str, str]:
    names = ", ".join(one.opts)
    if one.secondary_opts:
        names += f"/{', '.join(one.secondary_opts)}"
    if not one.is_flag:
        names += f" {one.metavar or one.name.upper()}"
    text = one.help or ""
    default = getattr(one.default, "value", one.default)
    if not one.is_flag and default not in (None, "", ()) and default != []:
        text += f" (default: {default})"
    return names, text


def _column(rows: Sequence[tuple[str, str]]) -> int:
    return max((len(name) for name, _ in rows if len(name) <= WIDEST_NAME), default=0) + 4


def _table(rows: Sequence[tuple[str, str]], column: int, width: int) -> Iterator[str]:
    for name, text in rows:
        lines = list(_wrap(text, width - column))
        if len(name) > column - 4:
            yield f"  {name}"
        else:
            yield f"  {name:<{column - 2}}{lines.pop(0) if lines else ''}".rstrip()
        for line in lines:
            yield " " * column + line


def _wrap(text: str, width: int, *, hang: str = "") -> Iterator[str]:
    import textwrap

    words = " ".join(text.split())
    yield from textwrap.wrap(words, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
