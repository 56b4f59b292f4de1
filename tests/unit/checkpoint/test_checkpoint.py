from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from agentrun.checkpoint.checkpoint import (
    VERSION,
    Checkpoint,
    Journal,
    RunContext,
    Running,
    Stopped,
    decode_checkpoint,
    encode_checkpoint,
)
from agentrun.checkpoint.record import encode_record
from agentrun.errors import CheckpointError
from agentrun.money.budget import Left, Totals
from agentrun.store.folder.store import FolderStore
from unit.records import make_record

DATA = Path(__file__).parents[2] / "data"


def filled() -> Checkpoint:
    records = [make_record("a", seq=11, output="],\n"), make_record("a", seq=12, output={"outputs": []})]
    return Checkpoint(
        job='tri"age\n],',
        run_id="20260504T220311-0a2f19f3a1c",
        seq=12,
        last_completed=3,
        total=9,
        counts={"done": 4, "pending": 5},
        done=[[0, 3]],
        failed=[[5, 5], [7, 8]],
        running=[Running(index=4, key="e", slot=2, reserved=0.25)],
        outputs=[Raw(encode_record(record)) for record in records],
        journal=Journal("journal-2.jsonl", 4096),
        context=RunContext(launches=2, date="2026-05-04", carry={"notes": ["],", '"outputs": [']}),
        usage=Totals(cost=1.25, input_tokens=3, left=Left(items=1, used=0.5)),
        stopped=Stopped(at="2026-05-04T22:04:00.000Z", reason="no\n],", exit_code=75, resume_at="2026-05-05T02:00:00Z"),
        started_at="2026-05-04T22:03:11.042Z",
        updated_at="2026-05-04T22:04:00.000Z",
    )


def test_what_is_written_is_read() -> None:
    text = encode_checkpoint(filled())
    assert decode_checkpoint(text, where="state.json") == filled()
    assert orjson.loads(text)["version"] == VERSION


def test_the_empty_one_too() -> None:
    empty = Checkpoint(job="a", run_id="1", context=RunContext(launches=0, date="2026-05-04"))
    assert decode_checkpoint(encode_checkpoint(empty), where="state.json") == empty


def test_the_check_is_over_every_byte_before_it() -> None:
    text = encode_checkpoint(filled())
    same_value = text.replace(b'"seq": 12', b'"seq":  12')
    assert orjson.loads(same_value) == orjson.loads(text)
    with pytest.raises(CheckpointError, match="its check does not match"):
        decode_checkpoint(same_value, where="state.json")
    with pytest.raises(CheckpointError):
        decode_checkpoint(text + b"\n", where="state.json")


def test_an_edit_that_is_accepted_keeps_everything_else() -> None:
    text = encode_checkpoint(filled()).replace(b'"total": 9', b'"total": 8')
    found = decode_checkpoint(text, where="state.json", accept_edits=True)
    expected = filled()
    expected.total = 8
    assert found == expected


def test_text_that_is_not_json_is_told_with_its_place() -> None:
    for text, says in (
        (b"", "is empty"),
        (b'{\n"version": 1,\n"job" x', "line 3, column"),
        (b"[]", "holds list"),
        (b"\xff\xfe", "is not JSON"),
    ):
        with pytest.raises(CheckpointError, match=says) as caught:
            decode_checkpoint(text, where="triage/state.json")
        assert caught.value.message.startswith("triage/state.json: ")


@pytest.mark.parametrize("accept_edits", [False, True])
@settings(deadline=None)  # no timed tests
@given(st.data())
def test_whatever_the_file_holds_the_answer_is_a_checkpoint_or_a_clear_error(
    accept_edits: bool, data: st.DataObject
) -> None:
    state = orjson.loads(encode_checkpoint(filled()))
    json_values: st.SearchStrategy[Any] = st.sampled_from([None, True, [], {}, 0.5]) | st.integers(-3, 2**63)
    json_values |= st.text(max_size=5)
    places: list[tuple[Any, Any]] = [(state, name) for name in state]
    places += [(state["context"], name) for name in state["context"]]
    places += [(state["outputs"], 0), *((state["outputs"][0], name) for name in state["outputs"][0])]
    places += [(state["running"], 0), *((state["running"][0], name) for name in state["running"][0])]
    places += [(state["usage"], name) for name in state["usage"]]
    places += [(state["stopped"], name) for name in state["stopped"]]
    where, name = data.draw(st.sampled_from(places))
    where[name] = data.draw(json_values)
    try:
        found = decode_checkpoint(orjson.dumps(state), where="state.json", accept_edits=accept_edits)
    except CheckpointError as error:
        assert error.exit_code == 65
    else:
        assert accept_edits
        assert decode_checkpoint(encode_checkpoint(found), where="state.json") == found


def test_of_the_fields_only_those_that_older_versions_did_not_write_may_be_missing() -> None:
    state = orjson.loads(encode_checkpoint(filled()))
    for name in state:
        text = orjson.dumps({one: value for one, value in state.items() if one != name})
        if name in ("stopped", "paused"):
            assert getattr(decode_checkpoint(text, where="state.json", accept_edits=True), name) is None
        elif name != "check":
            with pytest.raises(CheckpointError, match=f"has no {name}"):
                decode_checkpoint(text, where="state.json", accept_edits=True)


@pytest.mark.parametrize("stopped", [{}, {"at": "x", "reason": "y"}, {"at": 1, "reason": "", "exit_code": 4}, "killed"])
def test_how_it_stopped_is_checked_like_everything_else(stopped: Any) -> None:
    state = orjson.loads(encode_checkpoint(filled()))
    state["stopped"] = stopped
    with pytest.raises(CheckpointError, match="stopped"):
        decode_checkpoint(orjson.dumps(state), where="state.json", accept_edits=True)


def test_a_state_folder_of_version_1_loads_for_ever() -> None:
    """Made by the program itself, and never to be made again: an older version is read for ever."""
    store = FolderStore(DATA / "state-v1")
    checkpoint = store.load().checkpoint
    assert checkpoint is not None
    assert (checkpoint.job, checkpoint.seq, checkpoint.total, checkpoint.last_completed) == ("state-v1", 7, 8, 4)
    assert checkpoint.counts == {"pending": 3, "done": 3, "failed": 1, "skipped": 1, "waiting": 0}
    assert (checkpoint.done, checkpoint.failed) == ([[0, 0], [3, 4]], [[1, 1]])
    assert checkpoint.journal.length > 0 and checkpoint.outputs
    assert [(record.key, record.kind, record.value) for _, record in store.scan()] == [
        ("docs/0.txt", "done", {"text": "document 0 é\u2028"}),
        ("docs/1.txt", "failed", None),
        ("docs/2.txt", "skipped", None),
        ("docs/3.txt", "done", {"text": "document 3 é\u2028"}),
        ("docs/4.txt", "done", {"text": "document 4 é\u2028"}),
    ]
