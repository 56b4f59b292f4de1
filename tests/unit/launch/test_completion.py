"""Clean completion, and recovery of what a crash left of it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.messages import Log, Refused, StepPut
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.errors import AgentrunError, CheckpointError
from agentrun.events import Planned, Warned
from agentrun.job.job import ItemsSpec
from agentrun.job.options import Options
from agentrun.launch.launch import Launch
from agentrun.store.folder.store import FolderStore
from agentrun.store.port import Store
from unit.launch.bench import (
    DATA,
    FakeExecutor,
    Hooked,
    World,
    answer,
    failing,
    names,
    only,
)


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_a_state_whose_run_has_a_summary_is_cleared_and_nothing_is_run(in_folder: World) -> None:
    in_folder.items("a", "b")
    states: list[bytes] = []

    def hook(store: Hooked) -> None:
        store.after = lambda checkpoint, records: states.append((in_folder.folder / "state.json").read_bytes())

    in_folder.hook = hook
    first = in_folder.go()
    in_folder.hook = lambda store: None
    results = (in_folder.base / "out.jsonl").read_bytes()
    (in_folder.folder / "state.json").write_bytes(states[-1])
    summary = in_folder.go()
    assert summary.exit_code == 0 and summary.run_id == first.run_id
    assert in_folder.ran == [] and not (in_folder.folder / "state.json").exists()
    assert any(isinstance(event, Warned) and "finished already" in event.text for event in in_folder.events)
    assert (in_folder.base / "out.jsonl").read_bytes() == results
    assert in_folder.go().nothing_to_do and in_folder.ran == []


def test_results_that_a_dying_launch_had_renamed_already_are_its_own(world: World) -> None:
    world.items("a", "b")
    results = world.expected()
    # One commit at the beginning, one an item, one at the end; then the one before the results.
    world.crash(commits=4, landed=True)
    found = world.state()
    assert found is not None and found.context.completing == str(world.base / "out.jsonl")
    (world.base / "out.jsonl").write_bytes(results)
    assert world.go().exit_code == 0
    assert world.ran == [] and (world.base / "out.jsonl").read_bytes() == results


def test_recovery_changes_nothing_on_disk_before_the_first_commit(in_folder: World) -> None:
    in_folder.items(*names(8))
    in_folder.crash(commits=5)
    for name in (".state.json.0123456789ab.tmp", "journal-7.jsonl", "items-0-x.spool"):
        (in_folder.folder / name).write_bytes(b"left by a crash")
    before = snapshot(in_folder.folder)
    seen: list[dict[str, tuple[bytes, int]]] = []

    def look(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        if len(seen) < 2:
            seen.append(snapshot(in_folder.folder))

    def hook(store: Hooked) -> None:
        store.before = look

    in_folder.hook = hook
    prepared: list[dict[str, tuple[bytes, int]]] = []
    executor = FakeExecutor()
    assert in_folder.go(executor=executor, prepared=lambda: prepared.append(snapshot(in_folder.folder)))
    assert prepared == [before]
    assert seen[0] == before
    # After it, what no checkpoint names is gone.
    assert not {".state.json.0123456789ab.tmp", "journal-7.jsonl", "items-0-x.spool"} & set(seen[1])


def test_nothing_is_told_or_started_before_the_first_commit(world: World) -> None:
    world.items("a")
    executor = FakeExecutor()

    def before(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        if checkpoint.seq == 1:
            assert executor.starts == 0 and executor.began == []
            assert [type(event) for event in world.events] == [Planned]

    def hook(store: Hooked) -> None:
        store.before = before

    world.hook = hook
    assert world.go(executor=executor).exit_code == 0


def test_every_launch_raises_launches_and_a_damaged_state_stops_it(in_folder: World) -> None:
    in_folder.items("a", "b")
    in_folder.go(limit=1)
    found = in_folder.state()
    assert found is not None and found.context.launches == 1
    path = in_folder.folder / "state.json"
    path.write_bytes(path.read_bytes().replace(b'"total": 2', b'"total": 3'))
    before = snapshot(in_folder.folder)
    with pytest.raises(CheckpointError) as caught:
        in_folder.go()
    assert caught.value.exit_code == 65 and snapshot(in_folder.folder) == before
    assert in_folder.go(accept_edits=True).exit_code == 0
    assert in_folder.ran == ["b"]


def test_a_damaged_state_is_kept_when_the_run_is_begun_anew(in_folder: World) -> None:
    in_folder.items("a", "b")
    in_folder.go(limit=1)
    (in_folder.folder / "state.json").write_bytes(b"{}")
    assert in_folder.go(fresh=True).exit_code == 0
    assert in_folder.ran == ["a", "b"]
    (kept,) = (in_folder.folder / "runs").glob("*-set-aside.state")
    assert kept.read_bytes() == b"{}"


def test_an_edited_output_is_in_the_results(in_folder: World) -> None:
    in_folder.redo_limit_bytes = 16 * 1024
    in_folder.items("a", "b")
    in_folder.go(limit=1)
    path = in_folder.folder / "state.json"
    path.write_bytes(path.read_bytes().replace(b'"value of a"', b'"edited by hand"'))
    assert in_folder.go(accept_edits=True).exit_code == 0
    assert [line["output"]["of"] for line in in_folder.results()] == ["edited by hand", "value of b"]


def test_a_second_launch_is_refused_while_the_first_is_at_work(world: World) -> None:
    world.items("a")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        store: Store = world.memory or FolderStore(world.folder)
        second = Launch(world.job, store, agent="v1", options=Options(wait_seconds=0))
        with pytest.raises(AgentrunError) as caught:
            second.prepare()
        assert caught.value.exit_code == 75
        if world.memory is None:
            second.close()
        return await answer(attempt, channel)

    assert world.go(script).exit_code == 0


def test_state_json_stays_small_and_says_where_the_run_is(in_folder: World) -> None:
    in_folder.items(*names(120))
    in_folder.job = replace(in_folder.job, stop_after_failures=0)
    most = 0

    def after(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        nonlocal most
        most = max(most, (in_folder.folder / "state.json").stat().st_size)

    def hook(store: Hooked) -> None:
        store.after = after

    in_folder.hook = hook
    in_folder.go(only({key: failing() for key in names(120)[::2]}), limit=110)
    found = in_folder.state()
    assert found is not None
    assert (found.last_completed, found.total) == (109, 120)
    assert found.counts == {"pending": 10, "done": 55, "failed": 55, "skipped": 0, "waiting": 0}
    assert found.done == [[n, n] for n in range(1, 110, 2)]
    assert most < 4096


def test_an_unfinished_run_of_version_1_goes_on(in_folder: World) -> None:
    """Of the folder that is checked in: five of eight documents are settled, one of them failed."""
    shutil.copytree(DATA / "state-v1", in_folder.folder)
    in_folder.folder.parent.chmod(0o700)
    in_folder.folder.chmod(0o700)
    (in_folder.base / "docs").mkdir()
    for number in range(8):
        (in_folder.base / "docs" / f"{number}.txt").write_text(f"document {number} é\u2028")
    in_folder.job = replace(in_folder.job, agent="agent.py:read", items=ItemsSpec(kind="files", pattern="docs/*.txt"))
    assert in_folder.go().exit_code == 0
    assert in_folder.ran == [f"docs/{number}.txt" for number in (5, 6, 7, 1)]
    assert in_folder.keys() == [f"docs/{number}.txt" for number in (0, 1, 3, 4, 5, 6, 7)]


def test_logs_are_kept_of_items_that_are_not_done_and_of_done_ones_apart(in_folder: World) -> None:
    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await channel(Log(f"hello from {attempt.item.key}"))
        assert isinstance(await channel(StepPut("a", 0, "1")), Refused)
        return failing() if attempt.item.key == "b" else await answer(attempt, channel)

    in_folder.items("a", "b")
    in_folder.go(script)
    (log,) = (in_folder.folder / "logs").glob("*.log")
    (of_done,) = (in_folder.folder / "logs" / "done").iterdir()
    assert of_done.read_text().endswith(": done\nhello from a\n")
    text = log.read_text()
    assert "hello from b" in text and "launch 1, attempt 1" in text and "hello from a" not in text
    in_folder.go()
    assert not list((in_folder.folder / "logs").glob("*.log"))
    both = [path.read_text() for path in (in_folder.folder / "logs" / "done").iterdir()]
    assert sorted(text.splitlines()[-1] for text in both) == ["hello from a", "hello from b"]


@pytest.mark.parametrize("commits", range(1, 6))
@pytest.mark.parametrize("landed", [False, True])
def test_a_crash_never_puts_what_one_item_printed_into_the_log_of_another(
    in_folder: World, commits: int, landed: bool
) -> None:
    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await channel(Log(f"hello from {attempt.item.key}"))
        return await answer(attempt, channel)

    in_folder.items(*names(6))
    in_folder.crash(script, commits=commits, landed=landed)
    in_folder.go(limit=1)
    found = {path.name: path.read_text() for path in (in_folder.folder / "logs").rglob("*.log")}
    for name, text in found.items():
        assert {line for line in text.splitlines() if line.startswith("hello")} == {f"hello from {name[:4]}"}
    in_folder.go(script)
    assert len(list((in_folder.folder / "logs").rglob("*.log"))) >= 5


def test_the_log_of_launches_has_every_launch_checkpoint_and_stop(in_folder: World) -> None:
    in_folder.items("a", "b")
    in_folder.go(limit=1)
    in_folder.go()
    lines = [orjson.loads(line) for line in (in_folder.folder / "log.jsonl").read_bytes().splitlines()]
    events = [line["event"] for line in lines if line["event"] != "checkpoint"]
    assert events == ["launch", "stop", "restore", "stop"]
    assert all("at" in line and "last_completed" in line for line in lines)


@pytest.fixture(autouse=True)
def no_left_over_threads() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() <= before
