"""What a test needs of the machine: a program, an extra, a privilege.

Where it is missing, the test is skipped and says what to do about that. With `CI=true` it fails instead: there, nothing
may go untested unnoticed. All of these may be called in a test, in a fixture and at the top of a module.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

SBIN = "/usr/sbin:/sbin"
"""Where `mkfs` and its like are, which is not on everybody's PATH."""


def require(is_there: object, missing: str, *, remedy: str) -> None:
    """Go on only if it is there; `remedy` says how to get it."""
    if not is_there:
        give_up(missing, remedy=remedy)


def give_up(missing: str, *, remedy: str) -> NoReturn:
    words = f"NOT TESTED: {missing}; {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(words, pytrace=False)
    pytest.skip(words, allow_module_level=True)


def find_program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), SBIN]))


def require_program(*names: str) -> None:
    for name in names:
        require(find_program(name), f"there is no program {name}", remedy="get it with: make system")


def require_module(*names: str, extra: str) -> None:
    for name in names:
        require(find_spec(name), f"there is no module {name}", remedy=f"install the extra: pip install -e '.[{extra}]'")


def require_linux() -> None:
    require(
        sys.platform == "linux" and Path("/proc/self/fd").exists(),
        "this is not Linux with /proc",
        remedy="run it there, or in a container",
    )


def require_root() -> None:
    require(os.geteuid() == 0, "this needs root", remedy="run it as root, or in a container")
