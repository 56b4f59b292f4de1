"""What is the Postgres home's own, on a real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentrun.errors import AgentrunError, CheckpointError, StoreError, UsageError
from agentrun.store.homes.postgres.place import PostgresPlace
from agentrun.store.keyed.home import PIECE_BYTES, Commit, EndedRun, Head, Home
from stores.postgres_server import Database, PostgresServer
from stores.side_pieces import SidePieceContract
from waiting import eventually

TTL = 60.0
RIGHTS = ("usage on schema agentrun", "select, insert, update, delete on all tables in schema agentrun")


@pytest.fixture
def place(postgres: Database) -> PostgresPlace:
    return postgres.place()


@pytest.fixture
def home(place: PostgresPlace) -> Home:
    return place.home("triage")


def commit(seq: int, *lines: bytes, first_ref: int = 0) -> Commit:
    return Commit(seq, b"state %d" % seq, "run", "journal", first_ref, lines, is_first=seq == 1)


def take(home: Home) -> int:
    return home.take(home.head(), b"me", TTL)


# ---- commits and records


def test_a_commit_is_one_statement(home: Home, postgres: Database) -> None:
    postgres.set("log_statement", "'all'")
    epoch = take(home)
    before = postgres.server.log.stat().st_size
    home.commit(epoch, commit(1, b"a", b"b"), TTL)
    with postgres.server.log.open() as log:
        log.seek(before)
        said = [line for line in log if "LOG:  execute" in line or "LOG:  statement" in line]
    assert len(said) == 1 and "insert into agentrun.record" in said[0]


def test_records_come_back_as_they_were(home: Home) -> None:
    lines = [b"", b"\x00\xff'\\x41{}\"", b"a" * 3_000_000]
    far = (1 << 40) + 1
    epoch = take(home)
    home.commit(epoch, commit(1, *lines), TTL)
    home.stage("far", far, lines)
    home.stage("far", far, lines)
    assert [line for _, line in home.scan("journal", 0, 9)] == lines
    assert home.read("far", [far + 1, 5, far]) == [lines[1], None, lines[0]]
    assert home.size("journal") == sum(map(len, lines)) + 3
    assert home.journals() == {"journal", "far"}


# ---- side files


def test_of_two_who_put_a_side_file_at_once_the_later_one_replaces_it_whole(postgres: Database) -> None:
    first, second = (postgres.place().home("triage") for _ in range(2))
    first.put("name", [b"old"] * 5)
    is_at_work, may_finish = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        is_at_work.set()
        may_finish.wait()
        yield from [b"first"] * 4

    def waits() -> bool:
        return postgres.run("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == [(1,)]

    with ThreadPoolExecutor(2) as threads:
        putting = threads.submit(first.put, "name", pieces())
        is_at_work.wait()
        later = threads.submit(second.put, "name", [b"second"] * 2)
        eventually(waits, "the second waits for the first")
        may_finish.set()
        putting.result()
        later.result()
    found = first.get("name")
    assert found is not None and b"".join(found) == b"secondsecond"


def test_a_side_file_made_of_records_of_the_same_place_is_kept(home: Home) -> None:
    home.stage("journal", 0, [b"%d" % n for n in range(500)])
    home.put("aside", (line for _, line in home.scan("journal", 0, 500)))
    found = home.get("aside")
    assert found is not None and b"".join(found) == b"".join(b"%d" % n for n in range(500))


def test_an_error_of_the_one_who_puts_leaves_the_file_as_it_was(home: Home) -> None:
    home.put("name", [b"old"])

    def pieces() -> Iterator[bytes]:
        yield b"new" * PIECE_BYTES
        raise OSError("the disk failed")

    with pytest.raises(OSError, match="the disk failed"):
        home.put("name", pieces())
    found = home.get("name")
    assert found is not None and b"".join(found) == b"old"


class TestSidePieces(SidePieceContract):
    _database: Database

    @pytest.fixture(autouse=True)
    def on_a_database(self, postgres: Database) -> None:
        self._database = postgres

    def make_place(self, tmp_path: Path) -> PostgresPlace:
        return self._database.place()


def test_names_are_sorted_and_found_by_their_bytes_whatever_the_language_of_the_database(
    postgres_server: PostgresServer,
) -> None:
    # English sorts `a` before `B`, and looks at punctuation last of all.
    english = postgres_server.make_database(like="template template0 locale_provider icu icu_locale 'en-u-ka-shifted'")
    try:
        home = english.place().home("triage")
        names = ["side/b", "side/B", "side/é", "sidea", "side-x", "side/\U0010fffe", "Side/a"]
        for name in names:
            home.put(name, [b"text"])
        assert home.names("side/") == ["side/B", "side/b", "side/é", "side/\U0010fffe"]
        assert home.names() == sorted(names)
    finally:
        english.close()


# ---- the tables


def test_looking_makes_no_tables(place: PostgresPlace, home: Home, postgres: Database) -> None:
    assert (place.names(), place.find("run"), home.head(), home.names()) == ([], None, Head(), [])
    assert postgres.run("select to_regnamespace('agentrun')") == [(None,)]
    # And whoever looked sees the tables as soon as there are any.
    epoch = take(postgres.place().home("triage"))
    assert home.head().epoch == epoch


def test_many_who_begin_at_once_make_the_tables_once(postgres: Database) -> None:
    homes = [postgres.place().home(f"job {number}") for number in range(6)]
    at_once = threading.Barrier(len(homes))

    def begin(home: Home) -> int:
        at_once.wait()
        return home.take(Head(), b"me", TTL)

    with ThreadPoolExecutor(len(homes)) as threads:
        assert list(threads.map(begin, homes)) == [1] * len(homes)
    assert postgres.run("select n from agentrun.version") == [(1,)]


# ---- rights


def test_who_may_only_change_rows_can_run_a_job(home: Home, postgres: Database) -> None:
    take(home)
    runner = postgres.place(user=postgres.make_user(*RIGHTS)).home("other")
    epoch = take(runner)
    runner.commit(epoch, commit(1, b"a"), TTL)
    runner.put("name", [b"text"], epoch=epoch)
    runner.beat(epoch, TTL)
    runner.drop(["name"], epoch=epoch)
    runner.finish(epoch, EndedRun("run", "journal", b"summary"))
    runner.clear(epoch)
    runner.give(epoch)


def test_who_may_only_read_reads_and_is_told_so_by_a_write(home: Home, postgres: Database) -> None:
    epoch = take(home)
    home.commit(epoch, commit(1, b"a"), TTL)
    home.put("name", [b"text"])
    place = postgres.place(
        user=postgres.make_user("usage on schema agentrun", "select on all tables in schema agentrun")
    )
    reader = place.home("triage")
    assert (reader.head(exact=True).seq, place.names(), place.find("run")) == (1, ["triage"], "triage")
    assert list(reader.scan("journal", 0, 9)) == [(0, b"a")]
    found = reader.get("name")
    assert found is not None and b"".join(found) == b"text"
    with pytest.raises(UsageError, match=r"may not do that; grant it .*insert"):
        reader.put("name", [b"other"])
    assert reader.head().seq == 1


def test_who_may_not_make_the_tables_is_told_what_to_do(postgres: Database) -> None:
    home = postgres.place(user=postgres.make_user()).home("triage")
    assert home.head() == Head()
    with pytest.raises(UsageError, match=r"this user may not create them; .*grant create on the database"):
        home.take(Head(), b"me", TTL)


def test_an_empty_schema_is_filled_by_who_may_create_tables_in_it(postgres: Database) -> None:
    postgres.run("create schema agentrun")
    assert take(postgres.place(user=postgres.make_user("usage, create on schema agentrun")).home("triage")) == 1


# ---- servers that are refused


def test_a_server_that_does_not_sync_is_refused(postgres: Database) -> None:
    postgres.server.restart(fsync="off")
    try:
        home = postgres.place().home("triage")
        for call in (home.head, lambda: home.take(Head(), b"me", TTL)):
            with pytest.raises(UsageError, match=r"fsync off.*set fsync = on"):
                call()
        assert postgres.run("select to_regnamespace('agentrun')") == [(None,)]
    finally:
        postgres.server.restart()


def test_tables_of_a_newer_version_are_refused(home: Home, postgres: Database) -> None:
    take(home)
    postgres.run("insert into agentrun.version values (99)")
    newer = postgres.place().home("triage")
    for call in (newer.head, lambda: newer.put("name", [b"text"])):
        with pytest.raises(CheckpointError, match="version 99, from a newer agentrun"):
            call()


def test_tables_that_are_gone_are_an_error_of_the_stored_data(home: Home, postgres: Database) -> None:
    take(home)
    postgres.run("drop table agentrun.job")
    with pytest.raises(CheckpointError, match="restore the database from a backup"):
        home.head()


def test_a_server_that_turned_read_only_is_asked_again_later(home: Home, postgres: Database) -> None:
    epoch = take(home)
    postgres.set("default_transaction_read_only", "on")
    postgres.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'agentrun'")
    assert home.head().epoch == epoch
    with pytest.raises(StoreError, match="read-only"):
        home.commit(epoch, commit(1), TTL)


def test_a_name_that_a_database_cannot_keep_is_refused(place: PostgresPlace) -> None:
    for name in ("nul \x00", "surrogate \udcff"):
        with pytest.raises(UsageError, match="cannot keep a name"):
            place.home(name).put("name", [b"text"])
    assert place.names() == []


# ---- the environment


OTHERS = {
    "PGHOST": "nowhere.invalid",
    "PGHOSTADDR": "127.0.0.9",
    "PGPORT": "9",
    "PGUSER": "nobody",
    "PGPASSWORD": "wrong",
    "PGPASSFILE": "/dev/null",
    "PGSSLMODE": "verify-full",
    "PGSSLROOTCERT": "/dev/null",
    "PGSSLCERT": "/dev/null",
    "PGOPTIONS": "-c nonsense=1",
    "PGCHANNELBINDING": "require",
    "PGAPPNAME": "another",
}


@pytest.mark.parametrize("variable", ["PGPASSWORD", "PGPASSFILE"])
def test_variables_and_a_folder_that_change_later_do_not_change_how_a_place_is_connected_to(
    postgres: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    (tmp_path / "passwords").write_text(f"*:*:*:*:{postgres.server.password}\n")
    (tmp_path / "passwords").chmod(0o600)
    own = {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres.server.port),
        "PGUSER": "owner",
        "PGOPTIONS": "-c work_mem=1MB",
        "PGCLIENTENCODING": "LATIN1",
        "PGAPPNAME": "psql",
        variable: {"PGPASSWORD": postgres.server.password, "PGPASSFILE": "passwords"}[variable],
    }
    with monkeypatch.context() as launch:
        launch.chdir(tmp_path)
        for name, value in own.items():
            launch.setenv(name, value)
        place = PostgresPlace(f"postgres:///{postgres.name}", shown=postgres.shown)
    place.home("triage").put("name", [b"text"])
    with monkeypatch.context() as agent:
        for name, value in OTHERS.items():
            agent.setenv(name, value)
        # The next call connects again.
        place.close()
        assert place.query("select current_user, current_setting('work_mem')", []) == [("owner", "1MB")]
    place.close()


def test_a_place_that_was_refused_reads_the_variables_again(
    postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = postgres.server
    monkeypatch.setenv("PGPASSWORD", "wrong")
    place = PostgresPlace(f"postgres://owner@127.0.0.1:{server.port}/{postgres.name}", shown=postgres.shown)
    with pytest.raises(UsageError, match="refuses the user or the password"):
        place.names()
    monkeypatch.setenv("PGPASSWORD", server.password)
    assert place.names() == []
    place.close()


def test_a_variable_that_is_not_utf_8_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "s3cret\udcff")
    error = fails(PostgresPlace("postgres://owner@127.0.0.1/x", shown="postgres://shown").names)
    assert type(error) is UsageError and "not UTF-8" in error.message
    assert "s3cret" not in everything_in(error)


# ---- addresses


def fails(call: Callable[[], object]) -> AgentrunError:
    with pytest.raises(AgentrunError) as caught:
        call()
    return caught.value


def everything_in(error: BaseException | None) -> str:
    """All text of an error and of those that it came from."""
    return f"{error!r} {error} {vars(error)}" + everything_in(error.__cause__ or error.__context__) if error else ""


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda url: url.replace("owner:", "owner:x"), UsageError, "refuses the user or the password"),
        (lambda url: url.replace("owner:", "nobody:"), UsageError, "refuses the user or the password"),
        (lambda url: url + "nix", UsageError, "no such database"),
        (lambda url: url + "?sslmode=require", UsageError, "sslmode"),
        (lambda url: url + "?sslmode=banana", UsageError, "a setting in the address is wrong"),
        (lambda url: url + "?port=banana", UsageError, "a setting in the address is wrong"),
        (lambda url: url + "?connect_timeout=banana", UsageError, "a setting in the address is wrong"),
        (lambda url: url.replace("127.0.0.1", "nowhere.invalid"), StoreError, "host is not known"),
        # Of the password with an @ in it, the library makes the name of a host.
        (lambda url: url.replace("s3cret-", "x@s3cret-").replace("@127.0.0.1", ""), StoreError, ""),
    ],
)
def test_a_connection_that_fails_is_told_in_our_words(
    postgres: Database, change: Callable[[str], str], kind: type[AgentrunError], words: str
) -> None:
    url = change(postgres.server.url(postgres.name))
    place = PostgresPlace(url, shown="postgres://shown")
    for call in (place.names, lambda: place.home("triage").take(Head(), b"me", TTL)):
        error = fails(call)
        assert type(error) is kind and error.message.startswith("postgres://shown: ") and words in error.message
        assert "s3cret" not in everything_in(error)


def test_a_server_that_asks_for_a_password_that_is_not_there_says_where_it_goes(postgres: Database) -> None:
    url = postgres.server.url(postgres.name).replace(f":{postgres.server.password}", "")
    error = fails(PostgresPlace(url, shown="postgres://shown").names)
    assert type(error) is UsageError and "AGENTRUN_STORE" in error.message


@pytest.mark.parametrize(
    "url",
    [
        "postgres://owner:s3cret%zz@127.0.0.1/x",
        "postgres://owner:s3cret%ff@127.0.0.1/x",
        "postgres://owner:s3cret%00@127.0.0.1/x",
        "postgres://owner:s3cret@[::1/x",
        "postgres://owner:s3cret@127.0.0.1/x?s3cret",
        "postgres://owner:\udcffs3cret@127.0.0.1/x",
        "postgresowner:s3cret@127.0.0.1/x",
    ],
)
def test_a_malformed_address_is_refused_without_showing_it(url: str) -> None:
    error = fails(lambda: PostgresPlace(url, shown="postgres://shown"))
    assert type(error) is UsageError and "write postgres://USER:PASSWORD@HOST" in error.message
    assert "s3cret" not in everything_in(error)


def test_no_password_is_shown_by_the_objects_themselves(home: Home, place: PostgresPlace, postgres: Database) -> None:
    take(home)
    shown = f"{place!r} {home!r} {place.shown} {home.shown}"
    assert postgres.server.password not in shown and home.shown == f"triage in {postgres.shown}"
    assert postgres.server.password not in postgres.server.log.read_text()
