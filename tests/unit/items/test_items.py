from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import ItemsError, SourceChangedError
from agentrun.item import Item
from agentrun.items.open import Source, encode_python_items, open_source
from agentrun.items.textfile import TextFile
from agentrun.job.job import ItemsKind, ItemsSpec
from needs import give_up


def source(base: Path, kind: ItemsKind, pattern: str, *, key: str | None = None, **more: Any) -> Source:
    return open_source(ItemsSpec(kind=kind, pattern=pattern, key=key), base, **more)


def keys(items: Source) -> list[str]:
    return [items.identify(raw).key for raw in items]


def all_items(items: Source) -> list[Item]:
    return [items.item(raw, index, items.identify(raw).key) for index, raw in enumerate(items)]


def touch(base: Path, *names: str) -> None:
    for name in names:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(name)


def spooled(base: Path, items: Iterable[Any], *, key: str | None = None) -> Source:
    path = base / "spool"
    path.write_bytes(b"".join(encode_python_items(items)))
    return source(base, "python", "", key=key, spool=path)


# Files


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.txt", ["a.txt", "b.txt"]),
        ("**/*.txt", ["a.txt", "a/x.txt", "a/z/x.txt", "b.txt", "c/x.txt"]),
        ("a/**", ["a/x.txt", "a/y.md", "a/z/x.txt"]),
        ("**/z/**/*.txt", ["a/z/x.txt"]),
        ("**/**/x.txt", ["a/x.txt", "a/z/x.txt", "c/x.txt"]),
        ("*/x.txt", ["a/x.txt", "c/x.txt"]),
        ("[ab].tx?", ["a.txt", "b.txt"]),
        (".h*", [".hidden.txt"]),
        (".dot/*", [".dot/x.txt"]),
        ("./a/./*.md", ["a/y.md"]),
        ("a/x.txt", ["a/x.txt"]),
        ("nothing/*.txt", []),
        ("a.txt/*", []),
    ],
)
def test_a_pattern_matches_files_in_the_order_of_their_paths(tmp_path: Path, pattern: str, found: list[str]) -> None:
    names = ["b.txt", "a.txt", "a/x.txt", "a/y.md", "a/z/x.txt", "c/x.txt", ".hidden.txt", ".dot/x.txt"]
    touch(tmp_path, *names, ".agentrun/job/x.txt", "a/.agentrun/job/x.txt")
    items = source(tmp_path, "files", pattern)
    assert keys(items) == keys(items) == found
    assert [item.path for item in all_items(items)] == [tmp_path / name for name in found]


def test_keys_of_files_are_never_absolute(tmp_path: Path) -> None:
    touch(tmp_path, "base/x", "docs/a.txt")
    base = tmp_path / "base"
    assert keys(source(base, "files", "../docs/*.txt")) == ["../docs/a.txt"]
    assert keys(source(base, "files", f"{tmp_path}/docs/*.txt")) == ["../docs/a.txt"]
    assert keys(source(base, "files", f"{base}/*")) == ["x"]


def test_the_jobs_own_output_and_folders_are_never_items(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "out.jsonl", "sub/out.jsonl", "state/x.jsonl")
    (tmp_path / "link.jsonl").symlink_to("out.jsonl")
    exclude = [tmp_path / "sub" / ".." / "out.jsonl", tmp_path / "state"]
    assert keys(source(tmp_path, "files", "**/*.jsonl", exclude=exclude)) == ["a.jsonl", "sub/out.jsonl"]


def test_links_to_files_are_items_and_links_to_folders_are_not_searched(tmp_path: Path) -> None:
    touch(tmp_path, "real/a.txt")
    (tmp_path / "real" / "loop").symlink_to(tmp_path)
    (tmp_path / "link.txt").symlink_to("real/a.txt")
    (tmp_path / "folder").symlink_to("real")
    os.mkfifo(tmp_path / "pipe.txt")
    assert keys(source(tmp_path, "files", "**/*.txt")) == ["link.txt", "real/a.txt"]
    assert keys(source(tmp_path, "files", "*/*.txt")) == ["folder/a.txt", "real/a.txt"]


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").symlink_to("nowhere")
    with pytest.raises(ItemsError, match=r"gone\.txt: is a broken link"):
        list(source(tmp_path, "files", "*.txt"))


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("nope.txt", "no such file"),
        ("sub", "is a folder; write sub/\\*"),
        ("*/../x", "has .. after a wildcard"),
        (".agentrun/*", "holds the state of jobs"),
    ],
)
def test_a_pattern_that_cannot_be_right_is_refused(tmp_path: Path, pattern: str, why: str) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(ItemsError, match=why):
        list(source(tmp_path, "files", pattern))


