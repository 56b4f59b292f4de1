"""Commands in which a shell would run an item's text as code. Does no I/O.

A placeholder in the string of `sh -c` is replaced before the shell reads it: a file called `$(date).txt` is then a
command. As an argument of its own, it is data.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Sequence

from agentrun.values.templates import names_in

_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh")
_OPTION_C = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_PIECE = re.compile(r"\\['\"\\]|\{\{|\}\}|'\{([^{}]*)\}'|\{([^{}]*)\}|['\"]")
_OURS = ("index", "dir", "out")


def shell_warning(command: Sequence[str]) -> str | None:
    """A warning about a placeholder in a shell's code, with what to write instead; None if there is none."""
    for at, word in enumerate(command):
        shell = os.path.basename(word)
        code_at = _code_at(command, at) if shell in _SHELLS else None
        if code_at is None:
            continue
        name = next((name for name in names_in(command[code_at]) if name not in _OURS), None)
        if name is not None:
            does = f"write: {_with_arguments(command, code_at, shell)}"
            return f"{{{name}}} is in the code of {shell} -c, so the shell runs the item's text as code; {does}"
    return None


def _code_at(command: Sequence[str], shell_at: int) -> int | None:
    """Where the code of the shell at this position is: after its option -c."""
    at = shell_at + 1
    while at < len(command) - 1 and command[at][:1] in ("-", "+"):
        if _OPTION_C.fullmatch(command[at]):
            return at + 1
        at += 2 if command[at][-1] in "oO" else 1  # -o pipefail
    return None


def _with_arguments(command: Sequence[str], code_at: int, shell: str) -> str:
    """The command with each placeholder as an argument, which the code reads as "$1", "$2" …"""
    # The first argument is the shell's own name for itself.
    arguments = list(command[code_at + 1 :]) or [shell]
    names: list[str] = []
    quote = ""

    def piece(match: re.Match[str]) -> str:
        nonlocal quote
        text, is_quoted = match[0], match[1] is not None
        name = match[1] if is_quoted else match[2]
        if name is not None:
            if name not in names:
                names.append(name)
            number = f"${len(arguments) + names.index(name)}"
            if quote == '"':
                return f"'{number}'" if is_quoted else number
            return f'"{number}"' if not quote else f"'\"{number}\"'"
        if text[-1] in "'\"" and (len(text) == 1 or quote == "'"):  # in single quotes, a backslash is only that
            quote = text[-1] if not quote else "" if quote == text[-1] else quote
        return text

    code = _PIECE.sub(piece, command[code_at])
    words = [*command[:code_at], code, *arguments, *(f"{{{name}}}" for name in names)]
    return " ".join(word if re.fullmatch(r"\{[^{}\s]*\}", word) else shlex.quote(word) for word in words)
