"""Every view and everything people can do works on the memory store, with no state folder on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agentrun
from agentrun.events import Event, Planned
from agentrun.people import desk
from agentrun.people.desk import Selection
from agentrun.store.folder.store import FolderStore
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Store
from agentrun.views.causes import group_failures
from agentrun.views.finding import KnownJob
from agentrun.views.jobs import view_job
from agentrun.views.listing import open_listing, read_items

ITEMS = ["good 1", "bad 2", "ask 3", "bad 4"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTRUN_STATE_DIR", raising=False)
    return tmp_path


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else FolderStore(tmp_path / "state" / "triage")


class Triage:
    """Fails what is bad until that is allowed, and asks about one item."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.is_strict = True

    async def __call__(self, item: agentrun.Item, ctx: agentrun.Context) -> Any:
        text = item.text
        self.ran.append(text)
        ctx.usage(cost=0.25, input_tokens=10, output_tokens=1)
        if text.startswith("bad") and self.is_strict:
            raise agentrun.Fail(f"row {text[-1]} is short")
        if text.startswith("ask"):
            draft = await ctx.step("draft", str.upper, text)
            answer = await ctx.ask("Send it?", draft=draft)
            return {"sent": answer["draft"], "by": answer.by}
        return text.upper()


def go(agent: Any, store: Store, **values: Any) -> agentrun.Summary:
    return agentrun.run(agent, items=values.pop("items", ITEMS), name="triage", store=store, retries=0, **values)


def known(store: Store) -> KnownJob:
    return KnownJob("triage", store)


def states(store: Store) -> list[tuple[int, str, str]]:
    return [(item.index, item.key, item.state) for item in read_items(store)]


def test_run_status_items_failures_results_answer_redo_and_run_again(store: Store, here: Path) -> None:
    agent = Triage()
    assert view_job(store, "triage").status == "new" and states(store) == []

    first = go(agent, store, stop_after_failures=0)
    assert first.exit_code == 1 and first.reason == "2 of 4 items failed"
    assert [line["output"] for line in first.results()] == ["GOOD 1"]
    assert [item.key for item in first.failures()] == ["bad 2", "bad 4"]

    view = view_job(store, "triage")
    assert (view.job, view.status, view.total, view.run_id) == ("triage", "waiting", 4, first.run_id)
    assert dict(view.counts) == {"pending": 0, "done": 1, "failed": 2, "skipped": 0, "waiting": 1}
    assert (view.cost, view.tokens, view.launches, view.holder, view.waiting) == (1.0, 44, 1, None, [[2, 2]])
    assert view.as_json()["folder"] == (str(store.folder) if store.folder is not None else None)

    assert states(store) == [
        (0, "good 1", "done"),
        (1, "bad 2", "failed"),
        (2, "ask 3", "waiting"),
        (3, "bad 4", "failed"),
    ]
    with open_listing(store) as listing:
        asked = listing.find(index=2)
        assert asked is not None and asked.question is not None and asked.question.details == {"draft": "ASK 3"}
        assert [(step.name, step.output) for step in listing.steps(asked)] == [("draft", "ASK 3")]
        assert listing.is_unfinished and listing.usage.cost == 1.0 and listing.note == ""
    (cause,) = group_failures(read_items(store))
    assert (cause.shape, cause.count, cause.keys) == ("Fail: row … is short", 2, ("bad 2", "bad 4"))

    (question,) = desk.questions(known(store))
    assert (question.key, question.question.text, question.is_answered) == ("ask 3", "Send it?", False)
    desk.answer(known(store), Selection(items=["ask 3"]), yes=True, details={"draft": "as edited"}, by="ada")
    desk.redo(known(store), Selection(items=["good 1"]), by="ada")
    assert next(iter(desk.questions(known(store)))).is_answered

    agent.ran, agent.is_strict = [], False
    plans: list[Event] = []
    second = go(agent, store, on_event=plans.append)
    assert second.ok and second.run_id == first.run_id
    assert isinstance(plans[0], Planned) and plans[0].resumed and plans[0].launch == 2
    assert sorted(agent.ran) == ["ask 3", "bad 2", "bad 4", "good 1"]
    assert [line["output"] for line in second.results()] == [
        "GOOD 1",
        "BAD 2",
        {"sent": "as edited", "by": "ada"},
        "BAD 4",
    ]
    assert view_job(store, "triage").status == "finished"
    assert {item.gen for item in read_items(store) if item.key == "good 1"} == {1}
    assert store.inbox() == []


