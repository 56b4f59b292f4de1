"""Export files that were cut, changed, or made to harm: each is refused, and nothing is written."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from agentrun.errors import AgentrunError, CheckpointError, UsageError
from agentrun.people.archive import Archive, Member, entry_of, is_member_name
from agentrun.people.inflated import Inflated
from agentrun.people.moving import import_job
from agentrun.store.folder.catalogue import FolderCatalogue
from unit.people.exports import Change, Export, begun, everything_in, exported


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return exported(begun(tmp_path / "origin"))


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder to import into, with something around it that must not change."""
    folder = tmp_path / "around" / "there"
    folder.mkdir(parents=True)
    (tmp_path / "around" / "precious").write_text("precious")
    return folder


def bring(file: Path, there: Path) -> None:
    import_job(file, FolderCatalogue(there / ".agentrun"), here=there)


def refused(file: Path, there: Path) -> AgentrunError:
    before = everything_in(there.parent)
    with pytest.raises(AgentrunError) as raised:
        bring(file, there)
    assert everything_in(there.parent) == before, "something was written"
    return raised.value


def test_a_file_that_was_cut_is_refused_wherever_it_was(file: Path, there: Path) -> None:
    text, codes = file.read_bytes(), set()
    for length in [*range(64), *range(64, len(text), 37), *range(len(text) - 64, len(text))]:
        file.write_bytes(text[:length])
        codes.add(error := refused(file, there).exit_code)
        assert error == 65 or length < 2, length
    assert codes == {65, 2}
    file.write_bytes(text)
    bring(file, there)


def test_a_flipped_bit_is_refused_wherever_it_changes_anything(file: Path, there: Path) -> None:
    text, refusals = file.read_bytes(), 0
    for at in [*range(12), *range(12, len(text), 41), *range(len(text) - 12, len(text))]:
        changed = text[:at] + bytes([text[at] ^ 1 << at % 8]) + text[at + 1 :]
        if _unpacks_to(changed, gzip.decompress(text)):
            continue  # the same run of zeros can be compressed in many ways
        file.write_bytes(changed)
        assert refused(file, there).exit_code in (65, 2), at
        refusals += 1
    assert refusals > 30


def _unpacks_to(text: bytes, content: bytes) -> bool:
    try:
        return gzip.decompress(text) == content
    except (OSError, EOFError, zlib.error):
        return False


def test_what_follows_the_end_is_refused(file: Path, there: Path) -> None:
    text = file.read_bytes()
    for more in (b"\0", b"more", text, gzip.compress(b"more")):
        file.write_bytes(text + more)
        assert refused(file, there).exit_code == 65
    file.write_bytes(gzip.compress(gzip.decompress(text) + bytes(1 << 20)))
    assert "something follows" in str(refused(file, there))


def test_what_is_no_export_is_told_apart(file: Path, there: Path) -> None:
    for text in (b"", b"\x1f", b"no export\n", *map(gzip.compress, (b"", b"no tar", b"x" * 9999))):
        file.write_bytes(text)
        error = refused(file, there)
        assert error.exit_code == 2 and "is not an export" in error.message


def test_another_tar_is_no_export(file: Path, there: Path) -> None:
    with tarfile.open(file, "w:gz") as tar:
        tar.add(__file__, "manifest.json")
    error = refused(file, there)
    assert isinstance(error, UsageError) and "is not an export" in error.message


def test_a_newer_version_is_refused(file: Path, there: Path) -> None:
    export = Export(file)
    export.manifest["version"] = 2
    export.manifest["members"] = "in another form"
    error = refused(export.write(file), there)
    assert isinstance(error, CheckpointError) and "newer agentrun" in error.message


def test_the_member_at_fault_is_named(file: Path, there: Path) -> None:
    export = Export(file)
    journal = export.content("journal.jsonl")
    export.put("journal.jsonl", journal.replace(b"an output", b"my output"), is_listed=False)
    assert "journal.jsonl was changed" in str(refused(export.write(file), there))
    export.put("journal.jsonl", journal + b"\n", is_listed=False)
    assert "journal.jsonl has" in str(refused(export.write(file), there))


