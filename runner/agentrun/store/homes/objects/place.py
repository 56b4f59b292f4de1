"""Jobs in object storage: S3, Google Cloud Storage, Azure, and what speaks their language. A folder a job.

The client is obstore, of the extra `objects`: it is imported when a place is opened, and finds the credentials in the
environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentrun.errors import UsageError
from agentrun.store.homes.objects.head import decode_name, encode_name
from agentrun.store.keyed.home import Place

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from agentrun.store.homes.objects.home import ObjectsHome

REQUEST_SECONDS, CONNECT_SECONDS, RETRY_SECONDS = 20, 5, 15
"""The client's own limits: shorter than a lease, so that it is known in time whether that was renewed."""
_ASKED_AT_ONCE = 8
_PART = re.compile(r"[A-Za-z0-9_=+@ .-]+")


class ObjectsPlace(Place):
    """The folder `prefix` of a bucket, which may have other things in it.

    `margin_seconds`: how much longer a lease counts than it lasts. Services tell the time in whole seconds.
    """

    def __init__(self, store: ObjectStore, prefix: str, *, shown: str, margin_seconds: float = 2.0) -> None:
        from agentrun.store.homes.objects.bucket import Bucket

        self.shown = shown
        self._bucket = Bucket(store, shown=shown)
        self._prefix = prefix.strip("/")
        self._margin_seconds = margin_seconds

    def names(self) -> list[str]:
        return self._those(lambda home: home.is_there())

    def home(self, job: str) -> ObjectsHome:
        from agentrun.store.homes.objects.home import ObjectsHome

        folder = encode_name(job)
        at = f"{self._prefix}/{folder}" if self._prefix else folder
        return ObjectsHome(self._bucket, at, shown=f"{job} in {self.shown}", margin_seconds=self._margin_seconds)

    def find(self, run_id: str) -> str | None:
        return next(iter(self._those(lambda home: home.has_run(run_id))), None) if run_id else None

    def _those(self, are: Callable[[ObjectsHome], bool]) -> list[str]:
        """The jobs of which this is true."""
        jobs = sorted(map(decode_name, self._bucket.folders(self._prefix)))
        with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="agentrun-jobs") as threads:
            found = threads.map(lambda job: are(self.home(job)), jobs)
            return [job for job, is_one in zip(jobs, found, strict=True) if is_one]

    def close(self) -> None:
        """There is nothing to close: the client lets go of connections that are idle."""


def open_objects(scheme: str, bucket: str, prefix: str, settings: Mapping[str, str], *, shown: str) -> ObjectsPlace:
    """The place for `s3`, `gs` or `az`. Nothing is asked of it yet."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ModuleNotFoundError:
        raise UsageError(
            f"{shown}: a {scheme} store needs the extra objects; install it, in the checkout, with: "
            f"pip install '.[objects]'"
        ) from None
    _check_parts([bucket, *prefix.strip("/").split("/")] if prefix.strip("/") else [bucket], shown)
    endpoint = _endpoint(scheme, settings)
    options: dict[str, Any] = {
        "client_options": {
            "timeout": timedelta(seconds=REQUEST_SECONDS),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            "allow_http": _may_be_http(scheme, endpoint, shown),
        },
        "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    }
    kinds: dict[str, tuple[Callable[..., ObjectStore], dict[str, str]]] = {
        "s3": (S3Store, {"endpoint": "endpoint", "region": "region"}),
        "gs": (GCSStore, {}),
        "az": (AzureStore, {"endpoint": "endpoint", "account": "account_name"}),
    }
    kind, names = kinds[scheme]
    for name in settings:
        if name not in names:
            raise UsageError(f"{shown}: {name} is not a setting of {scheme}; use {', '.join(names) or 'none'}")
    try:
        store = kind(bucket, **{names[name]: value for name, value in settings.items()}, **options)
    except (BaseError, ValueError):
        # Not what it says: that may quote the environment.
        account = "; say which account it is in: ?account=NAME" if scheme == "az" else ""
        raise UsageError(
            f"{shown}: the client refuses it{account or '; check the address and the variables of the service'}"
        ) from None
    return ObjectsPlace(store, prefix, shown=shown)


def _check_parts(parts: list[str], shown: str) -> None:
    for part in parts:
        if not _PART.fullmatch(part) or part.strip(".") == "":
            raise UsageError(f"{shown}: name the bucket and its folders with letters, digits, spaces and any of _=+@.-")


def _endpoint(scheme: str, settings: Mapping[str, str]) -> str:
    """Where the client will connect to, if that is not the service's usual address."""
    variables = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"), "az": ("AZURE_STORAGE_ENDPOINT",)}
    found = (os.environ.get(name, "") for name in variables.get(scheme, ()))
    return settings.get("endpoint", "") or next(filter(None, found), "")


def _may_be_http(scheme: str, endpoint: str, shown: str) -> bool:
    """Whether the connection needs no TLS: only on this machine, or if the user says so in the client's own words."""
    if not endpoint:
        return False
    malformed = UsageError(f"{shown}: the endpoint is not an address; write one such as https://s3.example.com")
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise malformed from None
    # The client crashes at an address that is none.
    is_sound = re.fullmatch(r"[A-Za-z0-9.:-]+", host) and re.fullmatch(r"[A-Za-z0-9._~/-]*", parts.path)
    if parts.scheme not in ("http", "https") or not is_sound or parts.query or parts.fragment:
        raise malformed
    if parts.username is not None:
        raise UsageError(f"{shown}: the endpoint has a user or a password; set the variables of the service instead")
    if parts.scheme == "https":
        return False
    variable = "AZURE_ALLOW_HTTP" if scheme == "az" else "AWS_ALLOW_HTTP"
    if _is_loopback(host) or os.environ.get(variable, "").lower() in ("1", "true"):
        return True
    raise UsageError(
        f"{shown}: the endpoint is plain http, so that everyone on the way could read and change the data; use https, "
        f"or set {variable}=true"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
