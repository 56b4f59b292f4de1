"""What nothing in a bucket names any more, and may be deleted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from agentrun.store.homes.objects.bucket import Listed

AGE = timedelta(hours=1)
"""What nothing names may be about to be named, or about to be read, until it is older."""


def garbage(
    listed: Sequence[Listed],
    *,
    at: str,
    named: Collection[str],
    tags: Collection[str],
    tags_of_sides: Callable[[Sequence[str]], Collection[str] | None],
) -> list[str]:
    """The paths below `at` to delete.

    `named` are the paths of objects, and `tags` the tags of pieces, that are in use. `tags_of_sides` says which pieces
    the side files at some paths have; None if that cannot be told.
    """
    # The newest object tells the time: it is never later than now, so that nothing looks older than it is.
    newest = max((one.modified for one in listed), default=None)
    old = [one.path for one in listed if newest is not None and newest - one.modified > AGE]
    found = [path for path in old if path.startswith((f"{at}/seg/", f"{at}/ended/", f"{at}/clock/"))]
    pieces = [path for path in old if _tag(path, at) not in {"", *tags}]
    if pieces:
        in_use = tags_of_sides([one.path for one in listed if one.path.startswith(f"{at}/side/")])
        pieces = [path for path in pieces if _tag(path, at) not in in_use] if in_use is not None else []
    return [path for path in found if path not in named] + pieces


def _tag(path: str, at: str) -> str:
    """The tag of a piece; empty if it is another object."""
    folder = f"{at}/piece/"
    return path.removeprefix(folder).partition("/")[0] if path.startswith(folder) else ""
