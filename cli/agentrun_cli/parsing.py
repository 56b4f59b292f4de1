"""The parser's commands: with our own help, and without pydantic for text and whole numbers.

typer validates every value with pydantic, even plain text and values that were not given. Importing pydantic takes as
long as everything else that most commands do, so only values that may be wrong are left to it.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

OPTIONAL = {"--pilot": "20"}
"""Flags that may stand without their number, and what they mean then."""


class Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return list(super().parse_args(ctx, with_numbers(args)))

    def get_params(self, ctx: Any) -> Any:
        return _spare(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from agentrun_cli.manual import command_page

        formatter.write(command_page(self, ctx))


def with_numbers(words: list[str]) -> list[str]:
    """The words, with the number that a flag stands for without one. What follows `--` is a program's own."""
    ours = words.index("--") if "--" in words else len(words)
    followed = zip(words[:ours], [*words[1:], ""], strict=False)
    given = [f"{one}={OPTIONAL[one]}" if one in OPTIONAL and not next_.isdigit() else one for one, next_ in followed]
    return given + words[ours:]


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return _spare(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from agentrun_cli.main import EXAMPLES, EXITS
        from agentrun_cli.manual import overview_page

        formatter.write(overview_page(self, ctx, EXAMPLES, EXITS))


def _spare(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        # Versions of typer without type descriptors do not use pydantic.
        if hasattr(parameter, "type_descriptor") and "process_value" not in vars(parameter):
            parameter.process_value = _Unchecked(parameter)
    return parameters


class _Unchecked:
    """A parameter's `process_value` that skips validation where none is needed."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._check = parameter.process_value
        self._is_list = parameter.multiple or parameter.nargs == -1
        described = parameter.type_descriptor
        self._is_text = described.annotation in (str, str | None)
        self._is_texts = described.annotation in (list[str], list[str] | None)
        limits = (getattr(described.parameter_info, name, None) for name in ("min", "max"))
        self._is_number = described.annotation in (int, int | None) and not any(limit is not None for limit in limits)

    def __call__(self, ctx: Any, value: Any) -> Any:
        if value is None and not self._parameter.required:
            value = () if self._is_list else None
        elif self._is_number and type(value) is str and re.fullmatch("[0-9]{1,9}", value):
            value = int(value)
        elif self._is_texts and value and isinstance(value, list | tuple) and all(type(one) is str for one in value):
            value = list(value)
        elif not (self._is_text and type(value) is str):
            return self._checked(ctx, value)
        callback = self._parameter.callback
        return callback(ctx, self._parameter, value) if callback is not None else value

    def _checked(self, ctx: Any, value: Any) -> Any:
        try:
            return self._check(ctx, value)
        except typer.BadParameter as error:
            # pydantic's message does not quote the value.
            wanted = error.message.removeprefix("Value error, ")
            if wanted.startswith("Input should be "):
                wanted = f'it is "{value}" but should be {wanted.removeprefix("Input should be ").partition(",")[0]}'
            error.message = wanted
            raise
