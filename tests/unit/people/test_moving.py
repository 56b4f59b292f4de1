"""A job goes out as one file, and comes in elsewhere as it was."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agentrun.checkpoint.message import AnyMessage
from agentrun.checkpoint.summary import WrittenOutput
from agentrun.errors import BusyError, CheckpointError, JobError, LaterError, UsageError
from agentrun.outputs.written import WrittenList
from agentrun.people import desk
from agentrun.people.moving import Imported, export_job, import_job, undo_move
from agentrun.store.folder.catalogue import FolderCatalogue
from agentrun.store.folder.store import FolderStore
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.catalogue import KeyedCatalogue
from agentrun.store.memory import MemoryStore
from agentrun.store.moving import check_not_moved, read_mark
from agentrun.store.port import Catalogue, HistoryEvent, Store
from agentrun.system.disk import Disk
from agentrun.views.finding import KnownJob
from contract.bench import Killed, MortalDisk
from unit.made import Made
from unit.people.exports import Export, begun, everything_in, exported, publish

DIGEST = "0" * 32


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return begun(tmp_path / "origin")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    folder.mkdir()
    return folder


def bring(file: Path, there: Path, **options: Any) -> Imported:
    return import_job(file, FolderCatalogue(there / ".agentrun"), here=there, **options)


def keys(store: Store) -> list[str]:
    with store.reader() as reader:
        return [one.key for _, one in reader.records()]


# ---- what comes along


def test_an_unfinished_run_is_there_with_all_that_belongs_to_it(made: Made, there: Path) -> None:
    desk.skip(made.known, desk.Selection(items=["c"]), reason="a duplicate")
    scratch = made.folder / "work" / DIGEST
    (scratch / "dir" / "empty").mkdir(parents=True)
    (scratch / "out").mkdir()
    (scratch / "out" / "tool.sh").write_text("#!/bin/sh\n")
    (scratch / "out" / "tool.sh").chmod(0o755)
    os.utime(scratch / "out" / "tool.sh", ns=(5, 1_700_000_000_123_456_789))
    (made.folder / "logs" / "done").mkdir(parents=True)
    (made.folder / "logs" / "a.log").write_text("said")
    (made.folder / "logs" / "done" / "b.log").write_text("said before")
    made.store.note(HistoryEvent(at="2026-05-04T22:03:11.000Z", event="launch", launch=1))
    before = everything_in(made.folder)
    done = export_job(made.known, made.base / "made.agentrun")
    assert (done.left_out, done.is_unfinished) == ((), True)
    assert done.file.stat().st_mode & 0o777 == 0o600 and done.size == done.file.stat().st_size
    after = everything_in(made.folder)
    assert {name for name in after if after[name] != before.get(name)} <= {"lock", "log.jsonl"}, "it changed the job"
    arrived = bring(done.file, there)
    assert (arrived.name, arrived.done, arrived.total, arrived.missed) == ("made", 2, 3, ())
    assert (arrived.host, arrived.was_moved, arrived.is_back) == (socket.gethostname(), False, False)
    with arrived.store.reader() as reader:
        assert reader.checkpoint is not None and reader.run_id == made.run_id
        assert [one.kind for one in (posted.message for posted in reader.inbox()) if one is not None] == ["skip"]
        context = reader.checkpoint.context
        assert (context.output, context.place) == (str(there / "made.results.jsonl"), "")
        assert [one.event for one in reader.history()] == ["launch", "import"]
    assert keys(arrived.store) == ["a", "b"]
    assert (there / "made.results.files" / "a" / "note.txt").read_text() == "of a"
    folder = there / ".agentrun" / "made"
    tool = folder / "work" / DIGEST / "out" / "tool.sh"
    assert tool.read_text() == "#!/bin/sh\n" and tool.stat().st_mode & 0o777 == 0o700
    assert tool.stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert (folder / "work" / DIGEST / "dir" / "empty").is_dir()
    assert (folder / "logs" / "a.log").read_text() == "said"
    assert (folder / "logs" / "done" / "b.log").read_text() == "said before"
    assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]


def test_a_finished_run_is_there_and_the_next_one_keeps_its_results(made: Made, there: Path) -> None:
    output = made.checkpoint.context.output
    made.commit(made.record("c", files=[publish(made, "c", "of c")]))
    made.finish(output=WrittenOutput(output, 1, "0" * 64), counts={"done": 3})
    arrived = bring(exported(made), there)
    assert not arrived.is_unfinished and arrived.done == 3
    with arrived.store.reader() as reader:
        assert reader.summary is not None and reader.summary.output is not None
        assert reader.summary.output.path == str(there / "made.results.jsonl")
        assert [one.key for _, one in reader.records()] == ["a", "b", "c"]
    assert (there / "made.results.files" / "c" / "note.txt").read_text() == "of c"


def test_links_and_special_files_are_left_out_and_told(made: Made, there: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    work = made.folder / "work" / DIGEST / "dir"
    work.mkdir(parents=True)
    (work / "link").symlink_to(tmp_path / "secret")
    (work / "folder").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")
    (made.folder / "logs").mkdir()
    (made.folder / "logs" / "x.log").symlink_to(tmp_path / "secret")
    note = made.base / "made.results.files" / "a" / "note.txt"
    note.unlink()
    note.symlink_to(tmp_path / "secret")
    done = export_job(made.known, made.base / "made.agentrun")
    assert sorted(one.partition(" (")[0] for one in done.left_out) == [
        "made.results.files/a/note.txt",
        *(f"work/{DIGEST}/dir/{name}" for name in ("folder", "link", "pipe")),
    ]
    members = Export(done.file).members
    assert not any(content == b"secret" for _, content in members.values())
    assert bring(done.file, there).missed == ("a",)


def test_files_of_superseded_results_do_not_matter(made: Made, there: Path) -> None:
    made.commit(made.record("a", kind="redo", gen=1), made.record("a", gen=1, output="again"))
    (made.base / "made.results.files" / "a" / "note.txt").unlink()
    done = export_job(made.known, made.base / "made.agentrun")
    assert done.left_out == () and bring(done.file, there).missed == ()


def test_runs_that_ended_come_along_also_those_without_records(tmp_path: Path, there: Path) -> None:
    (tmp_path / "origin").mkdir()
    made = Made(tmp_path / "origin", ["a"])
    ids = [made.run_id]
    for number in range(1, 6):
        made.commit(made.record("a"))
        made.finish(number=number, status="abandoned" if number > 1 else "finished")
        made.checkpoint.run_id = f"2026050{number}T220311-0a2f19f3a1c"
        made.checkpoint.seq = 0
        ids.append(made.checkpoint.run_id)
    with made.at_work():
        made.store.prune()
    arrived = bring(exported(made), there)
    assert [one.run_id for one in arrived.store.summaries()] == ids[4::-1]
    for run_id in (ids[0], *ids[2:5]):
        with arrived.store.reader(run_id=run_id) as reader:
            assert [one.key for _, one in reader.records()] == ["a"]
    with pytest.raises(CheckpointError):
        arrived.store.reader(run_id=ids[1])


def test_the_list_of_written_files_is_found_from_the_new_place(tmp_path: Path, there: Path) -> None:
    made = begun(tmp_path / "origin", output="out/{key}.md")
    old = WrittenList(made.store, made.base / "out")
    made.checkpoint.context.output = str(made.base / "out")
    made.commit()
    with made.at_work():
        made.store.keep(old.name, [b'{"name":"a.md","sha256":"0"}\n'])
    # A state folder that is further away makes the list another name.
    catalogue = FolderCatalogue(tmp_path / "far" / "away" / "state")
    catalogue.root.parent.mkdir(parents=True)
    arrived = import_job(exported(made), catalogue, here=there)
    new = WrittenList(arrived.store, there / "out")
    assert new.name != old.name and [entry.name for entry in new] == ["a.md"]


def test_an_output_outside_of_the_job_is_not_written_to(tmp_path: Path, there: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    made = begun(tmp_path / "origin", output=str(elsewhere / "x.jsonl"))
    file = exported(made)
    for path in sorted(elsewhere.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    arrived = bring(file, there)
    assert list(elsewhere.iterdir()) == []
    with arrived.store.reader() as reader:
        assert reader.checkpoint is not None
        output = Path(reader.checkpoint.context.output)
    # A launch copies them from there to wherever the job file says.
    assert output.is_relative_to(there / ".agentrun" / "made")
    assert (output.parent / "x.files" / "a" / "note.txt").read_text() == "of a"


def test_an_output_outside_without_files_stays_as_it_is(tmp_path: Path, there: Path) -> None:
    (tmp_path / "origin").mkdir()
    made = Made(tmp_path / "origin", ["a", "b"])
    made.checkpoint.context.output = "/data/x.jsonl"
    made.commit(made.record("a"))
    with bring(exported(made), there).store.reader() as reader:
        assert reader.checkpoint is not None and reader.checkpoint.context.output == "/data/x.jsonl"


def test_what_is_not_of_the_job_is_not_replaced(made: Made, there: Path) -> None:
    file = exported(made)
    files = there / "made.results.files"
    files.mkdir()
    (files / "mine").write_text("mine")
    with pytest.raises(UsageError, match="move it away"):
        bring(file, there)
    assert (files / "mine").read_text() == "mine" and FolderCatalogue(there / ".agentrun").names() == []
    (files / "mine").unlink()
    # Files of the job itself are no obstacle: an import that died has left them.
    (files / "a").mkdir()
    (files / "a" / "note.txt").write_text("of a")
    assert bring(file, there).missed == ()


# ---- names and places


def test_a_job_is_not_imported_over_another(made: Made, there: Path) -> None:
    file = exported(made)
    with pytest.raises(UsageError, match="--name"):
        bring(file, made.base)
    bring(file, there)
    with pytest.raises(UsageError, match="agentrun clear made"):
        bring(file, there)
    arrived = bring(file, there, name="other")
    assert arrived.name == "other" and FolderCatalogue(there / ".agentrun").names() == ["made", "other"]
    with arrived.store.reader() as reader:
        assert reader.checkpoint is not None and reader.checkpoint.job == "other"


def test_a_name_that_is_no_folders_is_refused(made: Made, there: Path) -> None:
    for name in ("../x", "a/b", ".hidden", "-x"):
        with pytest.raises(JobError):
            bring(exported(made, f"{len(name)}{name[-1]}.agentrun"), there, name=name)
    assert list(there.iterdir()) == []


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_a_job_goes_into_another_kind_of_store_and_out_of_it(made: Made, there: Path, kind: str) -> None:
    catalogue = _KINDS[kind](there)
    arrived = import_job(exported(made), catalogue, here=there)
    assert keys(catalogue.store("made")) == ["a", "b"]
    back = there / "again"
    back.mkdir()
    file = export_job(KnownJob("made", catalogue.store("made")), there / "back.agentrun").file
    again = bring(file, back)
    assert keys(again.store) == ["a", "b"] and arrived.done == again.done
    assert (there / "made.results.files" / "a" / "note.txt").read_text() == "of a"
    if kind == "sqlite":
        _PLACES.pop().close()


class InMemory(Catalogue):
    def __init__(self, there: Path) -> None:
        self._store = MemoryStore("made")

    def names(self) -> list[str]:
        return ["made"]

    def store(self, name: str) -> Store:
        return self._store


def _sqlite(there: Path) -> Catalogue:
    _PLACES.append(place := SqlitePlace(there / "jobs.db"))
    return KeyedCatalogue(lambda: place, there / ".agentrun")


_PLACES: list[SqlitePlace] = []
_KINDS: dict[str, Any] = {"sqlite": _sqlite, "memory": InMemory}


# ---- the file


def test_a_runner_at_work_keeps_the_job(made: Made) -> None:
    with made.at_work(), pytest.raises(BusyError):
        export_job(KnownJob("made", FolderStore(made.folder)), made.base / "x", wait_seconds=0.0)
    assert not (made.base / "x").exists()


def test_an_existing_file_is_replaced_on_demand_only(made: Made) -> None:
    file = made.base / "made.agentrun"
    file.write_text("mine")
    with pytest.raises(UsageError, match="--overwrite"):
        export_job(made.known, file)
    assert file.read_text() == "mine"
    export_job(made.known, file, overwrite=True)
    assert Export(file).manifest["job"] == "made"
    target = made.base / "target"
    target.write_text("mine")
    file.unlink()
    file.symlink_to(target)
    with pytest.raises(UsageError):
        export_job(made.known, file)
    export_job(made.known, file, overwrite=True)
    assert target.read_text() == "mine" and not file.is_symlink()
    for wrong in (made.base, made.base / "nowhere" / "x"):
        with pytest.raises(UsageError):
            export_job(made.known, wrong)


def test_a_job_that_never_ran_is_not_exported(tmp_path: Path) -> None:
    known = KnownJob("new", FolderStore(tmp_path / ".agentrun" / "new"))
    with pytest.raises(UsageError, match="no run yet"):
        export_job(known, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_the_bytes_of_the_file_pass_through_what_is_given(made: Made, there: Path) -> None:
    def turned(pieces: Iterable[bytes]) -> Iterator[bytes]:
        return (bytes(byte ^ 255 for byte in piece) for piece in pieces)

    file = export_job(made.known, made.base / "x", sealing=turned).file
    with pytest.raises(UsageError):
        bring(file, there)
    assert keys(bring(file, there, opening=turned).store) == ["a", "b"]


def test_a_file_that_is_not_there_is_told(there: Path) -> None:
    for file in (there / "none", there):
        with pytest.raises(UsageError):
            bring(file, there)


# ---- moving


def test_a_job_that_was_moved_does_not_run_here_any_more(made: Made, there: Path) -> None:
    check_not_moved(made.store, "made")
    done = export_job(made.known, made.base / "made.agentrun", move=True)
    with pytest.raises(UsageError) as raised:
        check_not_moved(made.store, "made")
    assert str(done.file) in raised.value.message and "agentrun export made" in raised.value.message
    check_not_moved(made.store, "made", fresh=True)
    for move in (False, True):
        with pytest.raises(UsageError, match="was moved"):
            export_job(made.known, made.base / "again.agentrun", move=move)
    arrived = bring(done.file, there)
    assert arrived.was_moved
    check_not_moved(arrived.store, "made")
    # A run that was begun since then is another one.
    made.checkpoint.run_id, made.checkpoint.seq = "20270504T220311-0a2f19f3a1c", 0
    with made.at_work():
        made.store.set_aside()
    made.commit(made.record("a"))
    check_not_moved(made.store, "made")


def test_a_move_does_not_leave_behind_what_is_posted_meanwhile(made: Made) -> None:
    def posting(pieces: Iterable[bytes]) -> Iterator[bytes]:
        yield from pieces
        desk.skip(made.known, desk.Selection(items=["c"]))

    file = made.base / "made.agentrun"
    with pytest.raises(LaterError, match="was not moved; run the same command again"):
        export_job(made.known, file, move=True, sealing=posting)
    assert read_mark(made.store) is None and [path.name for path in made.base.glob("*made.agentrun*")] == []
    export_job(made.known, file, move=True)
    assert [name for name in Export(file).members if name.startswith("inbox/")] != []


def test_what_was_posted_while_the_job_was_moved_away_is_told(made: Made) -> None:
    class Moving(FolderStore):
        def post(self, messages: Sequence[AnyMessage]) -> None:
            export_job(KnownJob("made", FolderStore(made.folder)), made.base / "made.agentrun", move=True)
            super().post(messages)

    known = replace(made.known, store=Moving(made.folder))
    with pytest.raises(UsageError, match="was moved away while this was posted"):
        desk.skip(known, desk.Selection(items=["c"]))


def test_the_mark_is_read_with_the_newest_run_that_a_reader_shows(made: Made) -> None:
    export_job(made.known, made.base / "made.agentrun", move=True)
    with made.store.reader() as reader:
        mark = read_mark(made.store, run_id=reader.run_id)
    assert mark is not None and mark == read_mark(made.store)
    assert mark.words.startswith(f"was moved to {made.base}/made.agentrun on {socket.gethostname()} at 20")
    assert read_mark(made.store, run_id="20270504T220311-0a2f19f3a1c") is None


def test_a_move_is_undone(made: Made) -> None:
    with pytest.raises(UsageError, match="was not moved"):
        undo_move(made.known)
    export_job(made.known, made.base / "made.agentrun", move=True)
    undo_move(made.known)
    check_not_moved(made.store, "made")
    made.commit(made.record("c"))
    assert keys(made.store) == ["a", "b", "c"]


def test_a_job_comes_back_with_what_was_done_elsewhere(made: Made, there: Path) -> None:
    old = exported(made, "old.agentrun")
    made.commit(made.record("c"))
    done = export_job(made.known, made.base / "made.agentrun", move=True)
    with pytest.raises(UsageError, match="older"):
        bring(old, made.base)
    other = begun(made.base.parent / "other")
    with pytest.raises(UsageError, match="another one"):
        bring(exported(other), made.base)
    away = bring(done.file, there)
    lease = away.store.lock()
    away.store.load()
    checkpoint = replace_seq(away.store)
    away.store.commit(checkpoint, [made.record("b", gen=1, output="elsewhere")])
    lease.release()
    back = export_job(KnownJob("made", away.store), there / "back.agentrun", move=True)
    home = bring(back.file, made.base)
    assert home.is_back and keys(home.store) == ["a", "b", "c", "b"]
    assert read_mark(home.store) is None and read_mark(away.store) is not None
    with home.store.reader() as reader:
        assert reader.checkpoint is not None
        assert reader.checkpoint.context.output == str(made.base / "made.results.jsonl")
        assert [one.event for one in reader.history()] == ["export", "export", "import", "import"]


def replace_seq(store: Store) -> Any:
    found = store.load().checkpoint
    assert found is not None
    found.seq += 1
    return found


def test_an_undone_move_may_also_be_the_import_of_its_own_file(made: Made) -> None:
    done = export_job(made.known, made.base / "made.agentrun", move=True)
    arrived = bring(done.file, made.base)
    assert arrived.is_back and keys(arrived.store) == ["a", "b"]
    check_not_moved(made.store, "made")


def test_killed_anywhere_a_job_is_never_in_two_places_and_never_in_none(tmp_path: Path) -> None:
    seen = set()
    for n in count(1):
        made = begun(tmp_path / f"{n}")
        file, disk = made.base / "made.agentrun", MortalDisk()
        known = KnownJob("made", FolderStore(made.folder, disk=disk))
        disk.left = n
        try:
            export_job(known, file, move=True, disk=disk)
            is_over = True
        except Killed:
            is_over = False
        is_marked, is_there = read_mark(FolderStore(made.folder)) is not None, file.exists()
        seen.add((is_marked, is_there))
        assert is_marked or not is_there, f"killed at {n}: it can be imported, and still runs here"
        if is_over:
            break
        if n % 2 and is_marked:
            with pytest.raises(UsageError):
                check_not_moved(made.store, "made")
            undo_move(made.known)
            check_not_moved(made.store, "made")
            made.commit(made.record("c"))
        elif not is_there:
            # The same command again.
            export_job(made.known, file, move=True)
        assert not [name for name in os.listdir(made.base) if name.endswith(".tmp") and is_marked]
    assert seen == {(False, False), (True, False), (True, True)}


def test_an_interrupted_move_is_told_from_a_complete_one(made: Made) -> None:
    class Dying(Disk):
        def replace(self, source: str, target: str) -> None:
            raise Killed

    file = made.base / "made.agentrun"
    with pytest.raises(Killed):
        export_job(made.known, file, move=True, disk=Dying())
    with pytest.raises(UsageError, match="was interrupted") as raised:
        check_not_moved(made.store, "made")
    assert "--undo" in raised.value.message and f"-o {file} --move" in raised.value.message
    for other, move in ((file, False), (made.base / "other", True)):
        with pytest.raises(UsageError, match="was interrupted"):
            export_job(made.known, other, move=move)
    export_job(made.known, file, move=True)
    with pytest.raises(UsageError, match="was moved to"):
        check_not_moved(made.store, "made")


def test_killed_anywhere_an_import_leaves_no_job_or_a_whole_one(made: Made, tmp_path: Path) -> None:
    class Mortal(FolderCatalogue):
        def store(self, name: str) -> FolderStore:
            return FolderStore(self.root / name, disk=disk)

    file, outcomes = exported(made), []
    for n in count(1):
        disk, there = MortalDisk(), tmp_path / f"{n}"
        there.mkdir()
        disk.left = n
        try:
            import_job(file, Mortal(there / ".agentrun"), here=there)
            is_over = True
        except Killed:
            is_over = False
        disk.left, disk.is_dead = -1, False
        store = FolderCatalogue(there / ".agentrun").store("made")
        lease = store.lock()
        found = store.load().checkpoint
        lease.release()
        outcomes.append(found is not None)
        if found is None:
            assert store.summaries() == []
            bring(file, there)
        assert keys(store) == ["a", "b"]
        assert (there / "made.results.files" / "a" / "note.txt").read_text() == "of a"
        if is_over:
            break
    assert outcomes == sorted(outcomes) and not outcomes[0] and outcomes[-1]


def test_an_import_that_dies_while_it_unpacks_leaves_no_job(made: Made, there: Path) -> None:
    calls = count()

    def dying(pieces: Iterable[bytes]) -> Iterator[bytes]:
        is_second = next(calls) % 2 == 1
        for piece in pieces:
            half = len(piece) // 2
            yield piece[:half]
            if is_second:
                raise Killed
            yield piece[half:]

    file = exported(made)
    with pytest.raises(Killed):
        bring(file, there, opening=dying)
    assert FolderCatalogue(there / ".agentrun").names() == [] and not (there / "made.results.files").exists()
    assert keys(bring(file, there).store) == ["a", "b"]


def test_a_claim_on_the_output_goes_with_the_job(made: Made) -> None:
    from agentrun.outputs.claim import Claim, claim_path

    output = Path(made.checkpoint.context.output)
    claim = Claim("made", made.folder)
    claim.take(output, made.run_id)
    claim.close()
    export_job(made.known, made.base / "copy.agentrun")
    assert claim_path(output).exists()
    export_job(made.known, made.base / "made.agentrun", move=True)
    assert not claim_path(output).exists()


def test_the_run_of_a_job_that_died_while_it_was_filed_is_finished_first(made: Made, there: Path) -> None:
    made.finish(counts={"done": 2})
    state = replace_state(made)
    assert state.exists()
    arrived = bring(exported(made), there)
    assert not arrived.is_unfinished and not state.exists()


def replace_state(made: Made) -> Path:
    """The state of the run that ended, as a launch leaves it that dies right before it removes it."""
    from agentrun.checkpoint.checkpoint import Journal, encode_checkpoint

    (filed,) = made.store.summaries()
    made.checkpoint.journal, made.checkpoint.outputs = Journal(filed.journal, filed.journal_length), []
    path = made.folder / "state.json"
    path.write_bytes(encode_checkpoint(made.checkpoint))
    return path


def test_the_view_of_a_job_that_is_exported_needs_no_description(made: Made) -> None:
    known = replace(made.known, job=None, problem="the job file is gone")
    assert export_job(known, made.base / "x").is_unfinished
