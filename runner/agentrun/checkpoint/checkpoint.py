"""The checkpoint: what a run needs to resume, and its form as text.

One field a line, so that a person can read it; `check` comes last, a hash of every byte before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
import orjson
from msgspec import Meta, Raw, Struct

from agentrun.checkpoint.record import Count, RecordError, check_record, in_words, seal_record
from agentrun.errors import CheckpointError
from agentrun.money.budget import Totals
from agentrun.money.item_budget import CutOff
from agentrun.money.usage import Usage

VERSION = 1
WHAT_TO_DO = "put the original back, or start over with --fresh (the old one is kept)"
Range = Annotated[list[Count], Meta(min_length=2, max_length=2)]
SpoolName = Annotated[str, Meta(pattern=r"^[^/]*\.spool$")]
_CHECK = b'"check": "'
_END = b'"\n}\n'


class Running(Struct, omit_defaults=True, kw_only=True):
    """An item in flight once the checkpoint is on disk, and what it may still cost."""

    index: Count
    key: str
    slot: int | None = None
    since: str = ""
    """When it was taken from the source; it started as soon as the checkpoint with this time was on disk."""
    where: str = ""
    """On a cluster, the worker that it was running on."""
    reserved: float = 0.0
    reserved_tokens: float = 0.0
    used: Usage | None = None
    """What it has used so far that no record has."""


class Journal(Struct):
    """Where the store keeps the older records; nothing past the length is data. Stores without a journal leave it."""

    name: Annotated[str, Meta(pattern=r"^[^/]*$")]
    length: Count


class Speed(Struct, omit_defaults=True, kw_only=True):
    """How fast a server let the last launch go, since it refused something."""

    at: float
    """In seconds since the epoch."""
    pace: float | None = None
    """Attempts a second; None: no limit was found."""
    number: Count = 0
    """Items in flight; 0: no limit was found."""


MARGIN_SECONDS = 2.0
"""Added to a lease: for clocks that run at different speeds, and for the killing."""


class EngineUse(Struct, omit_defaults=True, kw_only=True):
    """A cluster on which attempts of the run may be alive."""

    mark: str
    """In the environment of every process that runs attempts there, in all launches."""
    lease_seconds: float
    """How long such a process lives at most after it was last heard of."""
    hosts: list[str] = []
    """The places where attempts may be alive; a place is named here before it gets its first one, and all are removed
    by a clean stop."""

    @property
    def longest_seconds(self) -> float:
        """How long a process there may be alive from now on, if nobody is heard by it any more."""
        return self.lease_seconds + MARGIN_SECONDS


class RunContext(Struct, omit_defaults=True, kw_only=True):
    """What a run needs to know of itself from launch to launch."""

    launches: Count
    date: str
    """The local date of its start, for the name of its output."""
    number: Count = 0
    """Which run of the job it is: a later run has a higher number, whatever the clock says."""
    series: str = ""
    """The id of the first run of its series; empty if that is this run."""
    first: Count = 0
    """The number of that run."""
    estimated: bool = False
    """The totals are not exact: the state was edited by hand, or repaired."""
    identity: dict[str, Any] = {}
    """`Job.identity` of its first launch."""
    agent: str = ""
    """The agent's fingerprint in the last launch."""
    boot: str = ""
    """The machine's boot id in the last launch."""
    kept: dict[str, Any] = {}
    """Flags that later launches keep, in the shape of a job file."""
    gone: Count = 0
    """How many finished items a person has agreed to leave out."""
    place: str = ""
    """The job's folder as seen from its state; in a shared store, with its host."""
    base: str = ""
    """The job's folder in the last launch, to recognise a copy of both."""
    overwrite: bool = False
    spool: SpoolName | None = None
    budget: float | None = None
    token_budget: int | None = None
    deaths: dict[str, Count] = {}
    """By key: how many launches died with the item in flight."""
    cut_off: dict[str, CutOff] = {}
    """By key, with a budget for items: what attempts that were cut off have used, of items that are neither done nor
    skipped."""
    versions: dict[str, Count] = {}
    """How many done items each version of the agent made."""
    empty: Count = 0
    """How many done items have an empty output."""
    others: Count = 0
    """How many pending items the last launch left for another one (--only)."""
    speed: Speed | None = None
    rate_until: float = 0.0
    """When what was begun would be used up at the pace of the job's `rate`, in seconds since the epoch."""
    tokens_until: float = 0.0
    """The same for its `tokens`."""
    output: str = ""
    """Where the last launch was to put the results; this run has a claim on it."""
    completing: str = ""
    """The output that this run is about to put in place."""
    from_run: str = ""
    """The finished run before it in the series, whose results it keeps."""
    files_from: str = ""
    """The output of that run if it is another: the files of kept results are still to be copied from there."""
    engine: EngineUse | None = None
    carry: Any = None


class Stopped(Struct, omit_defaults=True, kw_only=True):
    """How the last launch ended, if it wrote its last checkpoint: a launch that was killed leaves none."""

    at: str
    reason: str
    exit_code: Count
    hint: str = ""
    """What to do about the reason."""
    resume_at: str = ""
    """When the reason is expected to have passed; empty if that is not known."""
    waits_for: str = ""
    """What is expected then, in a few words: `openai's quota`."""
    flags: str = ""
    """The flags that the command to continue needs."""
    by: str = ""
    """The limit that stopped it, as in `Summary.stopped_by`; empty for other reasons."""
    next: str = ""
    """The command to continue with, as it works beside the state folder."""


