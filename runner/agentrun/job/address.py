"""The address of a store: `postgres://ada@db.example/agents`, `s3://bucket/prefix`, `sqlite:///jobs.db`.

An address has two forms. `text` is for people, files and messages, and never holds a password; `url` is what a library
is given, and may. Whatever is wrong with an address is said in our own words: a malformed one may hold a password
anywhere.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from agentrun.errors import JobError, UsageError
from agentrun.values.units import parse_duration

STORE_VARIABLE = "AGENTRUN_STORE"
KEY_VARIABLE = "AGENTRUN_KEY"
"""How the names of the variables begin that say which keys seal a store."""
FOLDER = "folder"
LEAST_LEASE_SECONDS = 1.0
EXAMPLES = "postgres://…, s3://…, gs://…, az://…, redis://…, sqlite:///… or folder"
_ALIASES = {"postgresql": "postgres", "rediss": "redis"}
_SETTINGS: dict[str, tuple[str, ...]] = {
    "postgres": ("host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs"),
    "s3": ("endpoint", "region"),
    "gs": (),
    "az": ("account", "endpoint"),
    "redis": ("durable",),
    "sqlite": (),
}
"""The settings that may stand behind the `?` of each kind of address, besides `lease`."""
_TELLING = ("host", "port", "endpoint", "account")
"""Those that say which place it is."""
_PORTS = {"postgres": 5432, "redis": 6379}


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a job's state is kept, if that is not its folder."""

    kind: str
    """postgres, s3, gs, az, redis, sqlite; or folder, the default in so many words."""
    text: str
    """Without a password."""
    url: str = field(repr=False, default="")
    """With the password, if one was given."""
    has_secret: bool = False
    settings: Mapping[str, str] = field(default_factory=dict, compare=False)
    bucket: str = ""
    path: str = ""
    """The prefix in a bucket, or the path of a file."""
    lease_seconds: float | None = field(default=None, compare=False)

    @property
    def is_folder(self) -> bool:
        return self.kind == FOLDER

    @property
    def shown(self) -> str:
        """The address without the settings that only say how it is reached."""
        told = {name: value for name, value in self.settings.items() if name in _TELLING}
        return self.text.partition("?")[0] + _query(told)

    @property
    def place(self) -> str:
        """What tells one place from another, however its address is written."""
        if self.kind not in _PORTS:
            return self.shown
        parts = urlsplit(self.shown)
        path = parts.path if self.kind == "postgres" else parts.path or "/0"
        return f"{self.kind}://{parts.hostname or ''}:{parts.port or _PORTS[self.kind]}{path}?{parts.query}"

    def with_secret_of(self, other: StoreAddress | None) -> StoreAddress:
        """The address with the password of another one for the same place, and the same user if it names one.

        Where one of them asks for more safety, as `rediss` and `sslmode` do, so does the result.
        """
        if other is None or self.has_secret or other.place != self.place:
            return self
        ours, theirs = urlsplit(self.url), urlsplit(other.url)
        if ours.username not in (None, theirs.username):
            return self
        settings = {**other.settings, **self.settings}
        scheme = "rediss" if "rediss" in (ours.scheme, theirs.scheme) else ours.scheme
        user, at, _ = theirs.netloc.rpartition("@")
        url = f"{scheme}://{user}{at}{ours.netloc.rpartition('@')[2]}{ours.path}{_query(settings)}"
        return replace(self, url=url, has_secret=other.has_secret, settings=settings)

    def seen_from(self, folder: Path) -> str:
        """As written beside `folder`: a file inside it is named relative to it, so that both can be moved."""
        if self.kind == "sqlite" and Path(self.path).is_relative_to(folder):
            query = self.text.partition("?")[2]
            return f"sqlite:///{quote(os.path.relpath(self.path, folder))}{f'?{query}' if query else ''}"
        return self.text


def read_address(text: str, *, base: Path, where: str, may_have_secret: bool = False) -> StoreAddress:
    """The address in `text`; `where` says who gave it. A relative path of a file is relative to `base`.

    A password is refused unless `may_have_secret`: files are shared, and every user sees the arguments of a process.
    """
    if text == FOLDER:
        return StoreAddress(FOLDER, FOLDER, FOLDER)
    scheme, colon, _ = text.partition("://")
    kind = _ALIASES.get(scheme, scheme)
    if not colon or kind not in _SETTINGS:
        raise UsageError(f"{where}: is not the address of a store; write {EXAMPLES}")
    try:
        parts = urlsplit(text)
        _ = parts.port, parts.hostname
    except ValueError:
        raise UsageError(f"{where}: the host or the port of the {kind} address is wrong; write {_form(kind)}") from None
    if parts.password is not None and not may_have_secret:
        raise UsageError(
            f"{where}: has a password, which others may read there; leave it out, and set {STORE_VARIABLE} to the "
            f"address with the password{', or PGPASSWORD' if kind == 'postgres' else ''}"
        )
    if parts.fragment:
        raise UsageError(f"{where}: has a # in the {kind} address; in a password, write %23 for it")
    settings = _read_settings(parts.query, kind, where)
    if kind == "sqlite":
        address = _file_address(parts, base, where)
    elif kind in ("s3", "gs", "az"):
        address = _bucket_address(parts, kind, where)
    else:
        address = _server_address(parts, kind, where)
    ours = {name: value for name, value in settings.items() if name != "lease"}
    return replace(
        address,
        text=address.text + _query(settings),
        url=address.url + _query(ours),
        settings=ours,
        lease_seconds=_read_lease(settings.get("lease"), where),
    )