def test_a_record_that_was_changed_is_refused_though_the_manifest_was_too(file: Path, there: Path) -> None:
    export = Export(file)
    export.put("journal.jsonl", export.content("journal.jsonl").replace(b"an output", b"my output"))
    with pytest.raises(CheckpointError, match=r"a record in journal\.jsonl"):
        bring(export.write(file), there)
    catalogue = FolderCatalogue(there / ".agentrun")
    assert catalogue.names() == [] and catalogue.store("made").load().checkpoint is None


def test_a_state_that_was_changed_is_refused_though_the_manifest_was_too(file: Path, there: Path) -> None:
    export = Export(file)
    export.put("state.json", export.content("state.json").replace(b'"total": 3', b'"total": 4'))
    with pytest.raises(CheckpointError, match=r"state\.json"):
        bring(export.write(file), there)
    assert FolderCatalogue(there / ".agentrun").names() == []


def _add(name: str) -> Change:
    return lambda export: export.put(name, b"harm")


def _link(kind: bytes, name: str = "work/" + "0" * 32 + "/dir/link") -> Change:
    def change(export: Export) -> None:
        export.put(name, b"")
        info = export.members[name][0]
        info.type, info.linkname = kind, "/etc/passwd"

    return change


def _twice(export: Export) -> None:
    export.manifest["members"].append(export.manifest["members"][0])


def _not_listed(export: Export) -> None:
    export.put("sides/items-9.spool", b"harm", is_listed=False)


def _another_order(export: Export) -> None:
    export.members = dict(reversed(export.members.items()))


def _without_one(export: Export) -> None:
    del export.members["journal.jsonl"]


def _without_the_last(export: Export) -> None:
    del export.members["state.json"]


def _named(**fields: object) -> Change:
    return lambda export: export.manifest.update(fields)


def _size(size: object) -> Change:
    def change(export: Export) -> None:
        export.manifest["members"][0]["size"] = size

    return change


