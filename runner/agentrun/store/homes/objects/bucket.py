"""A bucket as a home needs it: whole objects, conditions on writing them, and errors in our own words.

What obstore says may hold signed addresses, so nothing of it is shown but a status and a code.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from agentrun.errors import AgentrunError, StoreError, UsageError

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion
    from obstore.store import ObjectStore

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_SAID = ("Connection refused", "Connection reset", "dns error", "timed out", "TimedOut", "certificate")
"""Words in what the client says that may be shown."""
_TEMPORARY = ("408", "409", "425", "429")
_ASKED_FOR_CREDENTIALS = ("169.254.", "/latest/api/token", "/latest/meta-data/", "token request")
"""In what the client says when it asked the machine it is on, because the environment has no credentials."""
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_WITHOUT_CONDITIONS = "does not support conditional writes, which keep two runners apart; use another service"


class RefusedError(Exception):
    """The condition of a write did not hold; or it did, and this was the second time that the client sent it."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object as it was read."""

    data: bytes
    version: UpdateVersion
    modified: datetime


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a list."""

    path: str
    modified: datetime


class Bucket:
    """Objects by their paths. May be used from several threads."""

    def __init__(self, store: ObjectStore, *, shown: str) -> None:
        self.shown = shown
        self._store = store
        self._has_answered = False
        self._keeps_conditions = False

    def get(self, path: str) -> Found | None:
        """The object; None if there is none."""
        with self._errors():
            try:
                found = obstore.get(self._store, path)
                data = bytes(found.bytes())
            except FileNotFoundError as error:
                if any(word in str(error) for word in _NO_BUCKET):
                    raise
                return None
            return Found(data, _version(found.meta), found.meta["last_modified"])

    def put(self, path: str, data: bytes, *, when: UpdateVersion | Literal["create"] | None = None) -> UpdateVersion:
        """Write an object; `when`: only in place of this version, or only if there is none. Otherwise RefusedError."""
        with self._errors():
            try:
                mode = when if when is not None else "overwrite"
                return _version(obstore.put(self._store, path, data, mode=mode, use_multipart=False))
            except (AlreadyExistsError, PreconditionError):
                raise RefusedError(path) from None

    def objects(self, folder: str) -> list[Listed]:
        """All objects below the folder."""
        with self._errors():
            pages = obstore.list(self._store, folder, chunk_size=1000)
            return [Listed(one["path"], one["last_modified"]) for page in pages for one in page]

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in it; for the bucket itself, an empty string."""
        with self._errors():
            paths = obstore.list_with_delimiter(self._store, folder or None)["common_prefixes"]
            return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; one that is gone already is fine."""
        if not paths:
            return
        with self._errors():
            try:
                obstore.delete(self._store, paths)
            except FileNotFoundError:
                # One of them was gone, which some services call an error: the rest may still be there.
                for path in paths:
                    self._delete_one(path)

    def _delete_one(self, path: str) -> None:
        try:
            obstore.delete(self._store, path)
        except FileNotFoundError:
            pass

    def now(self, folder: str) -> datetime:
        """The time by the service's own clock: the one at which it says that an object was made just now."""
        path = f"{folder}/{secrets.token_hex(8)}"
        self.put(path, b"")
        with self._errors():
            now = obstore.head(self._store, path)["last_modified"]
        self._tidy(path)
        return now

    def check_conditions(self, folder: str) -> None:
        """UsageError if the service ignores conditions: there are some that accept such a write and overwrite."""
        if self._keeps_conditions:
            return
        path = f"{folder}/{secrets.token_hex(8)}"
        old = self.put(path, b"1")
        self.put(path, b"2")
        try:
            if self._is_written(path, "create") or self._is_written(path, old):
                raise UsageError(f"{self.shown}: {_WITHOUT_CONDITIONS}")
        finally:
            self._tidy(path)
        self._keeps_conditions = True

    def _is_written(self, path: str, when: UpdateVersion | Literal["create"]) -> bool:
        try:
            self.put(path, b"3", when=when)
        except RefusedError:
            return False
        return True

    def _tidy(self, path: str) -> None:
        try:
            self.delete([path])
        except AgentrunError:
            pass  # it is removed with the rest that nothing names

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What the client says, as an error of ours."""
        try:
            yield
        except (BaseError, OSError) as error:
            raise self._error(error) from None
        self._has_answered = True

    def _error(self, error: Exception) -> AgentrunError:
        text = str(error)
        status, code = _first(_STATUS, text), _first(_CODE, text)
        if isinstance(error, FileNotFoundError) or any(word in text for word in _NO_BUCKET):
            return UsageError(f"{self.shown}: there is no such bucket; create it first")
        if isinstance(error, NotSupportedError) or status == "501":
            return UsageError(f"{self.shown}: {_WITHOUT_CONDITIONS}")
        if any(word in text for word in _ASKED_FOR_CREDENTIALS):
            if self._has_answered:
                return StoreError(f"{self.shown}: the credentials cannot be renewed ({status or 'no connection'})")
            return UsageError(
                f"{self.shown}: no credentials were found; set the variables that the service's own tools use, such as "
                f"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (files such as ~/.aws/credentials are not read)"
            )
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
            return UsageError(
                f"{self.shown}: access was denied ({code or status or 'no reason given'}); the credentials must allow "
                f"to read, list, write and delete objects, or to read and list them for just looking"
            )
        if "builder error" in text:
            return UsageError(f"{self.shown}: the endpoint cannot be used; write one such as https://s3.example.com")
        if status and status[0] in "34" and status not in _TEMPORARY:
            return UsageError(f"{self.shown}: answered {code or status}; check the bucket, the region and the endpoint")
        said = code or status or next((word for word in _SAID if word in text), "no connection")
        return StoreError(f"{self.shown}: does not answer ({said})")


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _version(found: ObjectMeta | PutResult) -> UpdateVersion:
    # Without what is None: the client refuses that.
    made: UpdateVersion = {}
    if found["e_tag"] is not None:
        made["e_tag"] = found["e_tag"]
    if found["version"] is not None:
        made["version"] = found["version"]
    return made
