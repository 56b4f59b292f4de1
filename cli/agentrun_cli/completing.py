"""What a shell offers after Tab: commands, flags, job files, known jobs and items' keys.

The script of `agentrun completion` starts us with `_AGENTRUN_COMPLETE` set to the shell's name, and the line up to the
cursor in `COMP_LINE`. We print the words that fit, one a line, or `:files` to have the shell complete file names. A
person waits for it, so nothing is imported that the answer does not need, and no error is ever shown.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from agentrun_cli.commands import COMMANDS, INSIDE

VARIABLE = "_AGENTRUN_COMPLETE"
FILES = ":files"
KEYS_SHOWN, KEYS_READ = 200, 50_000
"""At most so many keys are offered, and at most so many items looked at."""
VALUES = {
    "--as": ("files", "jsonl", "csv", "lines"),
    "--rerun": ("old-agent", "all"),
    "--isolation": ("process", "thread"),
    "--parse": ("text", "json"),
    "--state": ("done", "failed", "skipped", "waiting", "running", "pending"),
    "--sort": ("index", "key", "duration", "attempts", "age", "cost"),
}
TAKE_FILES = ("--items", "--output", "-o", "--schema", "--env-file", "--state-dir", "--file", "--prompt", "--system")
TAKE_ITEMS = ("show", "log", "answer", "redo", "edit", "skip", "try")
NEW_JOBS = ("start", "try")
"""Commands whose JOB may be a file.py:function."""
NOT_JOBS = ("pyproject.toml", "setup.py", "__pycache__")
_ODD = re.compile(r"[^\w@%+:=,./~^-]|^~")


def main() -> None:
    try:
        shell = os.environ[VARIABLE]
        words, current, quote = split_line(os.environ.get("COMP_LINE", ""))
        found = list(offers(words[1:], current))
        text = "".join(f"{one}\n" for one in shown(found, shell, current, quote))
        sys.stdout.write(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        sys.stdout.flush()
    except Exception:
        pass  # a traceback in the middle of a line helps nobody


def split_line(line: str) -> tuple[list[str], str, str]:
    """The words before the cursor's word, that word so far, and the quote it begins with, if it does."""
    words: list[str] = []
    current: str | None = None
    quote = opened = ""
    at = 0
    while at < len(line):
        sign = line[at]
        if quote:
            if sign == quote:
                quote = ""
            elif sign == "\\" and quote == '"' and line[at + 1 : at + 2] in ('"', "\\", "$", "`"):
                at += 1
                current = (current or "") + line[at]
            else:
                current = (current or "") + sign
        elif sign.isspace():
            if current is not None:
                words.append(current)
            current, opened = None, ""
        elif sign in "'\"":
            quote, opened = sign, opened or (sign if current is None else "")
            current = current or ""
        elif sign == "\\" and at + 1 < len(line):
            at += 1
            current = (current or "") + line[at]
        else:
            current = (current or "") + sign
        at += 1
    return words, current or "", quote if quote and quote == opened else ""


def offers(words: Sequence[str], current: str) -> Iterator[str]:
    """What may stand at the cursor; `words` are those before it, without `agentrun`."""
    if not words:
        names = (*COMMANDS, *INSIDE, *(("--help", "--version") if current.startswith("-") else ()))
        yield from (name for name in names if name.startswith(current))
        return
    command, given = words[0], list(words[1:])
    if "--" in given:
        yield FILES
    elif command == "completion":
        yield from (name for name in ("bash", "zsh", "fish") if name.startswith(current))
    elif command in COMMANDS:
        yield from _of_command(command, given, current)


def _of_command(command: str, given: Sequence[str], current: str) -> Iterator[str]:
    has_flags = current.startswith("-") or any(word.startswith("-") for word in given)
    takes_value = _flags(command) if has_flags else {}
    positional: list[str] = []
    values: dict[str, str] = {}
    flag = ""
    for word in given:
        if flag:
            values[flag], flag = word, ""
        elif word.startswith("-"):
            flag = word if takes_value.get(word) else ""
        else:
            positional.append(word)
    if flag in VALUES:
        yield from (value for value in VALUES[flag] if value.startswith(current))
    elif flag:
        yield from [FILES] if flag in TAKE_FILES else ()
    elif current.startswith("-"):
        yield from (name for name in takes_value if name.startswith(current))
    elif command in ("init", "import"):
        yield FILES
    elif not positional:
        yield from _jobs(command, values.get("--state-dir"), current)
    elif command in TAKE_ITEMS:
        yield from _keys(command, positional[0], values.get("--state-dir"), current)


def _flags(command: str) -> dict[str, bool]:
    """The flags of a command, and whether each takes a value."""
    from typer.main import get_command

    from agentrun_cli.main import build_app

    group: Any = get_command(build_app([command]))
    parameters = group.commands[command].params
    options = [one for one in parameters if one.param_type_name == "option" and not one.hidden]
    return {name: not one.is_flag for one in options for name in (*one.opts, *one.secondary_opts)} | {"--help": False}


def _jobs(command: str, state_dir: str | None, current: str) -> Iterator[str]:
    """Known jobs, job files, and the folders on the way to one."""
    from agentrun.errors import AgentrunError
    from agentrun.views.finding import catalogue_near

    try:
        yield from (name for name in catalogue_near(Path.cwd(), state_dir).names() if name.startswith(current))
    except AgentrunError:
        pass
    folder, start = os.path.split(current)
    endings = (".toml", ".py") if command in NEW_JOBS else (".toml",)
    with os.scandir(folder or ".") as found:
        for one in sorted(found, key=lambda entry: entry.name):
            if not one.name.startswith(start) or (one.name.startswith(".") and not start) or one.name in NOT_JOBS:
                continue
            path = os.path.join(folder, one.name)
            if one.is_dir():
                yield f"{path}/"
            elif one.name.endswith(endings):
                yield f"{path}:" if path.endswith(".py") else path


def _keys(command: str, job: str, state_dir: str | None, current: str) -> Iterator[str]:
    """Keys of items on record; for a trial, of all."""
    from agentrun.views.finding import locate, open_known

    seen: dict[str, None] = {}
    if command == "try":
        from agentrun.views.listing import read_source

        known = open_known(job, Path.cwd(), state_dir)
        if known.job is None:
            return
        keys = (key for _, key, _ in read_source(known.store, known.job))
        seen = dict.fromkeys(key for key in islice(keys, KEYS_READ) if key.startswith(current))
    else:
        with locate(job, Path.cwd(), state_dir).store.reader() as reader:
            for _, record in islice(reader.records(), KEYS_READ):
                if record.key.startswith(current):
                    seen[record.key] = None
    yield from islice(seen, KEYS_SHOWN)


def shown(found: Sequence[str], shell: str, current: str, quote: str) -> Iterator[str]:
    """The offers as the shell wants them: bash inserts them as they are, the others quote them."""
    for one in found:
        if any(sign in one for sign in "\n\r\0"):
            continue
        if shell != "bash" or one == FILES or quote:
            yield one
            continue
        # To bash a colon and an equals sign end a word: only what follows is replaced.
        kept = max(current.rfind(":"), current.rfind("=")) + 1
        yield _ODD.sub(r"\\\g<0>", one[kept:])