class Paused(Struct, omit_defaults=True, kw_only=True):
    """The launch waits in place, and nothing is in flight."""

    at: str
    until: str
    reason: str
    """For people: `openai's quota`."""
    probes: bool = False
    """Nobody knows when that passes: it is tried at that time, and any launch may try before."""


class Checkpoint(Struct, kw_only=True):
    """The position, the recent outputs, the run's context. `outputs` holds encoded records."""

    job: str
    run_id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$")]
    seq: Count = 0
    last_completed: Annotated[int, Meta(ge=-1)] = -1
    total: Count = 0
    counts: Mapping[str, int] = {}
    done: list[Range] = []
    failed: list[Range] = []
    waiting: list[Range] = []
    running: list[Running] = []
    outputs: list[Raw] = []
    journal: Journal = msgspec.field(default_factory=lambda: Journal("", 0))
    context: RunContext
    usage: Totals = msgspec.field(default_factory=Totals)
    stopped: Stopped | None = None
    """None while a launch works, and after one that was killed."""
    paused: Paused | None = None
    """Set in a pause, and by a launch that was killed in one."""
    started_at: str = ""
    updated_at: str = ""

    @property
    def series(self) -> str:
        """The id of the first run of its series."""
        return self.context.series or self.run_id


_NAMES = tuple(field.name for field in msgspec.structs.fields(Checkpoint))
_LATER_NAMES = frozenset({"stopped", "paused"})
"""Fields that older versions did not write."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Checkpoint).decode


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    parts = [b'{\n"version": %d,\n' % VERSION]
    for name in _NAMES:
        value = getattr(checkpoint, name)
        text = _encode(value) if name != "outputs" or not value else b"[\n%b\n]" % b",\n".join(map(bytes, value))
        parts.append(b'"%b": %b,\n' % (name.encode(), text))
    whole = b"".join(parts)
    return b"%b%b%b%b" % (whole, _CHECK, blake2b(whole, digest_size=16).hexdigest().encode(), _END)


def copy_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """A copy that shares nothing with it. By way of its text: that is many times faster than `deepcopy`."""
    return _decode(_encode(checkpoint))


def decode_checkpoint(
    text: bytes, *, where: str, accept_edits: bool = False, what_to_do: str = WHAT_TO_DO
) -> Checkpoint:
    """Read a checkpoint. Anything not exactly as it was written raises CheckpointError, unless edits are accepted.

    `what_to_do` is what its message advises.
    """
    values = _parse(text, where, what_to_do)
    version = values.get("version")
    if isinstance(version, int) and version > VERSION:
        raise CheckpointError(
            f"{where}: has version {version}, and this agentrun reads versions up to {VERSION}; "
            f"use the newer agentrun that wrote it"
        )
    is_intact = text.endswith(_END) and _is_sealed(text)
    if not is_intact and not accept_edits:
        raise CheckpointError(
            f"{where}: was changed since agentrun wrote it (its check does not match); if you edited it on purpose "
            f"add --accept-edits, else {what_to_do}"
        )
    try:
        return _build(text, values, is_intact=is_intact)
    except (RecordError, ValueError) as error:
        raise CheckpointError(f"{where}: {error}; {what_to_do}") from None


def _is_sealed(text: bytes) -> bool:
    at = text.rfind(_CHECK)
    return at > 0 and text[at + len(_CHECK) : -len(_END)] == blake2b(text[:at], digest_size=16).hexdigest().encode()


def _parse(text: bytes, where: str, what_to_do: str) -> dict[str, Any]:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        what = "is empty" if not text else f"is not JSON at line {error.lineno}, column {error.colno} ({error.msg})"
        raise CheckpointError(f"{where}: {what}; {what_to_do}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{where}: holds {type(values).__name__}, not an object; {what_to_do}")
    return values


def _build(text: bytes, values: Mapping[str, Any], *, is_intact: bool) -> Checkpoint:
    missing = [name for name in ("version", *_NAMES) if name not in values and name not in _LATER_NAMES]
    if missing:
        raise ValueError(f"has no {missing[0]}")
    if values["version"] != VERSION or isinstance(values["version"], bool):
        raise ValueError(f"version is {values['version']!r}; it is {VERSION}")
    try:
        checkpoint = _decode(text)
    except msgspec.ValidationError as error:
        raise ValueError(in_words(error)) from None
    for name in ("done", "failed", "waiting"):
        for first, last in getattr(checkpoint, name):
            if first > last:
                raise ValueError(f"{name} has the range [{first}, {last}]; the first position comes first")
    if not is_intact:
        checkpoint.outputs = [Raw(seal_record(record)) for record in values["outputs"]]
    for number, line in enumerate(checkpoint.outputs):
        if not check_record(bytes(line)):
            raise RecordError(f"record {number} in outputs has a wrong checksum")
    return checkpoint
