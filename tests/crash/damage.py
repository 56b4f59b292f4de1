"""Damage: state.json and the journal with a byte flipped, cut short, or replaced by an older copy."""

from __future__ import annotations

import os
from collections.abc import Iterator

import orjson

from agentrun.errors import CheckpointError
from crash.inspection import Stage, go_on, look, moments
from crash.model import Operation, State, Told
from crash.workload import FakeAgent, Workload

STATE = "state/job/state.json"


def journal_of(state: State) -> str | None:
    return next((path for path in state if path.startswith("state/job/journal-")), None)


def snapshots(history: list[Operation]) -> list[State]:
    """The disk after each commit."""
    found: list[State] = []
    for model, operation in zip(moments(history, only_new=False), [None, *history], strict=True):
        if isinstance(operation, Told):
            found.append(model.after_kill())
    return found


def records(workload: Workload) -> list[object]:
    store = workload.store()
    assert store.load().checkpoint is not None
    return list(store.scan())


def is_noticed(workload: Workload, right: list[object]) -> bool:
    """Either the damage is noticed, or the records are what they were."""
    try:
        found = records(workload)
    except CheckpointError as error:
        assert error.exit_code == 65
        return True
    assert found == right, "other records than were written, and no error"
    return False


def flip_bytes(stage: Stage, state: State, path: str, masks: tuple[int, ...]) -> Iterator[bool]:
    """Each byte of a file changed by each mask in turn: was it noticed?"""
    stage.show(state)
    right = records(stage.workload)
    content = state[path]
    assert content is not None
    fd = os.open(stage.workload.base / path, os.O_RDWR)
    try:
        for at, byte in enumerate(content):
            for mask in masks:
                os.pwrite(fd, bytes([byte ^ mask]), at)
                try:
                    yield is_noticed(stage.workload, right)
                except AssertionError as error:
                    raise AssertionError(f"{path}: byte {at} changed by {mask:#x}: {error}") from error
            os.pwrite(fd, bytes([byte]), at)
    finally:
        os.close(fd)
        stage.disturbed()


def cut(stage: Stage, state: State, path: str) -> Iterator[bool]:
    """A file cut at each length, the longest first: was it noticed?"""
    stage.show(state)
    right = records(stage.workload)
    content = state[path]
    assert content is not None
    try:
        for length in reversed(range(len(content))):
            os.truncate(stage.workload.base / path, length)
            try:
                yield is_noticed(stage.workload, right)
            except AssertionError as error:
                raise AssertionError(f"{path}: cut at {length}: {error}") from error
    finally:
        stage.disturbed()


def put_back(stage: Stage, now: State, path: str, older: State) -> bool:
    """A file replaced by its older copy. Refused with 65 (True), or recovered with the right results."""
    state = {**now, path: older[path]}
    workload = stage.workload
    stage.show(dict(sorted(state.items())))
    try:
        look(workload)
    except CheckpointError:
        return True
    stage.disturbed()
    try:
        summary = go_on(workload, FakeAgent())
    except CheckpointError:
        return True
    assert summary.exit_code == 0
    assert workload.output.read_bytes() == workload.results, f"wrong results with an older {path}"
    return False


def shows_its_age(older: State, now: State) -> bool:
    """Does the journal go on beyond the commit that follows the older state.json?"""
    text = older.get(STATE)
    if text is None or STATE not in now:
        return False
    state = orjson.loads(text)
    journal = now.get(f"state/job/{state['journal']['name']}")
    if journal is None:
        return bool(state["journal"]["length"])
    lines = journal[state["journal"]["length"] :].split(b"\n")[:-1]
    return any(orjson.loads(line)["seq"] > state["seq"] + 1 for line in lines)
