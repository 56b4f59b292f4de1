"""Results written to a place of one's own, on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.errors import UsageError
from agentrun.views.exporting import export_results
from agentrun.views.listing import open_listing
from unit.made import Made, StoreKind


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    made = Made(tmp_path, [*"abc"], kind)
    made.commit(made.record("a", output={"v": 1}), made.record("c", output="text"), made.failed("b"))
    return made


def export(made: Made, text: str, *, overwrite: bool = False) -> Path:
    with open_listing(made.store, made.job) as listing:
        return export_results(listing, text, here=made.base, overwrite=overwrite)


def test_the_name_decides_the_form(made: Made) -> None:
    assert export(made, "r.csv").read_text() == "index,key,v,output\n0,a,1,\n2,c,,text\n"
    assert export(made, "new/sub/r.jsonl").read_bytes() == (
        b'{"index":0,"key":"a","output":{"v":1}}\n{"index":2,"key":"c","output":"text"}\n'
    )
    folder = export(made, "out/{index}-{key}.md")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"0-a.md": '{"v":1}\n', "2-c.md": "text\n"}
    assert export(made, "{run_id}.csv").stem == made.run_id


def test_what_is_there_is_replaced_only_on_request_and_nothing_is_removed(made: Made) -> None:
    path = made.base / "r.csv"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"r\.csv: already exists.*--overwrite"):
        export(made, "r.csv")
    assert path.read_text() == "mine"
    assert export(made, "r.csv", overwrite=True).read_text() != "mine"
    (made.base / "out").mkdir()
    for name in ("a.md", "other.md"):
        (made.base / "out" / name).write_text("mine")
    with pytest.raises(UsageError, match=r"a\.md: already exists, with other contents"):
        export(made, "out/{key}.md")
    export(made, "out/{key}.md", overwrite=True)
    export(made, "out/{key}.md")
    assert sorted(path.name for path in (made.base / "out").iterdir()) == ["a.md", "c.md", "other.md"]
    assert (made.base / "out" / "other.md").read_text() == "mine"


def test_where_the_unfinished_run_will_write_its_results_nothing_is_written(made: Made) -> None:
    made.checkpoint.context.output = str(made.base / "r.csv")
    made.commit()
    with pytest.raises(UsageError, match="the unfinished run will write its results there"):
        export(made, "r.csv", overwrite=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{kye}.csv", "did you mean {key}"),
        ("{key}.md", "write a folder of its own"),
        ("x/{key}/y", "in the last part only"),
        ("-", "write the path of a file"),
        (".", "write the path of a file"),
        ("here", "is a folder"),
    ],
)
def test_nonsense_is_refused_with_what_to_write(made: Made, text: str, why: str) -> None:
    (made.base / "here").mkdir()
    with pytest.raises(UsageError, match=why.replace("{", r"\{")):
        export(made, text)
