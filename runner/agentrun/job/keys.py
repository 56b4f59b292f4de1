"""The keys that seal what is kept in a store or an export file: 32 random bytes each, named by the environment.

No message shows a key, or what a command printed. An empty variable does not count beside one with a key in it. Alone
it is refused: a secret that could not be read must not mean that everything is stored in clear.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote

from agentrun.errors import TrustError, UsageError
from agentrun.system.disk import open_to_read
from agentrun.system.trust import TRUST_VARIABLE, is_trusted, trusted_paths

KEY_VARIABLE, KEY_FILE_VARIABLE, KEY_COMMAND_VARIABLE = "AGENTRUN_KEY", "AGENTRUN_KEY_FILE", "AGENTRUN_KEY_COMMAND"
KEY_VARIABLES = (KEY_VARIABLE, KEY_FILE_VARIABLE, KEY_COMMAND_VARIABLE)
"""One of them may be set. None of them is for agents: leave them out of their environment."""
KEY_BYTES = 32
HOW_TO_MAKE_ONE = "make one with: agentrun rekey --new"
_FILE_LIMIT_BYTES = 64 * 1024
COMMAND_SECONDS = 60.0
"""How long a command may take: perhaps somebody has to touch a token."""
_HEX = re.compile(r"[0-9A-Fa-f]{64}")
_BASE64 = re.compile(r"[0-9A-Za-z+/_-]{43}=?")


def new_key() -> str:
    """A fresh key, in base64."""
    return b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def read_keys(environ: Mapping[str, str], *, command_seconds: float = COMMAND_SECONDS) -> list[bytes] | None:
    """The keys that the environment names, the one that seals first; None if it names none."""
    given = [name for name in KEY_VARIABLES if environ.get(name, "").strip()]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} are set; keep one of them, with all keys in it")
    if not given:
        if empty := [name for name in KEY_VARIABLES if name in environ]:
            raise UsageError(f"{empty[0]}: is set, but empty; unset it to store in clear, or {HOW_TO_MAKE_ONE}")
        return None
    (name,) = given
    value = environ[name]
    if name == KEY_FILE_VARIABLE:
        return _parse(f"{name}: {value}", _read_file(Path(value)))
    return _parse(name, [value] if name == KEY_VARIABLE else [_run(value, environ, command_seconds)])


def _parse(where: str, lines: Sequence[str]) -> list[bytes]:
    words = [word for line in lines for word in re.split(r"[\s,]+", line) if word]
    if not words:
        raise UsageError(f"{where}: holds no key; {HOW_TO_MAKE_ONE}")
    keys: list[bytes] = []
    for number, word in enumerate(words, 1):
        key = _key(word)
        if key is None:
            which = f"key {number} of {len(words)}" if len(words) > 1 else "the key"
            raise UsageError(f"{where}: {which} is not {KEY_BYTES} bytes in base64 or hex; {HOW_TO_MAKE_ONE}")
        if key not in keys:
            keys.append(key)
    return keys


def _key(word: str) -> bytes | None:
    if _HEX.fullmatch(word):
        return bytes.fromhex(word)
    if _BASE64.fullmatch(word):
        return b64decode(word.rstrip("=").replace("-", "+").replace("_", "/") + "=")
    return None


def _read_file(path: Path) -> list[str]:
    """The lines of a key file, without comments."""
    where = f"{KEY_FILE_VARIABLE}: {path}"
    try:
        # By its real path: what Kubernetes mounts as a secret is a link.
        with open_to_read(os.path.realpath(path)) as file:
            _refuse_if_shared(path, os.fstat(file.fileno()))
            text = file.read(_FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{where}: cannot be read ({error.strerror}); name a file with a key a line") from None
    if len(text) > _FILE_LIMIT_BYTES:
        raise UsageError(f"{where}: has more than {_FILE_LIMIT_BYTES} bytes; name a file with a key a line")
    lines = text.decode("ascii", "replace").split("\n")
    return [line for line in lines if not line.lstrip().startswith("#")]


def _refuse_if_shared(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        what, remedy = f"belongs to another user (uid {found.st_uid}), who knows the key", "use a file of your own"
    elif found.st_mode & 0o077:
        what = f"can be read or written by others (mode {stat.S_IMODE(found.st_mode):04o})"
        remedy = f"fix it with: chmod go= {quote(str(path))}"
    else:
        return
    if is_trusted(path):
        return
    setting = f"{TRUST_VARIABLE}={quote(':'.join([*trusted_paths(), str(path.absolute())]))}"
    raise TrustError(
        f"{KEY_FILE_VARIABLE}: {path}: {what}; {remedy}, or set {setting} in the environment if that is meant to be",
        setting=setting,
    )


def _run(command: str, environ: Mapping[str, str], seconds: float) -> str:
    """What the command prints. A message names the program alone: its arguments may hold a secret."""
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{KEY_COMMAND_VARIABLE}: cannot be split into words ({error}); fix its quotes") from None
    if not argv:
        raise UsageError(f"{KEY_COMMAND_VARIABLE}: names no program; {HOW_TO_MAKE_ONE}")
    where = f"{KEY_COMMAND_VARIABLE}: {argv[0]}"
    try:
        # Without its standard error: in a log of ours, that could show what it was given or has found.
        found = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{where}: has not finished in {seconds:g} s; run it by hand to see why") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a NUL character"
        raise UsageError(f"{where}: cannot be run ({reason}); give a program that prints the keys") from None
    if found.returncode:
        raise UsageError(f"{where}: failed with exit code {found.returncode}; run it by hand to see why")
    return found.stdout.decode("ascii", "replace")
