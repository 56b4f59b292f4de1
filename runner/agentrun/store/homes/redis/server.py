"""The connection to a Redis server: what it is asked, whether it can be trusted with data, and its errors in our words.

A server that may lose what it has acknowledged is refused before the first write. Redis promises durability only with
an append-only file that is synced before each answer, and forgets keys of its own accord where eviction is set up.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from agentrun.errors import AgentrunError, CheckpointError, StoreError, UsageError
from agentrun.job.address import STORE_VARIABLE
from agentrun.store.homes.redis.scripts import Script

if TYPE_CHECKING:
    import redis

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 10.0
"""How long to wait for a connection, and for an answer."""
SOUND = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
"""What the settings of a server must be.

Of the policies all others are harmful: allkeys-* evicts records, volatile-* leases, which are the keys that expire.
"""
_FORM = "redis://USER:PASSWORD@HOST:6379/0, with % and two digits for special characters in the password"


class RedisServer:
    """A server, connected to by the first call, and again by the call after an error. One call at a time."""

    def __init__(
        self, url: str, *, shown: str, is_trusted: bool = False, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self.shown = shown
        self._options = _options(url, shown)
        self._answer_seconds = answer_seconds
        self._is_trusted = is_trusted
        self._lock = threading.RLock()
        self._client: Any = None
        self._is_sound = False
        """Whether the server of this connection was found to be sound."""
        self._was_sound = False

    def ask(self, *command: Any) -> Any:
        """The answer to a command that only reads."""
        with self._connected() as client:
            return client.execute_command(*command)

    def ask_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers to many commands that only read, in one go."""
        with self._connected() as client, client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return list(pipeline.execute())

    def look(self, script: Script, keys: Sequence[bytes]) -> Any:
        """What a script returns that only reads."""
        with self._connected() as client:
            return _run(client, script, keys, ())

    def change(self, script: Script, keys: Sequence[bytes], values: Sequence[str | bytes]) -> int:
        """What a script returns that writes, durably."""
        with self._connected() as client:
            self._refuse_unless_sound(client)
            return int(_run(client, script, keys, values))

    def note(self, *command: Any) -> None:
        """A command that writes, durably, and needs no check."""
        with self._connected() as client:
            self._refuse_unless_sound(client)
            client.execute_command(*command)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
            self._is_sound = False
            if client is not None:
                client.close()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        import redis

        with self._lock:
            try:
                if self._client is None:
                    self._client = self._connect()
                yield self._client
            except redis.RedisError as error:
                if not isinstance(error, redis.ResponseError) or isinstance(error, redis.exceptions.ReadOnlyError):
                    self.close()
                # Without the library's error, whose text may hold parts of the address or of the data.
                raise self._error(error) from None
            except OSError as error:
                self.close()
                raise StoreError(f"{self.shown}: does not answer ({error.strerror})") from None
            except BaseException:
                # Perhaps an answer is still on its way, which the next command must not take for its own.
                self.close()
                raise

    def _connect(self) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options = dict(self._options)
        username, password = options.pop("username"), options.pop("password")
        if password:
            # Not as an option: the library shows those in the text of its objects.
            options["credential_provider"] = redis.UsernamePasswordCredentialProvider(username or None, password)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # What was not delivered when we gave up is not delivered later either, after what we have sent instead.
            options["socket_keepalive_options"] = {socket.TCP_USER_TIMEOUT: int(self._answer_seconds * 1000)}
        try:
            return redis.Redis(
                **options,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=self._answer_seconds,
                socket_keepalive=True,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                # No pool, which would connect again unnoticed: to a server that was not checked.
                single_connection_client=True,
            )
        except UnicodeError:
            raise UsageError(f"{self.shown}: the name of the host is malformed; write {_FORM}") from None

    # ---- whether it can be trusted

    def _refuse_unless_sound(self, client: Any) -> None:
        if self._is_sound:
            return
        role = _try(client, "ROLE")
        if role and role[0] == b"slave":
            words = f"{self.shown}: is a replica, which cannot be written to; "
            # After a failover the address soon means the new primary.
            raise (StoreError if self._was_sound else UsageError)(words + "give the address of the primary")
        if role and role[0] == b"sentinel":
            raise UsageError(f"{self.shown}: is a sentinel, which keeps no data; give the address of the primary")
        refusal = why_unsound({name: _setting(client, name) for name in SOUND}, is_trusted=self._is_trusted)
        if refusal:
            raise UsageError(f"{self.shown}: {refusal}")
        self._is_sound = self._was_sound = True

    # ---- errors

    def _error(self, error: redis.RedisError) -> AgentrunError:
        import redis
        from redis import exceptions

        kinds: list[tuple[type[Exception] | tuple[type[Exception], ...], type[AgentrunError], str]] = [
            (
                redis.AuthenticationError,
                UsageError,
                f"the user or the password is wrong, or missing; set {STORE_VARIABLE} to the address with the password",
            ),
            (
                (exceptions.NoPermissionError, exceptions.AuthorizationError),
                UsageError,
                "the user is not permitted to do this; it needs read, write and scripting on keys that begin with "
                "agentrun:",
            ),
            (redis.BusyLoadingError, StoreError, "is still loading its data; wait for it"),
            (exceptions.ReadOnlyError, StoreError, "has become a replica; wait until the address means the primary"),
            (redis.OutOfMemoryError, StoreError, "has no memory left; raise maxmemory there"),
            ((exceptions.MovedError, exceptions.AskError, exceptions.ClusterCrossSlotError), UsageError, _CLUSTER),
            (redis.TimeoutError, StoreError, f"did not answer within {self._answer_seconds:g} s"),
            (redis.ConnectionError, StoreError, _why_silent(error)),
            (redis.InvalidResponse, StoreError, "gave an answer that is not of Redis; check the host and the port"),
        ]
        if isinstance(_origin(error), ssl.SSLCertVerificationError):
            return UsageError(
                f"{self.shown}: its certificate is not valid here; name the file of its authority in SSL_CERT_FILE"
            )
        for classes, kind, words in kinds:
            if isinstance(error, classes):
                return kind(f"{self.shown}: {words}")
        return self._refused(str(error))

    def _refused(self, text: str) -> AgentrunError:
        """What the server says and the library has no class for. Only its first word is shown: the rest may be data."""
        code = text.partition(" ")[0]
        if code == "WRONGTYPE":
            return CheckpointError(f"{self.shown}: another program has changed our keys; restore them from a backup")
        if text.startswith("DB index"):
            return UsageError(f"{self.shown}: has no database of this number; write a smaller one, such as /0")
        if text.startswith("unknown command"):
            return UsageError(f"{self.shown}: does not know a command that is needed; use Redis 5 or newer, or Valkey")
        return StoreError(f"{self.shown}: has refused a command{f' ({code})' if code.isupper() else ''}")


