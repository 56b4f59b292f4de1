"""Sealing: AES-256-GCM around what is kept, or carried, where others may look.

Whatever is sealed names its key, and is bound to what it is *about*: the job, and its place within the job. So nothing
can be changed, moved or swapped without being noticed. Not noticed are a part or a whole store that somebody has put
back to an older version of itself, and a side file or a run that ended which somebody has removed.

Each sealing draws a nonce of 96 bits at random. After n sealings with one key, two of them share a nonce with a
probability of about n²/2⁹⁷: 6e-16 for 10 million records, 2.5e-15 with a commit for each of them. NIST's limit for one
key is 2³² sealings, which is 1e-10; have a new key long before.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Mapping, Sequence
from shlex import quote

from agentrun.errors import CheckpointError, UsageError
from agentrun.job.keys import KEY_VARIABLES, read_keys

OVERHEAD_BYTES = 12 + 16
"""What sealing adds: the nonce and the tag."""
RESTORE = "restore the store from a backup, or start over with --fresh"
_NONCE_BYTES = 12
_VERSION = 1
_SEALED = re.compile(rb"sealed(\d{1,4}):([0-9a-f]{8}):")
_PREFIX = "sealed%d:%s:"
_VARIABLES = f"{KEY_VARIABLES[0]}, {KEY_VARIABLES[1]} or {KEY_VARIABLES[2]}"


class MissingKeyError(UsageError):
    """Something is sealed with a key that was not given; `key` is its id."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class NotSealedError(CheckpointError):
    """Something is not sealed, although a key is given."""


class Keyring:
    """The first key seals; all of them open."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise UsageError(
                "sealing needs the extra sealed (cryptography is not installed); install it, in the checkout, with: "
                "pip install '.[sealed]'"
            ) from None
        self._ciphers = {key_id(key): AESGCM(key) for key in keys}
        self._invalid_tag = InvalidTag
        self.first = key_id(keys[0])
        """The id of the key that seals."""
        self._prefix = (_PREFIX % (_VERSION, self.first)).encode()

    @property
    def ids(self) -> list[str]:
        return list(self._ciphers)

    def seal(self, text: bytes, bound_to: bytes) -> bytes:
        """The text as bytes that only `open`, given the same key and the same `bound_to`, turns back."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._ciphers[self.first].encrypt(nonce, text, bound_to)

    def open(self, key: str, sealed: bytes, bound_to: bytes, *, where: str, what_to_do: str = RESTORE) -> bytes:
        """MissingKeyError without the key; CheckpointError if anything is not as it was sealed."""
        cipher = self._ciphers.get(key)
        if cipher is None:
            given = "the keys given are" if len(self.ids) > 1 else "the key given is"
            what = f"is sealed with key {key}, but {given} {', '.join(self.ids)}"
            raise MissingKeyError(f"{where}: {what}; set the right one in {_VARIABLES}", key=key)
        if len(sealed) < OVERHEAD_BYTES:
            raise changed(where, what_to_do)
        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
        except self._invalid_tag:
            raise changed(where, what_to_do) from None

    def seal_line(self, text: bytes, bound_to: bytes) -> bytes:
        """The text, sealed, behind the id of its key: a line of a journal, of any bytes."""
        return self._prefix + self.seal(text, bound_to)

    def open_line(self, line: bytes, bound_to: bytes, *, where: str) -> bytes:
        found = _SEALED.match(line)
        if found is None:
            raise not_sealed(where)
        check_version(int(found[1]), where)
        return self.open(found[2].decode(), line[found.end() :], bound_to, where=where)


def read_keyring(environ: Mapping[str, str]) -> Keyring | None:
    """The keys that the environment names; None if it names none."""
    keys = read_keys(environ)
    return Keyring(keys) if keys is not None else None


def key_id(key: bytes) -> str:
    """What a key is called where people and programs can read it; nothing of the key can be found out by it."""
    return hmac.digest(key, b"agentrun key id", "sha256")[:4].hex()


def about(*parts: str) -> bytes:
    """What a text is about, to bind it to; no two lists of parts give the same."""
    return b"".join(b"%d:%b," % (len(part), part) for part in (one.encode(errors="surrogatepass") for one in parts))


def key_of_line(line: bytes) -> str | None:
    """The id of the key that a line is sealed with; None if it is not sealed."""
    found = _SEALED.match(line)
    return found[2].decode() if found is not None else None


def check_version(version: int, where: str) -> None:
    if version != _VERSION:
        raise CheckpointError(f"{where}: is sealed in version {version}, from a newer agentrun; use that one")


def changed(where: str, what_to_do: str = RESTORE) -> CheckpointError:
    return CheckpointError(f"{where}: is not as it was sealed (changed, moved, swapped or cut short); {what_to_do}")


def not_sealed(where: str, *, job: str = "JOB", part: str = "") -> NotSealedError:
    """`part` is what is not sealed, if other parts of the job are."""
    # Never read all the same: whoever can write to the store could put anything in the place of what was sealed.
    seal = f"agentrun rekey {quote(job)} --seal"
    if part:
        return NotSealedError(
            f"{where}: {part} is not sealed, but the rest of the job is: sealing was interrupted, or somebody has "
            f"replaced it; to finish sealing: {seal}; otherwise restore the store from a backup"
        )
    return NotSealedError(
        f"{where}: is not sealed, but a key is set; to seal it: {seal}; if it was sealed before, somebody has replaced "
        f"it: restore the store from a backup"
    )


def needs_key(where: str, key: str) -> MissingKeyError:
    """For those who have no key at all."""
    return MissingKeyError(f"{where}: is sealed with key {key}, but no key is set; set it in {_VARIABLES}", key=key)


def without_key(error: MissingKeyError, job: str) -> MissingKeyError:
    """The same, with the way out for those who have lost the key."""
    lost = f"if the key is lost, the job can only be removed: agentrun clear {quote(job)}"
    return MissingKeyError(f"{error.message}; {lost}", key=error.key)
