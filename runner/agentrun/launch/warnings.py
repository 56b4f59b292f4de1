"""Warnings of a launch: each is shown once."""

from __future__ import annotations

from agentrun.events import Warned, Watcher

MOST = 20
"""How many different warnings a launch shows: an agent that names the item in each would fill the screen."""
TEXT_LIMIT = 1000


class Warnings:
    """Tells the watchers, but nothing twice. `about` is what makes two warnings the same; without it, their text."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._told: set[str] = set()

    def __call__(self, text: str, *, about: str = "") -> None:
        text = text[:TEXT_LIMIT]
        same = about or text
        if same not in self._told and len(self._told) < MOST:
            self._told.add(same)
            self._watcher(Warned(text))