def test_what_people_post_about_a_finished_run_opens_it_again(store: Store) -> None:
    agent = Triage()
    first = go(agent, store, items=["good 1", "good 2", "good 3"])
    assert first.ok
    editable = desk.to_edit(known(store), Selection(indexes=[0]))
    assert editable.value == "GOOD 1"
    assert not desk.edit(editable, "by hand").is_unfinished
    desk.redo(known(store), Selection(items=["good 3"]))
    agent.ran = []
    second = go(agent, store, items=["good 1", "good 2", "good 3"])
    assert second.ok and second.run_id != first.run_id and agent.ran == ["good 3"]
    assert [line["output"] for line in second.results()] == ["by hand", "GOOD 2", "GOOD 3"]
    (edited,) = [item for item in read_items(store) if item.edited is not None]
    assert edited.key == "good 1"


def test_skipping_what_is_left_completes_the_run(store: Store) -> None:
    agent = Triage()
    assert go(agent, store, stop_after_failures=0).exit_code == 1
    posting = desk.skip(known(store), Selection(items=["bad 2", "ask 3", "bad 4"]), reason="not needed")
    assert posting.completes and posting.is_unfinished
    agent.ran = []
    second = go(agent, store)
    assert second.ok and agent.ran == []
    assert dict(second.counts) == {"pending": 0, "done": 1, "failed": 0, "skipped": 3, "waiting": 0}
    assert [item.cause for item in read_items(store, states={"skipped"})] == ["not needed"] * 3


def test_a_launch_that_is_cut_short_goes_on_with_the_same_store(store: Store) -> None:
    agent = Triage()
    agent.is_strict = False
    items = [f"good {n}" for n in range(6)]
    assert go(agent, store, items=items, limit=2).exit_code == 4
    assert view_job(store, "triage").status == "interrupted"
    assert go(agent, store, items=items).ok
    assert agent.ran == items


def test_flags_are_kept_with_the_run_in_its_own_store(store: Store, here: Path) -> None:
    async def shout(item: agentrun.Item) -> str:
        return item.text.upper()

    def run(where: Store | None, **values: Any) -> Planned:
        plans: list[Event] = []
        agentrun.run(shout, items=["a", "b", "c"], store=where, on_event=plans.append, **values)
        assert isinstance(plans[0], Planned)
        return plans[0]

    run(store, limit=1, concurrency=3, output="kept.jsonl")
    # An unfinished run of the same name elsewhere is another one.
    run(None, limit=1, concurrency=2, output="another.jsonl")
    again = run(store)
    assert (again.job.concurrency, again.job.output, again.plan.kept) == (3, "kept.jsonl", 1)
    assert run(None).job.output == "another.jsonl"


def test_the_folder_of_an_item_is_still_there_in_the_next_launch(store: Store) -> None:
    launches: list[list[str]] = []

    async def agent(item: agentrun.Item, ctx: agentrun.Context) -> str:
        notes = ctx.dir / "notes.txt"
        found = notes.read_text() if notes.exists() else ""
        launches[-1].append(f"{item.text}: {found}")
        notes.write_text(f"seen by launch {len(launches)}")
        if item.text == "asks" and not await ctx.ask("Go on?"):
            raise agentrun.Skip("no")
        if item.text == "fails" and len(launches) == 1:
            raise agentrun.Fail("not yet")
        return found

    launches.append([])
    assert go(agent, store, items=["asks", "fails", "done"]).exit_code == 1
    assert launches == [["asks: ", "fails: ", "done: "]]
    desk.answer_all(known(store), yes=True)
    launches.append([])
    summary = go(agent, store, items=["asks", "fails", "done"])
    assert summary.ok and sorted(launches[1]) == ["asks: seen by launch 1", "fails: seen by launch 1"]
    assert [line["output"] for line in summary.results()] == ["seen by launch 1", "seen by launch 1", ""]


def test_on_the_memory_store_nothing_is_written_but_the_results(here: Path) -> None:
    store = MemoryStore()
    go(Triage(), store, stop_after_failures=0)
    list(desk.questions(known(store)))
    desk.answer_all(known(store), yes=True)
    desk.skip(known(store), Selection(failed=True))
    assert go(Triage(), store).ok
    view_job(store, "triage")
    assert [path.name for path in here.iterdir()] == ["triage.results.jsonl"]


def test_the_scratch_folder_of_a_memory_store_goes_with_the_store() -> None:
    folders: list[Path] = []

    async def agent(item: agentrun.Item, ctx: agentrun.Context) -> str:
        folders.append(ctx.dir)
        raise agentrun.Fail("no")

    store = MemoryStore()
    assert go(agent, store, items=["a"]).exit_code == 1
    assert folders[0].is_dir() and go(agent, store, items=["a"]).exit_code == 1
    assert folders[0] == folders[1] and folders[0].is_dir()
    del store
    import gc

    gc.collect()
    assert not folders[0].exists()


def test_what_a_launch_did_is_in_the_history(store: Store) -> None:
    go(Triage(), store, items=["good 1", "good 2"], limit=1)
    go(Triage(), store, items=["good 1", "good 2"])
    with store.reader() as reader:
        events = [event.event for event in reader.history() if event.event != "checkpoint"]
    assert events == ["launch", "stop", "restore", "stop"]
