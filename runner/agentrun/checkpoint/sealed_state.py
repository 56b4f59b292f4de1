"""Sealed checkpoints and summaries: the figures of the run stay readable, the rest does not.

    {
    "sealed": 1,
    "key": "3f2a9c01",
    "version": 1,
    "job": "triage",
    …
    "box": "<base64>"
    }

It is JSON. The readable fields of a checkpoint are its own lines, and are not in the box; those of a summary are
copies. The box is bound to every byte before it. Without the key nobody can tell whether the readable fields were
changed.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import Error as NotBase64
from binascii import a2b_base64

import orjson

from agentrun.checkpoint.sealing import Keyring, changed, check_version, not_sealed

CLEAR = (
    "version", "job", "run_id", "seq", "last_completed", "total", "counts", "done", "failed", "waiting", "usage",
    "started_at", "updated_at",
)  # fmt: skip
"""The fields of a checkpoint that stay readable."""
CLEAR_OF_SUMMARY = (
    "version", "job", "run_id", "number", "status", "total", "counts", "usage", "started_at", "ended_at",
)  # fmt: skip
"""Those of a summary."""
_VERSION = 1
_START = re.compile(rb'\{\n"sealed": (\d{1,4}),\n"key": "([0-9a-f]{8})",\n')
_CLEAR_LINE = re.compile(rb'"(?:%b)": .*,' % "|".join(CLEAR).encode())
_BOX = b'"box": "'
_END = b'"\n}\n'


def seal_state(ring: Keyring, text: bytes, bound_to: bytes) -> bytes:
    """Any text can be sealed, and comes back byte for byte; of one that is no checkpoint, nothing stays readable."""
    clear: list[bytes] = []
    rest: list[bytes] = []
    for line in text.split(b"\n"):
        if _CLEAR_LINE.fullmatch(line):
            clear.append(line + b"\n")
            rest.append(b"")
        else:
            rest.append(b"+" + line)
    return _close(ring, b"".join(clear), b"\n".join(rest), bound_to)


def open_state(ring: Keyring, sealed: bytes, bound_to: bytes, *, where: str) -> bytes:
    clear, rest = _open(ring, sealed, bound_to, where)
    lines = iter(clear.split(b"\n"))
    return b"\n".join(line[1:] if line else next(lines) for line in rest.split(b"\n"))


def seal_summary(ring: Keyring, text: bytes, bound_to: bytes) -> bytes:
    """As `seal_state`, for the summary of a run."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    values = found if isinstance(found, dict) else {}
    clear = [
        b'"%b": %b,\n' % (name.encode(), orjson.dumps(values[name])) for name in CLEAR_OF_SUMMARY if name in values
    ]
    return _close(ring, b"".join(clear), text, bound_to)


def open_summary(ring: Keyring, sealed: bytes, bound_to: bytes, *, where: str) -> bytes:
    return _open(ring, sealed, bound_to, where)[1]


def key_of_state(text: bytes) -> str | None:
    """The id of the key that a checkpoint or a summary is sealed with; None if it is not sealed."""
    found = _START.match(text)
    return found[2].decode() if found is not None else None


def _close(ring: Keyring, clear: bytes, rest: bytes, bound_to: bytes) -> bytes:
    start = b'{\n"sealed": %d,\n"key": "%b",\n%b%b' % (_VERSION, ring.first.encode(), clear, _BOX)
    return start + b64encode(ring.seal(rest, bound_to + start)) + _END


def _open(ring: Keyring, sealed: bytes, bound_to: bytes, where: str) -> tuple[bytes, bytes]:
    """The readable lines, and what was in the box."""
    found = _START.match(sealed)
    if found is None:
        raise not_sealed(where)
    check_version(int(found[1]), where)
    at = sealed.rfind(_BOX)
    start, box = sealed[: at + len(_BOX)], sealed[at + len(_BOX) : -len(_END)]
    if at < found.end() or not sealed.endswith(_END):
        raise changed(where)
    try:
        rest = ring.open(found[2].decode(), a2b_base64(box, strict_mode=True), bound_to + start, where=where)
    except NotBase64:
        raise changed(where) from None
    return sealed[found.end() : at], rest