def test_a_name_that_is_not_utf8_is_shown_escaped(tmp_path: Path) -> None:
    try:
        (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("")
    except OSError:
        give_up("this file system takes only names in UTF-8", remedy="set TMPDIR to a folder on ext4, XFS or tmpfs")
    with pytest.raises(ItemsError, match=r"caf\\xe9\.txt: the name is not UTF-8"):
        list(source(tmp_path, "files", "*.txt"))


def test_a_changed_file_has_another_stamp_and_content(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt")
    items = source(tmp_path, "files", "*.txt")
    (raw,) = items
    before = items.identify(raw)
    assert before.content is None and 0 < before.stamp < 2**64
    assert items.content(raw) == hashlib.sha256(b"a.txt").digest()[:16]
    (tmp_path / "a.txt").write_text("b.txt")
    os.utime(tmp_path / "a.txt", ns=(0, 1))
    assert items.identify(raw).stamp != before.stamp
    assert items.content(raw) == hashlib.sha256(b"b.txt").digest()[:16]


def test_a_file_that_went_away_after_it_was_listed_is_a_changed_source(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt")
    items = source(tmp_path, "files", "*.txt")
    (raw,) = items
    (tmp_path / "a.txt").unlink()
    for read in (items.identify, items.content):
        with pytest.raises(SourceChangedError, match=r"a\.txt: disappeared"):
            read(raw)


def test_an_unreadable_file_or_folder_is_told(ordinary_folder: Path) -> None:
    folder = ordinary_folder
    touch(folder, "a.txt", "sub/b.txt")
    (folder / "a.txt").chmod(0)
    items = source(folder, "files", "*.txt")
    with pytest.raises(ItemsError, match=r"a\.txt: cannot be read: Permission denied"):
        items.content(next(iter(items)))
    (folder / "sub").chmod(0)
    with pytest.raises(ItemsError, match=r"sub.*: cannot be listed: Permission denied"):
        list(source(folder, "files", "sub/*.txt"))
    (folder / "sub").chmod(0o700)


def test_a_pattern_without_matches_says_where_it_looked(tmp_path: Path) -> None:
    assert source(tmp_path, "files", "docs/*.txt").describe() == f"no file matches docs/*.txt in {tmp_path}"


def test_where_is_the_path_of_a_file(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.txt")
    assert source(tmp_path, "files", "*.txt").where(1) == "b.txt"


# JSON lines


def test_records_without_a_key_are_known_by_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"b": 1, "a": "é"}\n\n  \n{"a":"\\u00e9","b":1}\r\n"text"')
    items = source(tmp_path, "jsonl", "a.jsonl")
    expected = hashlib.sha256('{"a":"é","b":1}'.encode()).hexdigest()[:32]
    assert keys(items)[:2] == [expected, expected]
    assert [item.data for item in all_items(items)] == [{"b": 1, "a": "é"}, {"a": "é", "b": 1}, "text"]
    assert not items.unique
    identity = items.identify(next(iter(items)))
    assert identity.content == items.content(next(iter(items))) == bytes.fromhex(expected)
    assert items.where(1) == "a.jsonl, line 4"


def test_records_with_a_key_are_known_by_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"id": "x\\u2028y"}\n{"id": 7}\n{"id": -1}\n')
    items = source(tmp_path, "jsonl", "a.jsonl", key="id")
    assert keys(items) == ["x\u2028y", "7", "-1"]
    assert items.unique


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, 2**70, -(2**70)])
def test_large_integers_stay_exact(tmp_path: Path, number: int) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"n": {number}}}\n{{"n": {number + 1}}}\n')
    items = source(tmp_path, "jsonl", "a.jsonl")
    assert [item.data for item in all_items(items)] == [{"n": number}, {"n": number + 1}]
    assert len(set(keys(items))) == 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"a": ', "is not JSON"),
        (b'{"id": NaN}', "is not JSON"),
        (b'{"id": 12345678901234567890123, "x": NaN}', "is not JSON"),
        (b'{"id": "\xff"}', "is not UTF-8"),
        (b'{"id": "\\ud800"}', "is not JSON"),
        (b'{"id": true}', "a key is text or a whole number"),
        (b'{"id": 1.5}', "a key is text or a whole number"),
        (b'{"id": null}', "a key is text or a whole number"),
        (b'{"id": ""}', "the key is empty"),
        (b'{"id": "a\\u0000"}', "NUL"),
        (b'{"idd": 1}', 'has no field "id"'),
        (b"[1]", "is not an object"),
        (json.dumps({"id": "é" * 600}).encode(), "over 1 KiB"),
        (b'{"id": 1, "x": ' + b"[" * 600 + b"]" * 600 + b"}", "nested too deep"),
    ],
)
def test_a_bad_line_is_refused_with_file_line_and_why(tmp_path: Path, line: bytes, why: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 1}\n\n' + line + b"\n")
    items = source(tmp_path, "jsonl", "a.jsonl", key="id")
    with pytest.raises(ItemsError, match=f"^a.jsonl, line 3: .*{why}"):
        keys(items)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "lines"])
