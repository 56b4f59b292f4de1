"""Object storage over real HTTP: answers that are lost, requests that arrive late, servers that are busy or gone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from agentrun.checkpoint.record import Record
from agentrun.errors import AgentrunError, LostError, StoreError, UsageError
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.testing.examples import checkpoint, keys, record
from agentrun.testing.homes import JOURNAL, LONG, commit, ended_run, lease_of, lines, stored, text_of
from needs import require_module
from waiting import eventually

require_module("obstore", extra="objects")
require_module("moto", "flask", extra="dev")

from obstore.store import S3Store  # noqa: E402

from agentrun.store.homes.objects.home import ObjectsHome  # noqa: E402
from agentrun.store.homes.objects.place import ObjectsPlace, open_objects  # noqa: E402
from stores.moto_server import BUCKET, CREDENTIALS, MotoServer, Request, serve_moto  # noqa: E402


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with serve_moto() as one:
        yield one


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def home(server: MotoServer, tmp_path: Path) -> ObjectsHome:
    return server.place(tmp_path.name).home("triage")


@pytest.fixture
def other(server: MotoServer, tmp_path: Path) -> ObjectsHome:
    return server.place(tmp_path.name).home("triage")


@pytest.fixture
def impatient(server: MotoServer, tmp_path: Path) -> ObjectsHome:
    """It waits for an answer for half a second, and sends nothing again."""
    store = S3Store(
        BUCKET,
        endpoint=server.url,
        region="us-east-1",
        client_options={"allow_http": True, "timeout": timedelta(seconds=0.5)},
        retry_config={"max_retries": 0},
    )
    return ObjectsPlace(store, tmp_path.name, shown="s3://impatient").home("triage")


def is_swap(request: Request) -> bool:
    return request.is_swap


def begin(home: ObjectsHome) -> int:
    epoch = home.take(home.head(), b"first", LONG)
    home.commit(epoch, commit(1, adds="a"), LONG)
    return epoch


SWAPS: dict[str, Callable[[ObjectsHome, int], object]] = {
    "beat": lambda home, epoch: home.beat(epoch, LONG),
    "commit": lambda home, epoch: home.commit(epoch, commit(2, first_ref=1, adds="b"), LONG),
    "finish": lambda home, epoch: home.finish(epoch, ended_run()),
    "put": lambda home, epoch: home.put("side/x", [b"x"], epoch=epoch),
    "give": lambda home, epoch: home.give(epoch),
}


# ---- the answer to a conditional write is lost


@pytest.mark.parametrize("what", SWAPS)
def test_a_write_whose_answer_was_lost_is_sent_again_refused_and_known_to_be_ours(
    server: MotoServer, home: ObjectsHome, other: ObjectsHome, tmp_path: Path, what: str
) -> None:
    epoch = begin(home)
    before = server.swaps(tmp_path.name)
    server.faults.cut = is_swap
    SWAPS[what](home, epoch)
    assert server.faults.cut is None
    assert server.swaps(tmp_path.name) == before + 2, "the client has sent it again by itself"
    home.beat(epoch, LONG)
    assert server.swaps(tmp_path.name) == before + 3
    assert other.head().epoch == epoch
    assert stored(other) == list(enumerate(lines("a", "b") if what == "commit" else lines("a")))


def test_a_lease_whose_taking_was_not_answered_is_taken(server: MotoServer, home: ObjectsHome) -> None:
    for epoch in (1, 2):
        server.faults.cut = is_swap
        assert home.take(home.head(), b"first", LONG) == epoch
        assert server.faults.cut is None
        home.give(epoch)


def test_something_new_whose_keeping_was_not_answered_is_known_to_be_ours(
    server: MotoServer, home: ObjectsHome, other: ObjectsHome
) -> None:
    server.faults.cut = lambda request: request.method == "PUT" and "/fate/" in request.path
    assert home.put_new("fate/a", b"ours") is True
    assert server.faults.cut is None
    assert other.put_new("fate/a", b"ours") is False
    assert text_of(other, "fate/a") == b"ours"


def test_a_write_that_is_sent_again_when_another_has_the_job_is_lost(
    server: MotoServer, home: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = begin(home)

    def overtaken(request: Request) -> bool:
        if not request.is_swap:
            return False
        server.faults.cut = None
        other.take(other.head(), b"second", LONG)
        return True

    server.faults.cut = overtaken
    with pytest.raises(LostError):
        home.beat(epoch, LONG)
    for what in SWAPS:
        with pytest.raises(LostError):
            SWAPS[what](home, epoch)
        assert lease_of(other) == (epoch + 1, b"second", True)


# ---- no answer at all


def test_a_commit_that_nobody_answers_is_unsure_and_the_head_tells_that_it_was_done(
    server: MotoServer, impatient: ObjectsHome
) -> None:
    epoch = begin(impatient)
    server.faults.swallow = is_swap
    with pytest.raises(StoreError, match="does not answer"):
        impatient.commit(epoch, commit(2, first_ref=1, adds="b"), LONG)
    assert impatient.head().seq == 2
    impatient.commit(epoch, commit(3, first_ref=2, adds="c"), LONG)
    assert stored(impatient) == list(enumerate(lines("a", "b", "c")))


def test_a_commit_that_arrives_after_it_was_sent_again_changes_nothing(
    server: MotoServer, impatient: ObjectsHome, other: ObjectsHome
) -> None:
    epoch = begin(impatient)
    server.faults.arrive.clear()
    server.faults.arrived.clear()
    server.faults.delay = is_swap
    again = commit(2, first_ref=1, adds="b")
    with pytest.raises(StoreError):
        impatient.commit(epoch, again, LONG)
    assert impatient.head().seq == 1
    impatient.commit(epoch, again, LONG)
    server.faults.arrive.set()
    eventually(server.faults.arrived.is_set, "the first one arrives")
    impatient.commit(epoch, commit(3, first_ref=2, adds="c"), LONG)
    assert stored(other) == list(enumerate(lines("a", "b", "c")))


def test_a_run_goes_on_over_answers_that_do_not_come(
    server: MotoServer, impatient: ObjectsHome, tmp_path: Path
) -> None:
    store = KeyedStore(impatient, "triage", tmp_path / ".agentrun" / "triage", timing=Timing(beats=False))
    lease = store.lock()
    store.load()
    made: list[Record] = []
    for seq, fault in enumerate(("swallow", "cut", "refuse", "swallow"), 1):
        setattr(server.faults, fault, is_swap)
        made.append(record(fault))
        store.commit(checkpoint(seq), [made[-1]])
        assert getattr(server.faults, fault) is None
    assert keys(store) == ["swallow", "cut", "refuse", "swallow"]
    lease.release()


def test_a_server_that_is_busy_is_asked_again_by_the_client(server: MotoServer, home: ObjectsHome) -> None:
    epoch = begin(home)
    for what in ("beat", "commit"):
        server.faults.refuse = is_swap
        SWAPS[what](home, epoch)
        assert server.faults.refuse is None
    assert home.head().seq == 2


# ---- what it costs


def test_64_records_a_commit_are_one_put_a_commit(
    server: MotoServer, home: ObjectsHome, other: ObjectsHome, tmp_path: Path
) -> None:
    epoch = home.take(home.head(), b"first", LONG)
    before = len(server.requests)
    some = [b'{"n":%d,"output":"%s"}' % (n, b"x" * 300) for n in range(64)]
    for seq in range(1, 31):
        home.commit(epoch, replace(commit(seq, first_ref=64 * (seq - 1)), lines=some), LONG)
    sent = server.requests[before:]
    assert server.swaps(tmp_path.name) == 31
    assert {one.method for one in sent} == {"PUT"} and len(sent) <= 0.05 * 64 * 30
    assert len(stored(other)) == 64 * 30 and other.read(JOURNAL, [1919, 0]) == [some[-1], some[0]]


def test_a_heartbeat_keeps_the_lease_while_others_look(
    server: MotoServer, home: ObjectsHome, other: ObjectsHome, tmp_path: Path
) -> None:
    timing = Timing(lease_seconds=0.6)
    store = KeyedStore(home, "triage", tmp_path / ".agentrun" / "triage", timing=timing)
    lease = store.lock()
    store.load()
    before = server.swaps(tmp_path.name)
    eventually(lambda: other.head().fresh and server.swaps(tmp_path.name) > before + 5, "the lease is renewed")
    assert other.head(exact=True).epoch == 1
    store.commit(checkpoint(1), [record("a")])
    lease.release()
    assert other.head().holder is None


# ---- errors, in our own words


def refused(place: ObjectsPlace) -> AgentrunError:
    with pytest.raises(AgentrunError) as caught:
        place.home("triage").head()
    assert all(secret not in str(caught.value) for secret in CREDENTIALS.values())
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    # Nothing of what the client says, but for its own few words.
    assert "http" not in caught.value.message and len(caught.value.message) < 300
    return caught.value


def test_a_server_that_is_gone_does_not_answer() -> None:
    with serve_moto() as gone:
        place = gone.place("jobs")
    error = refused(place)
    assert isinstance(error, StoreError) and error.exit_code == 74
    assert error.message.startswith("s3://bucket/jobs: does not answer (")


def test_a_bucket_that_does_not_exist_is_said_so(server: MotoServer) -> None:
    place = server.place("jobs", bucket="no-such-bucket")
    for call in (place.names, lambda: place.home("x").head(), lambda: place.home("x").put("post/a", [b"x"])):
        with pytest.raises(UsageError, match="there is no such bucket"):
            call()


def test_access_that_is_denied_is_said_so_with_the_services_own_code(server: MotoServer) -> None:
    server.faults.deny = lambda request: request.method == "GET"
    error = refused(server.place("jobs"))
    assert isinstance(error, UsageError) and "access was denied (AccessDenied)" in error.message


class Metadata(BaseHTTPRequestHandler):
    """What a machine in the cloud asks for its credentials: they are about to run out."""

    is_down = False

    def do_PUT(self) -> None:
        self._answer(b"token")

    def do_GET(self) -> None:
        given = {"AccessKeyId": "id", "SecretAccessKey": "secret", "Token": "t", "Expiration": "2020-01-01T00:00:00Z"}
        self._answer(b"role" if self.path.endswith("/") else json.dumps(given).encode())

    def _answer(self, text: bytes) -> None:
        self.send_response(403 if self.is_down else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_without_credentials_one_is_told_unless_they_were_there_before(
    server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    metadata = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    Thread(target=metadata.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{metadata.server_port}")
        place = server.place("jobs")
        place.home("triage").head()
        monkeypatch.setattr(Metadata, "is_down", True)
        error = refused(server.place("jobs"))
        assert isinstance(error, UsageError) and "no credentials were found; set" in error.message
        assert isinstance(refused(place), StoreError)
    finally:
        metadata.shutdown()
        metadata.server_close()


def test_a_signature_in_an_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_moto() as gone:
        settings = {"endpoint": gone.url, "account": "account"}
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=SECRETSIGNATURE")
    error = refused(open_objects("az", "container", "jobs", settings, shown="az://container/jobs"))
    assert isinstance(error, StoreError) and "SECRETSIGNATURE" not in str(error)
