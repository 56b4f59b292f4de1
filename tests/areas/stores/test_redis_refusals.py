"""A Redis server that may lose data is refused; its errors are told in our own words, and never with the password."""

from __future__ import annotations

import socketserver
import subprocess
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from agentrun.errors import AgentrunError, CheckpointError, StoreError, UsageError
from agentrun.store.homes.redis.place import RedisHome, RedisPlace
from agentrun.store.homes.redis.server import SOUND, RedisServer, why_unsound
from agentrun.store.keyed.home import Head
from needs import require_program
from stores.redis_server import DURABLE, TestServer, free_port, serve_redis

PASSWORD = "correct-horse"
SHOWN = "redis://db.example"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    with serve_redis(tmp_path_factory.mktemp("redis"), password=PASSWORD) as one:
        yield one


def refused(place: RedisPlace) -> str:
    """What is said when the place is to be written to; nothing is written."""
    with pytest.raises(UsageError) as caught:
        place.home("triage").take(Head(), b"{}", 60)
    place.close()
    return caught.value.message


# ---- settings


@pytest.mark.parametrize("is_trusted", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("appendfsync", "no"),
        ("no-appendfsync-on-rewrite", "yes"),
        ("maxmemory-policy", "allkeys-lru"),
        ("maxmemory-policy", "volatile-ttl"),
    ],
)
def test_a_server_that_can_lose_data_is_refused_though_somebody_trusts_it(
    server: TestServer, name: str, value: str, is_trusted: bool
) -> None:
    server.ask("CONFIG", "SET", name, value)
    try:
        said = refused(server.place(is_trusted=is_trusted))
    finally:
        server.ask("CONFIG", "SET", name, SOUND[name])
    assert said == (
        f"{server.shown}: this server can lose what it has acknowledged ({name} is {value}); set {name} {SOUND[name]} "
        f"there, or use another store"
    )
    assert server.ask("KEYS", "*") == []


def test_all_that_is_wrong_is_told_at_once() -> None:
    said = why_unsound({**SOUND, "appendonly": "no", "appendfsync": "everysec"}, is_trusted=False)
    assert "(appendonly is no, appendfsync is everysec); set appendonly yes, appendfsync always there" in said


def test_a_sound_server_is_accepted_and_one_that_tells_nothing_only_if_it_is_trusted() -> None:
    assert why_unsound(SOUND, is_trusted=False) == ""
    assert "?durable=trust" in why_unsound({}, is_trusted=False)
    assert why_unsound({}, is_trusted=True) == ""
    assert "CONFIG GET maxmemory-policy" in why_unsound({**SOUND, "maxmemory-policy": None}, is_trusted=False)


def test_a_server_without_config_is_accepted_only_if_it_is_trusted(tmp_path: Path) -> None:
    with serve_redis(tmp_path / "redis", {**DURABLE, "rename-command": 'CONFIG ""'}) as server:
        said = refused(server.place())
        assert "does not tell whether it keeps what it has acknowledged" in said and "add ?durable=trust" in said
        assert server.ask("KEYS", "*") == []
        place = server.place(is_trusted=True)
        assert place.home("triage").take(Head(), b"{}", 60) == 1
        place.close()


def test_a_user_with_few_rights_needs_trust_and_no_more(server: TestServer) -> None:
    rights = ["~agentrun:*", "-@all", "+@read", "+@write", "+@scripting", "+@connection", "+select"]
    server.ask("ACL", "SETUSER", "worker", "reset", "on", f">{PASSWORD}-2", *rights)
    url = server.url(f"{PASSWORD}-2", user="worker")
    assert "?durable=trust" in refused(RedisPlace(url, shown=SHOWN))
    place = RedisPlace(url, shown=SHOWN, is_trusted=True)
    home = place.home("few-rights")
    epoch = home.take(Head(), b"{}", 60)
    home.put("file", [b"text"], epoch=epoch)
    assert place.names() == ["few-rights"]
    home.clear(epoch)
    place.close()


def test_reading_needs_no_durability(server: TestServer) -> None:
    server.ask("CONFIG", "SET", "appendfsync", "everysec")
    try:
        place = server.place()
        assert place.home("triage").head() == Head() and place.find("run") is None
        place.close()
    finally:
        server.ask("CONFIG", "SET", "appendfsync", "always")