HARMS: dict[str, Change] = {
    "a path up": _add("work/../../../precious"),
    "a path up at its end": _add("work/" + "0" * 32 + "/dir/.."),
    "an absolute path": _add("/tmp/agentrun-harm"),
    "an absolute path further down": _add("work//tmp/agentrun-harm"),
    "a dot": _add("work/" + "0" * 32 + "/./x"),
    "a NUL": _add("sides/x\0.spool"),
    "the lock": _add("sides/lock"),
    "a mark": _add("sides/moved.json"),
    "the address of a store": _add("sides/store.json"),
    "a hidden spool": _add("sides/.x.spool"),
    "another run's journal": _add("journal-7.jsonl"),
    "a run with a path": _add("runs/../x.json"),
    "a run without an id": _add("runs/.json"),
    "a log that is none": _add("logs/x.sh"),
    "a log too far down": _add("logs/done/more/x.log"),
    "scratch of no item": _add("work/precious"),
    "files of no output": _add("files/7/made.results.files/a/x.txt"),
    "files beside the folder": _add("files/0/precious/a/x.txt"),
    "an unknown member": _add("more.json"),
    "a symbolic link": _link(tarfile.SYMTYPE),
    "a hard link": _link(tarfile.LNKTYPE),
    "a device": _link(tarfile.CHRTYPE),
    "a pipe": _link(tarfile.FIFOTYPE),
    "a folder": _link(tarfile.DIRTYPE),
    "a symbolic link for the state": _link(tarfile.SYMTYPE, "state.json"),
    "a member twice": _twice,
    "a member that is not listed": _not_listed,
    "another order": _another_order,
    "a missing member": _without_one,
    "a missing state": _without_the_last,
    "a job's name with a path": _named(job="../precious"),
    "a hidden name": _named(job=".."),
    "an empty name": _named(job=""),
    "a folder that is listed": _named(folders=["work/../../precious"]),
    "a folder elsewhere": _named(folders=["sides/x"]),
    "a place with a NUL": _named(home="/a\0b"),
    "a relative place": _named(base="../.."),
    "no list of members": _named(members={}),
    "a negative size": _size(-1),
    "a size that is none": _size("1"),
    "a wrong size": _size(7),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_made_to_harm_writes_nothing(file: Path, there: Path, harm: str) -> None:
    export = Export(file)
    HARMS[harm](export)
    assert refused(export.write(file), there).exit_code in (65, 2)
    assert not Path("/tmp/agentrun-harm").exists()


def test_outputs_outside_of_the_job_are_not_written_to(file: Path, there: Path) -> None:
    export = Export(file)
    for output in (
        "/precious/made.results.jsonl",
        "/x/../../../precious/made.results.jsonl",
        str(there.parent / "x.jsonl"),
    ):
        export.manifest["outputs"][0]["path"] = output
        # The state names another output, so this is noticed, whatever would be written.
        with pytest.raises(CheckpointError, match="does not name the output"):
            bring(export.write(file), there)
    assert sorted(path.name for path in there.parent.iterdir()) == ["precious", "there"]


def test_no_more_is_unpacked_than_the_manifest_says(file: Path, there: Path) -> None:
    """A file of a few kilobytes whose members say that they are small, and are a gigabyte."""
    export = Export(file)
    export.put("sides/items-9.spool", bytes(64 << 20), is_listed=False)
    export.manifest["members"].append({"name": "sides/items-9.spool", "size": 9, "sha256": "0" * 64})
    export.write(file)
    taken = 0

    def counted(pieces: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal taken
        for piece in pieces:
            for at in range(0, len(piece), 512):
                taken += 512
                yield piece[at : at + 512]

    with pytest.raises(CheckpointError):
        import_job(file, FolderCatalogue(there / ".agentrun"), here=there, opening=counted)
    assert taken < file.stat().st_size / 2


def test_headers_are_small(there: Path) -> None:
    """A header of the tar may itself say that it is as long as it likes."""
    long = tarfile.TarInfo("manifest.json")
    long.pax_headers = {"comment": "x" * 100_000}
    text = gzip.compress(long.tobuf(tarfile.PAX_FORMAT))
    with pytest.raises(CheckpointError, match="a header of"):
        Archive([text], "it")


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 1 << 20, (1 << 20) + 1])
def test_members_of_any_length_are_read_back(length: int) -> None:
    info = tarfile.TarInfo("x")
    info.size = length
    content = bytes(n % 251 for n in range(length))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(info, io.BytesIO(content))
        tar.addfile(tarfile.TarInfo("y"))
    text = buffer.getvalue()
    read = Inflated((text[at : at + 7] for at in range(0, len(text), 7)), "it")
    assert read.first_header().name == "x"
    assert b"".join(read.content(length, of="x")) == content
    found = read.header("behind it")
    assert found is not None and found.name == "y" and read.header("at its end") is None
    read.end()


def test_a_member_has_its_size_and_hash() -> None:
    entry = entry_of(Member("state.json", lambda: [b"ab", b"c"]))
    assert (entry.size, entry.sha256[:8]) == (3, "ba7816bf")


@pytest.mark.parametrize(
    "name",
    [
        "state.json",
        "journal.jsonl",
        "history.jsonl",
        "sides/job.json",
        "sides/items-1-abc.spool",
        "runs/20260504T220311-0a2f19f3a1c.json",
        "runs/20260504T220311-0a2f19f3a1c.jsonl",
        "inbox/00000000000000000001.json",
        "logs/.slot-0.log",
        "logs/done/a-0123.log",
        "work/" + "0" * 32 + "/dir/é/x y",
        "work/" + "a" * 32 + "-g2/out/x",
        "files/0/made.results.files/a/x.txt",
    ],
)
def test_what_an_export_has_may_come_in(name: str) -> None:
    assert is_member_name(name, outputs=1)
