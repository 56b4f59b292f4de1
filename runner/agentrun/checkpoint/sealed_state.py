"""A sealed checkpoint: the figures of the run stay readable, the rest does not.

    {
    "sealed": 1,
    "key": "3f2a9c01",
    "version": 1,
    "job": "triage",
    …
    "box": "<base64>"
    }

The readable fields are those of the checkpoint, line by line. The box is bound to every byte before it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import Error as NotBase64
from binascii import a2b_base64

from agentrun.checkpoint.sealing import Keyring, changed, check_version, not_sealed

CLEAR = (
    "version", "job", "run_id", "seq", "last_completed", "total", "counts", "done", "failed", "waiting", "usage",
    "started_at", "updated_at",
)  # fmt: skip
"""The fields that stay readable."""
_VERSION = 1
_START = re.compile(rb'\{\n"sealed": (\d{1,4}),\n"key": "([0-9a-f]{8})",\n')
_CLEAR_LINE = re.compile(rb'"(?:%b)": .*,' % "|".join(CLEAR).encode())
_BOX = b'"box": "'
_END = b'"\n}\n'


def seal_state(ring: Keyring, text: bytes, bound_to: bytes) -> bytes:
    """Any text can be sealed, and comes back byte for byte; of one that is no checkpoint, nothing stays readable."""
    clear = [b'{\n"sealed": %d,\n"key": "%b",\n' % (_VERSION, ring.first.encode())]
    rest: list[bytes] = []
    for line in text.split(b"\n"):
        if _CLEAR_LINE.fullmatch(line):
            clear.append(line + b"\n")
            rest.append(b"")
        else:
            rest.append(b"+" + line)
    start = b"".join(clear) + _BOX
    return start + b64encode(ring.seal(b"\n".join(rest), bound_to + start)) + _END


def open_state(ring: Keyring, sealed: bytes, bound_to: bytes, *, where: str) -> bytes:
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
    clear = iter(sealed[found.end() : at].split(b"\n"))
    return b"\n".join(line[1:] if line else next(clear) for line in rest.split(b"\n"))


def key_of_state(text: bytes) -> str | None:
    """The id of the key that a checkpoint is sealed with; None if it is not sealed."""
    found = _START.match(text)
    return found[2].decode() if found is not None else None