def _query(settings: Mapping[str, str]) -> str:
    return f"?{urlencode(sorted(settings.items()), safe='/:')}" if settings else ""


def _server_address(parts: SplitResult, kind: str, where: str) -> StoreAddress:
    is_complete = parts.hostname if kind == "redis" else parts.path.strip("/")
    if not is_complete:
        raise UsageError(f"{where}: names no {'host' if kind == 'redis' else 'database'}; write {_form(kind)}")
    if "@" in unquote(parts.path):
        raise UsageError(f"{where}: has an @ behind a / in the {kind} address; in a password, write %2F for each /")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    place = f"{host}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"
    user = quote(unquote(parts.username or ""), safe="")
    text = f"{parts.scheme}://{f'{user}@' if user else ''}{place}"
    if not parts.password:
        return StoreAddress(kind, text, text)
    password = quote(unquote(parts.password), safe="")
    return StoreAddress(kind, text, f"{parts.scheme}://{user}:{password}@{place}", has_secret=True)


def _bucket_address(parts: SplitResult, kind: str, where: str) -> StoreAddress:
    if not parts.hostname or parts.username is not None:
        raise UsageError(f"{where}: names no bucket; write {_form(kind)}")
    bucket, prefix = parts.netloc, unquote(parts.path).strip("/")
    text = f"{parts.scheme}://{bucket}{f'/{quote(prefix)}' if prefix else ''}"
    return StoreAddress(kind, text, text, bucket=bucket, path=prefix)


def _file_address(parts: SplitResult, base: Path, where: str) -> StoreAddress:
    name = unquote(parts.path).removeprefix("/")
    if parts.netloc or not name or name.endswith("/"):
        raise UsageError(f"{where}: names no file; write {_form('sqlite')}")
    file = os.path.normpath(base.absolute() / name)
    text = f"sqlite:///{quote(file)}"
    return StoreAddress("sqlite", text, text, path=file)


def read_store(text: str, *, base: Path, label: str) -> StoreAddress:
    """The store that a job file names; JobError if it is none. `label` is the file's."""
    try:
        return read_address(text, base=base, where="store")
    except UsageError as error:
        raise JobError(f"{label}: {error.message}", where=label, key="store") from None


def hide_secrets(environ: MutableMapping[str, str], store: StoreAddress | None = None) -> dict[str, str]:
    """Take out of the environment what agents and their programs must not see; return it. `store` is the job's."""
    names = [name for name in environ if name == STORE_VARIABLE or name.startswith(KEY_VARIABLE)]
    if store is not None and store.kind == "postgres" and "PGPASSWORD" in environ:
        names.append("PGPASSWORD")
    return {name: environ.pop(name) for name in names}


def address_in_environment(environ: Mapping[str, str], cwd: Path) -> StoreAddress | None:
    """The store that the environment names, with its password."""
    text = environ.get(STORE_VARIABLE)
    return read_address(text, base=cwd, where=STORE_VARIABLE, may_have_secret=True) if text else None


def _read_settings(query: str, kind: str, where: str) -> dict[str, str]:
    allowed = (*_SETTINGS[kind], "lease")
    found = dict(parse_qsl(query, keep_blank_values=True))
    for name in found:
        if name in ("password", "passfile", "sslpassword"):
            raise UsageError(f"{where}: has {name} behind the ?; put the password before the host, in {STORE_VARIABLE}")
        if name not in allowed:
            raise UsageError(f"{where}: has an unknown setting behind the ?; {kind} knows {', '.join(allowed)}")
        if "@" in found[name]:
            raise UsageError(f"{where}: has an @ in {name}, behind the ?; write no user or password there")
    return found


def _read_lease(text: str | None, where: str) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if seconds < LEAST_LEASE_SECONDS:
        raise UsageError(f'{where}: lease is not a duration of a second or more; write one such as "30s"')
    return seconds


def _form(kind: str) -> str:
    return {
        "postgres": "postgres://USER@HOST/DATABASE",
        "s3": "s3://BUCKET/PREFIX",
        "gs": "gs://BUCKET/PREFIX",
        "az": "az://CONTAINER/PREFIX?account=ACCOUNT",
        "redis": "redis://HOST:6379/0",
        "sqlite": "sqlite:///jobs.db for a relative path, sqlite:////srv/jobs.db for an absolute one",
    }[kind]