def test_settings_are_checked_again_after_the_server_was_restarted(tmp_path: Path) -> None:
    settings = dict(DURABLE)
    with serve_redis(tmp_path / "redis", settings) as server:
        place = server.place()
        home = place.home("triage")
        epoch = home.take(Head(), b"{}", 60)
        server.kill()
        settings["appendfsync"] = "everysec"
        server.start()
        with pytest.raises(StoreError):
            home.beat(epoch, 60)
        with pytest.raises(UsageError, match="appendfsync is everysec"):
            home.beat(epoch, 60)
        place.close()


# ---- replicas


def test_a_replica_can_be_read_and_is_refused_for_writing(server: TestServer, tmp_path: Path) -> None:
    settings = {**DURABLE, "replicaof": f"127.0.0.1 {server.port}", "masterauth": PASSWORD}
    with serve_redis(tmp_path / "redis", settings) as replica:
        assert replica.place().home("triage").head() == Head()
        assert "is a replica, which cannot be written to; give the address of the primary" in refused(replica.place())


def test_a_server_that_becomes_a_replica_under_way_is_waited_for(tmp_path: Path) -> None:
    with serve_redis(tmp_path / "redis") as server:
        place = server.place()
        home = place.home("triage")
        epoch = home.take(Head(), b"{}", 60)
        server.ask("REPLICAOF", "127.0.0.1", "1")
        for _ in range(2):
            with pytest.raises(StoreError, match="replica"):
                home.beat(epoch, 60)
        server.ask("REPLICAOF", "NO", "ONE")
        home.beat(epoch, 60)
        place.close()


# ---- who may


def with_causes(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("user", ["", "default", "nobody"])
def test_a_wrong_password_is_a_wrong_command_line_and_is_not_shown(server: TestServer, user: str) -> None:
    place = RedisPlace(server.url("wrong-horse", user=user), shown=SHOWN)
    with pytest.raises(UsageError) as caught:
        place.home("triage").head()
    assert caught.value.message == (
        f"{SHOWN}: the user or the password is wrong, or missing; set AGENTRUN_STORE to the address with the password"
    )
    assert "horse" not in with_causes(caught.value) + repr(place)


def test_a_missing_password_is_a_wrong_command_line(server: TestServer) -> None:
    with pytest.raises(UsageError, match="the user or the password is wrong, or missing"):
        RedisPlace(f"redis://127.0.0.1:{server.port}", shown=SHOWN).names()


def test_a_user_who_may_not_touch_our_keys_is_told_what_is_needed(server: TestServer) -> None:
    server.ask("ACL", "SETUSER", "stranger", "reset", "on", f">{PASSWORD}", "~other:*", "+@all")
    said = refused(RedisPlace(server.url(user="stranger"), shown=SHOWN))
    assert "not permitted" in said and "keys that begin with agentrun:" in said


def test_a_database_that_is_not_there_is_a_wrong_command_line(server: TestServer) -> None:
    with pytest.raises(UsageError, match="has no database of this number"):
        RedisPlace(server.url(database=99), shown=SHOWN).names()


def test_databases_of_one_server_are_apart(server: TestServer) -> None:
    first, second = (RedisPlace(server.url(database=number), shown=SHOWN) for number in (0, 1))
    second.home("second").put("file", [b"text"])
    assert (first.names(), second.names()) == ([], ["second"])
    first.close()
    second.close()


@pytest.mark.parametrize("password", ["a/b", "a?b", "a#b", "a@b", "a:b", "a%b", "é ü"])
def test_a_password_may_hold_anything_if_it_is_quoted(tmp_path: Path, password: str) -> None:
    with serve_redis(tmp_path / "redis", {**DURABLE, "requirepass": f'"{password}"'}, password=password) as server:
        place = RedisPlace(server.url(quote(password, safe="")), shown=SHOWN)
        assert place.names() == []
        place.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis://:correct-horse@127.0.0.1:x/0",
        "redis://:correct-horse@127.0.0.1:99999/0",
        "redis://:correct-horse@127.0.0.1/battery",
        "redis://:correct-horse@127.0.0.1/-1",
        "redis://:correct/horse@127.0.0.1:1",
        "redis://:correct#horse@127.0.0.1:1",
        "redis://:correct?horse@127.0.0.1:1",
        "redis://:correct-horse@[::1/0",
        "redis://:correct-horse@",
        "redis://:correct-horse@/0",
        "http://:correct-horse@127.0.0.1",
        f"redis://:correct-horse@{'horse' * 20}.example/0",
        "redis://:correct-horse@horse..example/0",
    ],
)
def test_a_malformed_address_is_a_wrong_command_line_and_nothing_of_it_is_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        RedisPlace(url, shown=SHOWN).home("triage").head()
    # The lines of this module are in it, too.
    shown = [line for line in with_causes(caught.value).splitlines() if not line.startswith("    ")]
    assert caught.value.message.startswith(f"{SHOWN}: ")
    assert not any(word in line for line in shown for word in ("horse", "battery", "correct"))