def test_a_file_that_is_missing_or_none_is_told(tmp_path: Path, kind: ItemsKind) -> None:
    with pytest.raises(ItemsError, match="nope: there is no such file"):
        list(source(tmp_path, kind, "nope"))
    (tmp_path / "sub").mkdir()
    with pytest.raises(ItemsError, match="sub: is a folder"):
        list(source(tmp_path, kind, "sub"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ItemsError, match=r"pipe: is not a regular file; .*standard input"):
        list(source(tmp_path, kind, "pipe"))


# CSV


def test_rows_are_dicts_of_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfid,text\r\n1,"a, b"\r\n\r\n2,"two\n\nlines"\n3,\xe2\x80\xa8\n')
    items = source(tmp_path, "csv", "a.csv", key="id")
    assert [item.data for item in all_items(items)] == [
        {"id": "1", "text": "a, b"},
        {"id": "2", "text": "two\n\nlines"},
        {"id": "3", "text": "\u2028"},
    ]
    assert keys(items) == ["1", "2", "3"]
    assert items.unique
    assert [items.where(index) for index in range(3)] == [f"a.csv, line {line}" for line in (2, 4, 7)]
    assert keys(source(tmp_path, "csv", "a.csv"))[0] == hashlib.sha256(b'{"id":"1","text":"a, b"}').hexdigest()[:32]


def test_a_cell_may_be_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1," + "x" * 500_000 + "\n")
    (item,) = all_items(source(tmp_path, "csv", "a.csv"))
    assert len(item["text"]) == 500_000


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"id,id\n1,2\n", 'line 1: the header has "id" twice'),
        (b"id,\n1,2\n", "line 1: column 2 of the header has no name"),
        (b"name\nx\n", 'line 1: items.key is "id"'),
        (b"id,b\n1,2\n1,2,3\n", "line 3: has 3 cells where the header has 2"),
        (b"id,b\n1\n", "line 2: has 1 cells where the header has 2"),
        (b'id,b\n1,2\n3,"open\n5,6\n', "line 3: is not CSV"),
        (b"id,b\n1,\xff\n", "line 2: is not UTF-8"),
        (b"id,b\n,2\n", "line 2: the key is empty"),
    ],
)
def test_a_bad_table_is_refused_with_file_line_and_why(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ItemsError, match=f"^a.csv, {why}"):
        keys(source(tmp_path, "csv", "a.csv", key="id"))


# Lines


