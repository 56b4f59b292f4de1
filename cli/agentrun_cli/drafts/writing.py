"""Which draft is wanted, writing it, and what to do with it then."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentrun.errors import DiskError, UsageError
from agentrun_cli.drafts.draft import KEYS, KINDS, PACKAGES, SDKS, DraftFile, Kind
from agentrun_cli.terminal import clean, say, shown_path


def given_kind(kinds: Mapping[Kind, bool], *, python: str | None) -> Kind | None:
    """The kind that the flags name; None without any."""
    named = [kind for kind, is_given in kinds.items() if is_given]
    flags = [f"--{kind}" for kind in named] + (["--python"] if python is not None else [])
    if len(flags) > 1:
        raise UsageError(f"{flags[0]} and {flags[1]} are both given; a job has one kind of agent: give one of them")
    if python is None:
        return named[0] if named else None
    for sdk in SDKS:
        if python == sdk:
            return sdk
    raise UsageError(f"--python is {clean(python) or 'empty'}; write openai, anthropic or litellm")


def ask_kind() -> Kind:
    """Ask which kind of agent it is to be; where nobody can answer, the one that runs as it is."""
    from agentrun_cli.asking.confirming import asks, is_conversation

    kinds = list(KINDS)
    if not is_conversation():
        return "function"
    say("What does the work for each item?")
    for number, kind in enumerate(kinds, 1):
        say(f"  {number}  {KINDS[kind]}")
    while True:
        typed = asks(f"1 to {len(kinds)} [{len(kinds)}]: ")
        if typed is None:
            raise KeyboardInterrupt
        if not typed:
            return kinds[-1]
        if typed.isdecimal() and 1 <= int(typed) <= len(kinds):
            return kinds[int(typed) - 1]
        if typed in KINDS:
            return next(kind for kind in kinds if kind == typed)
        say(f"{clean(typed)}: write a number from 1 to {len(kinds)}")


def nightly_files(root: Path) -> list[DraftFile]:
    """What cron and systemd need, for the folder as it is and the agentrun that is running."""
    from agentrun_cli.drafts.nightly import draft_nightly

    folder = os.path.abspath(root)
    if any(ord(sign) < 32 for sign in folder):
        raise UsageError(
            f"{clean(folder)}: has a control character in it, which cron and systemd cannot have; rename it"
        )
    return draft_nightly(folder, _command())


def _command() -> str:
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) == "agentrun" and os.access(called, os.X_OK):
        return called
    return shutil.which("agentrun") or "agentrun"


def write(root: Path, files: Sequence[DraftFile]) -> None:
    """Write all of them, or none if one is there already."""
    there = [file for file in files if not file.kept and os.path.lexists(root / file.name)]
    if there:
        raise UsageError(f"{clean(root / there[0].name)}: already exists and is left unchanged; give another folder")
    try:
        for file in files:
            path = root / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.kept and os.path.lexists(path):
                continue
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file.mode)
            with open(fd, "w", encoding="utf-8") as stream:
                stream.write(file.text)
    except FileExistsError as error:
        raise UsageError(f"{clean(error.filename)}: already exists and is left unchanged") from None
    except OSError as error:
        raise DiskError(f"{clean(error.filename or root)}: cannot be written: {error.strerror}") from None


def say_what_is_next(root: Path, kind: Kind | None, files: Sequence[DraftFile]) -> None:
    """What was written, what is still missing, and the commands that come next."""
    job = shlex.quote(str(root / "job.toml"))
    names = [file.name for file in files if not file.name.startswith("items/")]
    wrote = ", ".join(shown_path(root / name) for name in names) + (" and three items" if kind else "")
    if "nightly.sh" not in names:
        say(f"wrote {wrote}; run it with:")
        _say_needs(kind)
        say(f"  agentrun start {job}")
        return
    say(f"wrote {wrote}")
    if kind is None:
        say(f"{shown_path(root / 'job.toml')} is left unchanged; look at max_age, allow_failures and timeout in it")
    else:
        say('max_age = "20h" in job.toml runs everything again every night; without it, only what is new or changed')
    _say_how_to_schedule(root)
    say("but first try it by hand:")
    _say_needs(kind, env_file=root / ".env")
    say(f"  agentrun start {job}")


def _say_how_to_schedule(root: Path) -> None:
    from agentrun_cli.drafts.nightly import unit_name

    unit = unit_name(os.path.abspath(root))
    units = shlex.join(str(root / f"{unit}.{suffix}") for suffix in ("service", "timer"))
    say(f"for cron, add the lines of {shown_path(root / 'crontab')} with crontab -e; for systemd, as yourself:")
    say(f"  mkdir -p ~/.config/systemd/user && cp {units} ~/.config/systemd/user/")
    say(f"  systemctl --user daemon-reload && systemctl --user enable --now {unit}.timer && loginctl enable-linger")


def _say_needs(kind: Kind | None, *, env_file: Path | None = None) -> None:
    """What the job cannot do without, and is not there."""
    from importlib.util import find_spec

    if kind is None:
        return
    missing = [words for module, words in PACKAGES.get(kind, {}).items() if find_spec(module) is None]
    if missing:
        python = shlex.quote(sys.executable)
        how = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
        say(f"  {how} {' '.join(missing)}")
    if kind in KEYS and env_file is not None:
        say(f"  # with {KEYS[kind]}=... in {shown_path(env_file)}")
    elif kind in KEYS and not os.environ.get(KEYS[kind]):
        say(f"  export {KEYS[kind]}=...")