# ---- the connection


def test_a_server_that_is_not_there_may_come_back(server: TestServer) -> None:
    with pytest.raises(StoreError) as caught:
        RedisPlace(f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0", shown=SHOWN).names()
    assert caught.value.message == f"{SHOWN}: nobody listens there; check that the server is running, and the address"
    with pytest.raises(StoreError, match=r"does not answer \(the name of the host is not known\)"):
        RedisPlace(f"redis://:{PASSWORD}@host.invalid/0", shown=SHOWN).names()


class Scripted(socketserver.ThreadingTCPServer):
    """Says the same to every command; to those that make a connection, OK."""

    daemon_threads = True
    answer = b""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while count := self.rfile.readline():
                words = [self._word() for _ in range(int(count[1:]))]
                if words[0] in (b"AUTH", b"CLIENT", b"SELECT"):
                    self.wfile.write(b"+OK\r\n")
                elif isinstance(self.server, Scripted):
                    self.wfile.write(self.server.answer)

        def _word(self) -> bytes:
            return self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2]


@contextmanager
def saying(answer: bytes) -> Iterator[RedisHome]:
    """A home at a server that says this."""
    with Scripted(("127.0.0.1", 0), Scripted.Handler) as server:
        server.answer = answer
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"redis://:{PASSWORD}@127.0.0.1:{server.server_address[1]}"
        connection = RedisServer(url, shown=SHOWN, answer_seconds=0.2)
        try:
            yield RedisHome(connection, "triage")
        finally:
            connection.close()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("LOADING Redis is loading the dataset in memory", StoreError, "is still loading its data"),
        ("READONLY You can't write against a read only replica.", StoreError, "has become a replica"),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreError, "has no memory left"),
        ("MISCONF Errors writing to the AOF file: correct-horse", StoreError, "has refused a command (MISCONF)"),
        ("CLUSTERDOWN The cluster is down", StoreError, "has refused a command"),
        ("ERR max number of clients reached", StoreError, "does not answer"),
        ("ERR something with correct-horse in it", StoreError, "has refused a command"),
        ("MOVED 3999 127.0.0.1:6381", UsageError, "is a node of a cluster"),
        ("CROSSSLOT Keys in request don't hash to the same slot", UsageError, "is a node of a cluster"),
        ("NOAUTH Authentication required.", UsageError, "the user or the password is wrong"),
        ("NOPERM this user has no permissions: correct-horse", UsageError, "not permitted"),
        ("ERR unknown command 'EVALSHA', with args beginning with: 'correct-horse'", UsageError, "Redis 5 or newer"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", CheckpointError, "another program"),
    ],
)
def test_what_the_server_says_is_told_in_our_words(answer: str, kind: type[AgentrunError], words: str) -> None:
    with saying(b"-%s\r\n" % answer.encode()) as home, pytest.raises(AgentrunError) as caught:
        home.head()
    assert type(caught.value) is kind and words in caught.value.message
    assert "correct-horse" not in with_causes(caught.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "did not answer within 0.2 s"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not of Redis"),
    ],
)
def test_a_server_that_is_silent_or_another_may_come_to_its_senses(answer: bytes, words: str) -> None:
    with saying(answer) as home, pytest.raises(StoreError, match=words):
        home.head()


# ---- TLS


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for loopback that is its own authority, and its key."""
    require_program("openssl")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=critical,keyCertSign,digitalSignature"]
    files = ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run(["openssl", "req", "-x509", *words, *names, *files], check=True, capture_output=True)
    return certificate, key


def test_tls_works_if_the_certificate_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = make_certificate(tmp_path)
    port = free_port()
    files = {"tls-cert-file": str(certificate), "tls-key-file": str(key), "tls-ca-cert-file": str(certificate)}
    settings = {**DURABLE, "tls-port": str(port), "tls-auth-clients": "no", **files}
    with serve_redis(tmp_path / "redis", settings, password=PASSWORD):
        place = RedisPlace(f"rediss://:{PASSWORD}@127.0.0.1:{port}", shown=SHOWN)
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(UsageError, match=r"its certificate is not valid here; .* SSL_CERT_FILE"):
            place.names()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert place.home("triage").take(Head(), b"{}", 60) == 1
        place.close()
        with pytest.raises(UsageError, match="its certificate is not valid here"):
            RedisPlace(f"rediss://:{PASSWORD}@localhost:{port}", shown=SHOWN).names()