def test_a_line_is_its_own_key_unless_it_is_long(tmp_path: Path) -> None:
    long = "é" * 101
    (tmp_path / "a").write_text(f"one\r\n\n \t\n two\u2028\x0b \n{long}\n{'é' * 100}", newline="")
    items = source(tmp_path, "lines", "a")
    hashed = hashlib.sha256(long.encode()).hexdigest()[:32]
    assert keys(items) == ["one", " two\u2028\x0b ", hashed, "é" * 100]
    assert [item.text for item in all_items(items)] == ["one", " two\u2028\x0b ", long, "é" * 100]
    assert items.where(1) == "a, line 4"
    assert all(items.identify(raw).content == items.content(raw) for raw in items)


def test_a_line_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n\xff\n")
    with pytest.raises(ItemsError, match="a, line 2: is not UTF-8"):
        keys(source(tmp_path, "lines", "a"))


def test_standard_input_is_read_from_its_spool(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a\n\nb\n")
    items = source(tmp_path, "lines", "-", spool=tmp_path / "spool")
    assert keys(items) == ["a", "b"]
    assert items.where(1) == "standard input, line 3"
    with pytest.raises(ItemsError, match="standard input"):
        source(tmp_path, "lines", "-")


# Python items


def test_python_items_keep_their_kind(tmp_path: Path) -> None:
    touch(tmp_path, "docs/a.txt")
    items = spooled(tmp_path, ["docs/a.txt", tmp_path / "docs/a.txt", {"id": 1}, [1, 2], "", "x\ny", 5])
    found = all_items(items)
    assert [item.line for item in found] == ["docs/a.txt", None, None, None, "", "x\ny", None]
    assert [item.data for item in found] == [None, None, {"id": 1}, [1, 2], None, None, 5]
    assert found[1].path == tmp_path / "docs/a.txt"
    assert [item.key for item in found[:2]] == ["docs/a.txt", "docs/a.txt"]
    assert found[2].key == hashlib.sha256(b'{"id":1}').hexdigest()[:32]
    assert len(found[4].key) == 32
    raw = list(items)[1]
    assert items.identify(raw).content is None and items.identify(raw).stamp != 0
    assert items.content(raw) == hashlib.sha256(b"docs/a.txt").digest()[:16]


def test_python_dicts_may_have_a_key(tmp_path: Path) -> None:
    items = spooled(tmp_path, [{"id": "a"}, {"id": 2}], key="id")
    assert keys(items) == ["a", "2"] and items.unique
    with pytest.raises(ItemsError, match=r'items\[1\]: has no field "id"'):
        keys(spooled(tmp_path, [{"id": "a"}, {}], key="id"))


@pytest.mark.parametrize("bad", [{"x": {1}}, float("nan"), 2**70, b"bytes", "\ud800", {"a": [object()]}])
def test_a_python_item_that_json_cannot_hold_is_refused_by_position(bad: Any) -> None:
    with pytest.raises(ItemsError, match=r"^items\[1\]"):
        list(encode_python_items(["fine", bad]))


def test_a_python_path_without_a_file_is_refused_by_position(tmp_path: Path) -> None:
    with pytest.raises(ItemsError, match=r"items\[0\]: there is no such file: .*nope"):
        keys(spooled(tmp_path, [tmp_path / "nope"]))


def test_python_items_are_encoded_as_they_come() -> None:
    taken = 0

    def endless() -> Iterable[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "x" * 1000

    assert next(iter(encode_python_items(endless()))).endswith(b"\n")
    assert taken < 100


def test_no_items_from_python_is_described(tmp_path: Path) -> None:
    items = spooled(tmp_path, [])
    assert list(items) == [] and items.describe() == "items is empty"


def test_a_file_that_stops_being_readable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Torn(io.RawIOBase):
        pieces = iter([b'{"id": 1}\n'])

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            piece = next(self.pieces, None)
            if piece is None:
                raise OSError(5, "Input/output error")
            buffer[: len(piece)] = piece
            return len(piece)

    (tmp_path / "items.jsonl").write_text("")
    monkeypatch.setattr(TextFile, "open", lambda self: io.BufferedReader(Torn()))
    with pytest.raises(ItemsError, match=r"items\.jsonl: cannot be read: Input/output error"):
        list(source(tmp_path, "jsonl", "items.jsonl"))
