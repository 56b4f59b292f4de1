"""One item in full, on every store."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from agentrun.agents.messages import Answer
from agentrun.checkpoint.checkpoint import Running
from agentrun.checkpoint.record import Edited, PublishedFile, Try
from agentrun.item import Item
from agentrun.items.lines import LinesSource
from agentrun.items.port import Identity
from agentrun.money.usage import Usage
from agentrun.outputs.logs import ItemLogs
from agentrun.outputs.workspace import Workspace
from agentrun.views.details import INPUT_CHARACTERS, LOG_LINES, InputView, ItemDetails, item_logs, read_details
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
from agentrun.views.listing import open_listing, read_item
from unit.made import Made, StoreKind


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, [*"abcd"], kind)


def details_of(made: Made, key: str, known: KnownJob | None = None) -> ItemDetails:
    known = known or made.known
    with open_listing(known.store, known.job) as listing:
        view = listing.find(key=key)
        assert view is not None
        return read_details(known, listing, view)


def printed(made: Made, key: str, *lines: str, slot: int = 0) -> Path:
    """What an attempt that is not done has printed."""
    logs = ItemLogs(Workspace(made.store).logs)
    logs.append(slot, "\n".join(lines))
    logs.keep(slot, key, "launch 1, attempt 1")
    return item_logs(made.known, ItemView(made.keys.index(key), key, "failed"))[1]


def test_a_done_item_has_its_input_its_attempts_and_its_output(made: Made) -> None:
    tries = [
        Try(launch=1, number=1, at=100.0, seconds=1.0, cause="ValueError: odd"),
        Try(launch=1, number=2, at=102.0, seconds=2.0),
    ]
    usage, edited = Usage(cost=0.25, input_tokens=10), Edited(by="ada", at="2026-05-04")
    files = [PublishedFile("b/report.txt", 3, "00")]
    record = made.record("b", output={"n": 1}, tries=tries, usage=usage, edited=edited, files=files, gen=1)
    record.warning = "it was close"
    made.commit(made.record("a"), record)
    shown = details_of(made, "b").as_json()
    assert orjson.loads(orjson.dumps(shown)) == shown
    assert shown == {
        "job": "made",
        "index": 1,
        "total": 4,
        "key": "b",
        "state": "done",
        "changed": False,
        "generation": 1,
        "launch": 1,
        "failed_launches": None,
        "agent": "v1",
        "agent_now": "v1",
        "input": {"text": "b"},
        "attempts": [
            {"launch": 1, "number": 1, "at": "1970-01-01T00:01:40.000Z", "seconds": 1.0, "cause": "ValueError: odd"},
            {"launch": 1, "number": 2, "at": "1970-01-01T00:01:42.000Z", "seconds": 2.0},
        ],
        "error": None,
        "output": {"n": 1},
        "files": [{"path": "b/report.txt", "size": 3, "sha256": "00"}],
        "usage": usage.as_json(),
        "edited": {"by": "ada", "at": "2026-05-04"},
        "by": None,
        "warning": "it was close",
        "question": None,
        "steps": [],
        "ran_elsewhere": None,
        "log": None,
    }


def test_an_item_without_a_record_has_its_input_and_nothing_else(made: Made) -> None:
    made.commit(made.record("a"))
    shown = details_of(made, "c").as_json()
    assert (shown["index"], shown["state"], shown["input"]) == (2, "pending", {"text": "c"})
    empty = {name for name, value in shown.items() if value in (None, [])}
    assert empty == {
        *("launch", "failed_launches", "agent", "attempts", "error", "output", "files"),
        *("usage", "edited", "by", "warning", "question", "steps", "log", "ran_elsewhere"),
    }


def test_a_failed_item_has_the_facts_and_the_end_of_its_log(made: Made) -> None:
    made.commit(made.failed("b", "row 17", failed_launches=2))
    path = printed(made, "b", *(f"line {n}" for n in range(50)))
    details = details_of(made, "b")
    assert details.log_path == path and details.log_lines == tuple(f"line {n}" for n in range(50))[-LOG_LINES:]
    shown = details.as_json()
    assert shown["log"] == {"path": str(path), "lines": list(details.log_lines)}
    assert (shown["state"], shown["failed_launches"], shown["error"]["message"]) == ("failed", 2, "row 17")
    assert details_of(made, "a").log_path is None


def test_the_log_of_a_running_item_is_that_of_its_slot(made: Made) -> None:
    with made.at_work():
        made.commit(running=[Running(index=1, key="b", slot=3)])
        printed(made, "b", "of the attempt before", slot=0)
        logs = ItemLogs(Workspace(made.store).logs)
        assert details_of(made, "b").log_lines == ("--- launch 1, attempt 1", "of the attempt before")
        logs.append(3, "of this attempt")
        details = details_of(made, "b")
    assert (details.view.state, details.log_lines) == ("running", ("of this attempt",))
    assert details.log_path == logs.slot_path(3)


def test_a_waiting_item_has_its_question_and_the_steps_and_answers_so_far(made: Made) -> None:
    made.commit(made.record("b", "step", [1], name="draft", n=0, no=0))
    made.commit(made.record("b", "answer", question=1, answer=Answer(yes=True, text="fine", by="ada")))
    made.commit(made.waiting("b", "And now?", n=2, draft="x"))
    shown = details_of(made, "b").as_json()
    assert (shown["question"]["n"], shown["question"]["text"]) == (2, "And now?")
    assert shown["question"]["details"] == {"draft": "x"}
    step, answer = shown["steps"]
    assert (step["kind"], step["name"], step["output"]) == ("step", "draft", [1])
    assert (answer["kind"], answer["question"], answer["answer"]["text"]) == ("answer", 1, "fine")


def test_a_settled_item_still_has_its_steps_and_answers_but_only_of_its_generation(made: Made) -> None:
    made.commit(made.record("b", "step", [0], name="old", n=0, no=0))
    made.commit(made.record("b", "redo", gen=1))
    made.commit(made.record("a", "step", "b", name="b", n=0, no=0))
    made.commit(made.record("b", "step", [1], name="draft", n=0, no=0, gen=1))
    made.commit(made.record("b", "answer", question=1, gen=1, answer=Answer(yes=True, text="fine", by="ada")))
    made.commit(made.record("b", output="sent", gen=1))
    assert [one.name or one.kind for one in details_of(made, "b").steps] == ["draft", "answer"]
    made.finish()
    assert [one.name or one.kind for one in details_of(made, "b").steps] == ["draft", "answer"]


def test_an_item_that_the_source_no_longer_has_is_shown_from_its_record(made: Made) -> None:
    made.commit(made.record("b"))
    from_records = KnownJob("made", made.store)
    assert details_of(made, "b", from_records).as_json()["input"] is None
    made.finish()
    made.items.write_text("a\n")
    details = details_of(made, "b")
    assert details.given is None and details.view.output == "an output"
    made.items.unlink()
    assert details_of(made, "b").given is None


def test_the_agent_of_an_item_is_shown_beside_the_agent_of_the_last_launch(made: Made) -> None:
    made.checkpoint.context.agent = "v2"
    made.commit(made.record("a", agent="v1"))
    shown = details_of(made, "a").as_json()
    assert (shown["agent"], shown["agent_now"]) == ("v1", "v2")


# ---- what an item was given


def test_a_file_is_shown_with_its_size_and_how_it_begins(tmp_path: Path, kind: StoreKind) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_bytes("é".encode() * 3000)
    made = Made(tmp_path, [], kind, items={"files": "docs/*.txt"})
    made.commit()
    given = details_of(made, "docs/a.txt").given
    assert given == InputView(tmp_path / "docs" / "a.txt", 6000, "é" * (INPUT_CHARACTERS // 2))
    assert given.as_json() == {"path": str(given.path), "bytes": 6000, "begins": given.begins}


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    given = InputView.of(Item(0, "gone.txt", path=tmp_path / "gone.txt"))
    assert given.as_json() == {"path": str(tmp_path / "gone.txt"), "problem": "No such file or directory"}


def test_an_input_that_became_a_pipe_is_not_waited_for_and_a_link_to_a_file_is_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("hello")
    (tmp_path / "link").symlink_to("file")
    pipe, link = (InputView.of(Item(0, name, path=tmp_path / name)) for name in ("pipe", "link"))
    assert pipe.problem == "it is not a regular file"
    assert (link.path, link.bytes, link.begins) == (tmp_path / "link", 5, "hello")


def test_a_record_of_a_table_is_shown_as_data(tmp_path: Path, kind: StoreKind) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "x", "n": 1}\n')
    made = Made(tmp_path, [], kind, items={"jsonl": "rows.jsonl", "key": "id"})
    made.commit()
    given = details_of(made, "x").given
    assert given is not None and given.as_json() == {"data": {"id": "x", "n": 1}}


def walked(made: Made, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries of the source each call identifies."""
    counted = [0]
    identify = LinesSource.identify

    def counting(self: LinesSource, raw: tuple[int, bytes], *, with_content: bool = True) -> Identity:
        counted[0] += 1
        return identify(self, raw, with_content=with_content)

    monkeypatch.setattr(LinesSource, "identify", counting)
    return counted