_CLUSTER = "is a node of a cluster; give the address of a server that is none, or of the proxy before the cluster"


def why_unsound(settings: Mapping[str, str | None], *, is_trusted: bool) -> str:
    """Why a server with these settings is refused, and what to do; empty if it is not.

    None is a setting that the server does not tell: there the user's word counts.
    """
    wrong = {name: wanted for name, wanted in SOUND.items() if settings.get(name) not in (wanted, None)}
    if wrong:
        found = ", ".join(f"{name} is {settings[name]}" for name in wrong)
        remedy = ", ".join(f"{name} {wanted}" for name, wanted in wrong.items())
        return f"this server can lose what it has acknowledged ({found}); set {remedy} there, or use another store"
    untold = [name for name in SOUND if settings.get(name) is None]
    if untold and not is_trusted:
        return (
            f"this server does not tell whether it keeps what it has acknowledged (CONFIG GET {untold[0]} is forbidden "
            f"there); if you know that it does, add ?durable=trust to the address, otherwise use another store"
        )
    return ""


def _options(url: str, shown: str) -> dict[str, Any]:
    """What the library needs to connect. The address is read here: its own errors would show parts of it."""
    try:
        parts = urlsplit(url)
        port, host = parts.port or 6379, parts.hostname
        database = int(parts.path.strip("/") or 0)
    except ValueError:
        raise UsageError(f"{shown}: the port or the database is not a number; write {_FORM}") from None
    if parts.scheme not in ("redis", "rediss") or not host or database < 0:
        raise UsageError(f"{shown}: is not the address of a Redis server; write {_FORM}")
    options: dict[str, Any] = {"host": host, "port": port, "db": database}
    options["username"], options["password"] = unquote(parts.username or ""), unquote(parts.password or "")
    if parts.scheme == "rediss":
        options |= {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
    return options


def _run(client: Any, script: Script, keys: Sequence[bytes], values: Sequence[str | bytes]) -> Any:
    from redis.exceptions import NoScriptError

    try:
        return client.execute_command("EVALSHA", script.sha, len(keys), *keys, *values)
    except NoScriptError:
        # It was not run. The server has been restarted, or has never seen it.
        return client.execute_command("EVAL", script.text, len(keys), *keys, *values)


def _try(client: Any, *command: str) -> Any:
    """The answer to a command that may be forbidden; None if it is."""
    from redis import ResponseError

    try:
        return client.execute_command(*command)
    except ResponseError:
        return None


def _setting(client: Any, name: str) -> str | None:
    found = _try(client, "CONFIG", "GET", name)
    return found[1].decode(errors="replace") if found else None


def _origin(error: BaseException) -> OSError | None:
    """The error of the system behind an error of the library, if there is one."""
    from redis import RedisError

    before: BaseException | None = error
    while isinstance(before, RedisError):
        before = before.__cause__ or before.__context__
    return before if isinstance(before, OSError) else None


def _why_silent(error: BaseException) -> str:
    """Why there is no connection, and what to do if somebody can."""
    if isinstance(_origin(error), ConnectionRefusedError):
        return "nobody listens there; check that the server is running, and the address"
    return f"does not answer ({_cause(error)})"


def _cause(error: BaseException) -> str:
    origin = _origin(error)
    if isinstance(origin, socket.gaierror):
        return "the name of the host is not known"
    if isinstance(origin, ssl.SSLError):
        return "there is no TLS with it"
    return os.strerror(origin.errno) if origin is not None and origin.errno else "the connection was closed"
