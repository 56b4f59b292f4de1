"""What a job says about notices: when to send one, and to whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agentrun.job.fields import Values
from agentrun.values.units import parse_duration

Occasion = Literal["finished", "failed", "waiting", "stopped"]
OCCASIONS: tuple[Occasion, ...] = ("finished", "failed", "waiting", "stopped")
AFTER_SECONDS = 300.0
FROM_ENVIRONMENT = "env:"
"""How an address begins that is in a variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Whom to tell how a launch ended. Addresses are secrets: no message and no file shows them."""

    on: tuple[Occasion, ...] = OCCASIONS
    after_seconds: float = AFTER_SECONDS
    """Launches shorter than this send nothing: somebody is still there to see how they ended."""
    urls: tuple[str, ...] = field(default=(), repr=False)
    command: tuple[str, ...] | None = None


def read_notify(values: Values) -> Notify | None:
    """None if the job has no table `notify`."""
    if not (found := values.below("notify")):
        return None
    urls, command = _urls(values), values.texts("notify.command", 'write a list, such as ["./tell.sh"]')
    if command is not None and not (command and command[0].strip()):
        raise found["command"].wants('write the program first, such as ["./tell.sh"]')
    if not urls and command is None:
        raise next(iter(found.values())).refuse(
            'is given, but nobody to tell; write urls = ["ntfy://…"] or command = ["./tell.sh"] under [notify]'
        )
    after = values.parsed("notify.after", parse_duration, AFTER_SECONDS)
    return Notify(on=_occasions(values), after_seconds=after, urls=urls, command=command)


def _occasions(values: Values) -> tuple[Occasion, ...]:
    what = f"write a list of {', '.join(OCCASIONS)}"
    given = values.text_or_texts("notify.on", what)
    if not given:
        return OCCASIONS
    value = values.get("notify.on")
    assert value is not None
    for one in given:
        if one not in OCCASIONS:
            raise value._replace(found=one).wants(what)
    return tuple(one for one in OCCASIONS if one in given)


def _urls(values: Values) -> tuple[str, ...]:
    if (value := values.get("notify.urls")) is None:
        return ()
    found = [value.found] if isinstance(value.found, str) else value.found
    # Not quoted in messages: an address is a secret.
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) and one.strip() for one in found):
        raise value.refuse('is not a list of addresses; write ["ntfy://…"], or ["env:NAME"] for one in a variable')
    for number, one in enumerate(found, 1):
        variable = one.strip().removeprefix(FROM_ENVIRONMENT)
        if variable != one.strip() and not variable.isidentifier():
            raise value.refuse(f"has at place {number} {FROM_ENVIRONMENT} without a variable's name; write env:NAME")
    return tuple(one.strip() for one in found)