@pytest.mark.parametrize(
    ("source", "index", "key", "line", "most"),
    [
        (["a", "b", "c"], 2, "c", "c", 1),
        (["a", "b", "a"], 2, "a~2", "a", 1),
        (["a", "b", "a"], 0, "a", "a", 1),
        # The source was changed since it was listed.
        (["c", "a", "b"], 2, "c", "c", 4),
        (["a", "a", "b"], 2, "a~2", "a", 4),
        (["a"], 2, "c", None, 1),
        # A line that only looks like a repeat: all are counted.
        (["a", "a", "a~2"], 2, "a~2~2", "a~2", 4),
        (["a", "a~2", "a"], 1, "a~2", "a~2", 4),
        (["a", "a~2", "a"], 2, "a~3", "a", 4),
    ],
)
def test_the_input_is_looked_for_where_it_was_and_then_everywhere(
    made: Made, monkeypatch: pytest.MonkeyPatch, source: list[str], index: int, key: str, line: str | None, most: int
) -> None:
    made.items.write_text("".join(f"{one}\n" for one in source))
    counted = walked(made, monkeypatch)
    item = read_item(made.store, made.job, ItemView(index, key, "pending"))
    assert (item.line if item is not None else None) == line
    assert counted[0] <= most


def test_as_much_of_a_file_is_shown_as_is_asked_for(tmp_path: Path, kind: StoreKind) -> None:
    made = Made(tmp_path, ["x"], kind, items={"files": "*.txt"})
    made.items.write_text("y" * 5000)
    with open_listing(made.store, made.job) as listing:
        view = listing.find(key="items.txt")
        assert view is not None
        for options, length in (
            ({}, INPUT_CHARACTERS),
            ({"input_characters": 10}, 10),
            ({"input_characters": 9999}, 5000),
        ):
            given = read_details(made.known, listing, view, **options).given
            assert given is not None and (given.bytes, len(given.begins)) == (5000, length)
