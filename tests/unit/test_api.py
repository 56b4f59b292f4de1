"""`agentrun.run` and `arun`, as scripts and notebooks call them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import agentrun
from agentrun.events import Began, Ended, Event, Planned, Waiting
from agentrun.executors import loop as inloop
from agentrun.people import desk
from agentrun.views.finding import open_known
from waiting import eventually


async def shout(item: agentrun.Item) -> str:
    return item.text.upper()


async def picky(item: agentrun.Item) -> str:
    if item.text.startswith("bad"):
        raise agentrun.Fail(f"will not: {item.text}")
    if item.text.startswith("skip"):
        raise agentrun.Skip("on purpose")
    return item.text


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTRUN_STATE_DIR", raising=False)


# ---- the summary


def test_a_run_returns_a_summary_and_writes_the_same_files_as_the_command(tmp_path: Path) -> None:
    summary = agentrun.run(shout, items=["a", "b", "a"], name="shouting", output="out.jsonl", concurrency=2)
    assert summary.ok and summary.exit_code == 0 and summary.total == 3
    assert summary.counts["done"] == 3 and summary.job == "shouting"
    assert summary.output == tmp_path / "out.jsonl"
    assert summary.check() is summary
    assert list(summary.results()) == [
        {"index": 0, "key": "a", "output": "A"},
        {"index": 1, "key": "b", "output": "B"},
        {"index": 2, "key": "a~2", "output": "A"},
    ]
    assert list(summary.failures()) == []
    folder = tmp_path / ".agentrun" / "shouting"
    assert not (folder / "state.json").exists()
    assert (folder / "job.json").exists() and (folder / "runs" / f"{summary.run_id}.json").exists()


@pytest.mark.parametrize("output", ["out.csv", "out/{key}.txt"])
def test_the_results_can_be_read_whatever_the_form_of_the_output(tmp_path: Path, output: str) -> None:
    for _ in range(2):
        summary = agentrun.run(shout, items=["a", "b"], name="shouting", output=output)
        assert summary.ok and summary.output in (tmp_path / "out.csv", tmp_path / "out")
        assert list(summary.results()) == [
            {"index": 0, "key": "a", "output": "A"},
            {"index": 1, "key": "b", "output": "B"},
        ]


def test_the_name_and_the_output_have_defaults(tmp_path: Path) -> None:
    summary = agentrun.run(shout, items=["a"])
    assert summary.job == "shout" and summary.output == tmp_path / "shout.results.jsonl"


def test_failures_have_their_cause_and_check_raises(tmp_path: Path) -> None:
    summary = agentrun.run(picky, items=["a", "bad 1", "skip me", "bad 2"], retries=0)
    assert not summary.ok and summary.exit_code == 1
    assert dict(summary.counts) == {"pending": 0, "done": 1, "failed": 2, "skipped": 1, "waiting": 0}
    assert [(one.key, one.cause, one.attempts) for one in summary.failures()] == [
        ("bad 1", "Fail: will not: bad 1", 1),
        ("bad 2", "Fail: will not: bad 2", 1),
    ]
    assert list(summary.results()) == [{"index": 0, "key": "a", "output": "a"}]
    with pytest.raises(agentrun.RunError, match="picky: 2 of 4 items failed") as caught:
        summary.check()
    assert caught.value.exit_code == 1
    assert caught.value.summary is summary
    assert (tmp_path / "picky.results.partial.jsonl").exists()


def test_allowed_failures_complete_and_can_still_be_read() -> None:
    for number in range(5):  # also when runs follow each other within a second
        items = ["a", f"bad {number}"]
        summary = agentrun.run(picky, items=items, allow_failures=1, retries=0, name="again").check()
        assert [one.key for one in summary.failures()] == [f"bad {number}"]


def test_an_unfinished_run_is_resumed_and_a_finished_one_is_kept() -> None:
    first = agentrun.run(picky, items=["a", "b", "c"], limit=2)
    assert first.exit_code == 4
    plans: list[Event] = []
    second = agentrun.run(picky, items=["a", "b", "c"], on_event=plans.append)
    assert second.ok and second.run_id == first.run_id
    assert isinstance(plans[0], Planned) and plans[0].plan.run == 1 and plans[0].resumed
    assert any(isinstance(event, Began) for event in plans)
    third = agentrun.run(picky, items=["a", "b", "c"])
    assert third.ok and third.run_id == first.run_id and third.details["nothing_to_do"]
    assert [line["key"] for line in third.results()] == ["a", "b", "c"]


def test_fresh_begins_anew_with_the_items_given_now() -> None:
    first = agentrun.run(picky, items=["a", "b", "c"], limit=1)
    second = agentrun.run(picky, items=["x", "y"], fresh=True)
    assert second.ok and second.run_id != first.run_id
    assert [line["key"] for line in second.results()] == ["x", "y"]


def test_results_of_an_older_agent_are_kept_with_a_warning_and_run_again_on_request() -> None:
    agentrun.run(picky, items=["a", "b"], version="1").check()
    for _ in range(2):
        with pytest.warns(
            agentrun.StaleResults, match=r'picky: 2 results are by an older .* rerun="old-agent"'
        ) as seen:
            kept = agentrun.run(picky, items=["a", "b"], version="2")
        assert kept.ok and kept.details["kept_old_agent"] == 2
        assert seen[0].filename == __file__
    again = agentrun.run(picky, items=["a", "b"], version="2", rerun="old-agent")
    assert again.ok and (again.details["ran"], again.details["kept_old_agent"]) == (2, 0)


def test_arun_warns_of_results_of_an_older_agent_too() -> None:
    asyncio.run(agentrun.arun(picky, items=["a"], version="1"))
    with pytest.warns(agentrun.StaleResults, match="1 result is by an older version"):
        asyncio.run(agentrun.arun(picky, items=["a"], version="2"))


def test_items_are_dicts_texts_or_paths(tmp_path: Path) -> None:
    (tmp_path / "doc.txt").write_text("in a file")
    seen: dict[str, Any] = {}

    async def look(item: agentrun.Item, ctx: agentrun.Context) -> None:
        seen[item.key] = (item.data, item.path, item.index)

    items: Iterator[Any] = iter(["doc.txt", Path("doc.txt")])
    agentrun.run(look, items=items, name="look").check()
    # A text is never a path.
    assert seen == {"doc.txt": (None, None, 0), "doc.txt~2": (None, tmp_path / "doc.txt", 1)}
    agentrun.run(look, items=[{"id": 7}], key="id", name="dicts").check()
    assert seen["7"] == ({"id": 7}, None, 0)


def test_params_carry_and_keys_are_in_the_context() -> None:
    async def agent(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        ctx.carry = (ctx.carry or 0) + 1
        return [ctx.params["who"], ctx.carry, ctx.attempt, len(ctx.key("send"))]

    summary = agentrun.run(agent, items=["a", "b"], name="carry", params={"who": "me"}, carry=True).check()
    assert [line["output"] for line in summary.results()] == [["me", 1, 1, 36], ["me", 2, 1, 36]]


def test_what_is_wrong_with_the_call_is_told_at_once() -> None:
    with pytest.raises(TypeError, match="unexpected argument 'concurency'"):
        agentrun.run(shout, items=["a"], concurency=3)
    with pytest.raises(TypeError, match="items is one text"):
        agentrun.run(shout, items="abc")
    with pytest.raises(agentrun.ItemsError, match="items is empty"):
        agentrun.run(shout, items=[])
    with pytest.raises(agentrun.JobError, match=r"^agentrun.run\(\): run.concurrency is 0"):
        agentrun.run(shout, items=["a"], concurrency=0)
    with pytest.raises(agentrun.ItemsError, match=r"\[1\]"):
        agentrun.run(shout, items=["a", {"x": float("nan")}])


def test_an_output_that_json_cannot_hold_fails_its_item_alone() -> None:
    values: dict[str, Any] = {"nan": float("nan"), "big": 2**70, "set": {1}, "surrogate": "\udc80", "ok": 1}

    async def agent(item: agentrun.Item) -> Any:
        return {"value": values[item.text]}

    summary = agentrun.run(agent, items=list(values), name="hold", retries=0, stop_after_failures=0)
    assert [line["key"] for line in summary.results()] == ["ok"]
    causes = [one.cause for one in summary.failures()]
    assert len(causes) == 4 and all("output.value" in cause for cause in causes)


def test_an_error_whose_text_is_not_unicode_fails_its_item_alone() -> None:
    async def agent(item: agentrun.Item) -> str:
        raise agentrun.Fail("\udcff\ud800")

    summary = agentrun.run(agent, items=["a"], name="surrogates")
    assert [one.cause for one in summary.failures()] == ["Fail: \\udcff\\ud800"]


# ---- loops and threads


def test_arun_runs_on_the_running_loop() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def agent(item: agentrun.Item) -> str:
        loops.append(asyncio.get_running_loop())
        return item.text

    async def main() -> agentrun.Summary:
        summary = await agentrun.arun(agent, items=["a", "b"], name="arun")
        assert set(loops) == {asyncio.get_running_loop()}
        return summary

    assert asyncio.run(main()).ok


def test_waiting_for_the_lock_does_not_hold_up_the_callers_loop() -> None:
    async def main() -> int:
        store = agentrun.MemoryStore()
        lease = store.lock()
        waiting = asyncio.ensure_future(agentrun.arun(shout, items=["a"], name="locked", store=store))
        turns = 0
        while turns < 10:
            # Were the wait a blocking one, this would go on only when it is over, with an error.
            await asyncio.sleep(0.01)
            assert not waiting.done()
            turns += 1
        lease.release()
        return (await waiting).exit_code

    assert asyncio.run(main()) == 0


def test_the_agents_variables_do_not_stay_in_the_callers_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("AGENT_CANARY=sings\n")

    async def listen(item: agentrun.Item) -> str | None:
        return os.environ.get("AGENT_CANARY")

    summary = agentrun.run(listen, items=["a"], name="canary", env_file=str(tmp_path / ".env"))
    assert [line["output"] for line in summary.results()] == ["sings"]
    assert "AGENT_CANARY" not in os.environ


def test_run_works_inside_a_running_loop_as_in_a_notebook() -> None:
    async def main() -> agentrun.Summary:
        return agentrun.run(shout, items=["a", "b"])

    assert [line["output"] for line in asyncio.run(main()).results()] == ["A", "B"]


def test_what_goes_wrong_inside_a_running_loop_is_raised_there() -> None:
    async def main() -> None:
        with pytest.raises(agentrun.ItemsError):
            agentrun.run(shout, items=[])

    asyncio.run(main())


def test_run_works_in_another_thread() -> None:
    found: list[agentrun.Summary] = []
    thread = threading.Thread(target=lambda: found.append(agentrun.run(shout, items=["a"])))
    thread.start()
    thread.join()
    assert found[0].ok


def test_cancelling_arun_stops_the_launch_and_it_can_be_resumed() -> None:
    async def main() -> None:
        second = asyncio.Event()

        async def agent(item: agentrun.Item) -> str:
            if item.text == "b":
                second.set()
                await asyncio.Event().wait()
            return item.text

        task = asyncio.ensure_future(agentrun.arun(agent, items=["a", "b"], name="cancelled", version="1"))
        await second.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    state = orjson.loads(Path(".agentrun/cancelled/state.json").read_bytes())
    assert state["counts"]["done"] == 1 and state["running"] == []


def test_a_function_without_a_file_runs_in_a_thread_and_shares_memory() -> None:
    """As in a notebook: no worker process could import it."""
    namespace: dict[str, Any] = {"seen": []}
    exec("def agent(item):\n    seen.append(item.key)\n    return item.text", namespace)
    summary = agentrun.run(namespace["agent"], items=["a", "b"], name="notebook")
    assert summary.ok and namespace["seen"] == ["a", "b"]


def test_a_user_can_test_with_a_store_in_memory(tmp_path: Path) -> None:
    store = agentrun.MemoryStore()
    first = agentrun.run(picky, items=["a", "bad", "c"], store=store, limit=2, retries=0)
    assert first.exit_code == 4
    assert [one.key for one in first.failures()] == ["bad"]
    assert [line["key"] for line in first.results()] == ["a"]
    second = agentrun.run(picky, items=["a", "bad", "c"], store=store, allow_failures=1, retries=0)
    assert second.ok and second.run_id == first.run_id
    assert [line["key"] for line in second.results()] == ["a", "c"]
    assert [one.key for one in second.failures()] == ["bad"]
    assert len(store.summaries()) == 1
    assert not (tmp_path / ".agentrun").exists()


# ---- scripts

SYNC = """
    import os, sys, time, agentrun

    def agent(item):
        with open("ran.log", "a") as log:
            log.write(item.text + "\\n")
        if item.text == "5" and not os.path.exists("go"):
            print("waiting", file=sys.__stderr__, flush=True)
            while not os.path.exists("go"):
                time.sleep(0.01)
        return {"of": item.text}

    {agent}
    summary = agentrun.run(AGENT, items=[str(n) for n in range(10)], name="script", output="out.jsonl"{more})
    print(summary.exit_code, summary.counts["done"], flush=True)
"""
AGENTS = {
    "sync": "AGENT = agent",
    "async": "async def AGENT(item): return agent(item)",
    "class": """
    class AGENT:
        def __init__(self): self.count = 0
        def __call__(self, item):
            self.count += 1
            return agent(item)
    """,
}


class Script:
    """A Python script of a user's, in a folder of its own."""

    def __init__(self, folder: Path, kind: str, more: str = "") -> None:
        source = textwrap.dedent(SYNC).replace("{agent}", textwrap.dedent(AGENTS[kind]).strip())
        (folder / "script.py").write_text(source.replace("{more}", more))
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={key: value for key, value in os.environ.items() if key != "AGENTRUN_STATE_DIR"},
        )
        self.started.append(process)
        return process

    def ran(self) -> list[str]:
        path = self.folder / "ran.log"
        return path.read_text().split() if path.exists() else []

    def done(self) -> int:
        try:
            state = orjson.loads((self.folder / ".agentrun" / "script" / "state.json").read_bytes())
        except FileNotFoundError:
            return 0
        return int(state["counts"]["done"])

    def finish(self) -> None:
        (self.folder / "go").touch()
        process = self.start()
        output, errors = process.communicate()
        assert (process.returncode, output) == (0, "0 10\n"), errors

    def results(self) -> list[Any]:
        return [orjson.loads(line) for line in (self.folder / "out.jsonl").read_bytes().splitlines()]


@pytest.fixture
def make_script(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    made: list[Script] = []

    def make(kind: str, more: str = "") -> Script:
        made.append(Script(tmp_path, kind, more))
        return made[-1]

    yield make
    for script in made:
        for process in script.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


EXPECTED = [{"index": n, "key": str(n), "output": {"of": str(n)}} for n in range(10)]


@pytest.mark.parametrize("kind", ["sync", "class"])
def test_a_script_that_was_killed_and_is_run_again_pays_only_for_what_is_not_finished(
    make_script: Callable[..., Script], kind: str
) -> None:
    """Without `if __name__ == "__main__"`: the worker process that imports the agent does not run the script."""
    script = make_script(kind)
    process = script.start()
    eventually(lambda: script.done() == 5 and "5" in script.ran(), "the sixth item begins", alive=process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    script.finish()
    assert script.results() == EXPECTED
    assert script.ran() == ["0", "1", "2", "3", "4", "5", "5", "6", "7", "8", "9"]


def test_an_async_script_that_was_killed_too(make_script: Callable[..., Script]) -> None:
    script = make_script("async")
    process = script.start()
    eventually(lambda: script.done() == 5 and "5" in script.ran(), "the sixth item begins", alive=process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    script.finish()
    assert script.results() == EXPECTED
    assert script.ran() == ["0", "1", "2", "3", "4", "5", "5", "6", "7", "8", "9"]


def test_ctrl_c_is_a_keyboard_interrupt_after_a_clean_checkpoint(make_script: Callable[..., Script]) -> None:
    script = make_script("sync", more=", grace=0.1")
    process = script.start()
    eventually(lambda: script.done() == 5 and "5" in script.ran(), "the sixth item begins", alive=process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == -signal.SIGINT and output == ""
    assert "KeyboardInterrupt" in errors
    state = orjson.loads((script.folder / ".agentrun" / "script" / "state.json").read_bytes())
    assert state["running"] == [] and state["counts"]["done"] == 5 and state["counts"]["failed"] == 0
    script.finish()
    assert script.results() == EXPECTED


def test_sigterm_ends_the_script_by_that_signal_after_a_clean_checkpoint(make_script: Callable[..., Script]) -> None:
    script = make_script("sync", more=", grace=0.1")
    process = script.start()
    eventually(lambda: script.done() == 5 and "5" in script.ran(), "the sixth item begins", alive=process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == -signal.SIGTERM
    assert script.done() == 5
    script.finish()
    assert script.results() == EXPECTED


def test_agents_that_do_not_end_or_end_themselves_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inloop, "CANCEL_SECONDS", 0.2)
    began: list[str] = []

    async def agent(item: agentrun.Item) -> str:
        began.append(item.key)
        if item.key == "cancels itself":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)
        until = time.monotonic() + 1.5
        while item.key == "never ends" and time.monotonic() < until:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return item.key

    items = ["never ends", "cancels itself", *"abcdef"]
    summary = agentrun.run(agent, items=items, concurrency=3, timeout="100ms", retries=0, stop_after_failures=0)
    assert summary.counts == {"pending": 0, "done": 6, "failed": 2, "skipped": 0, "waiting": 0}
    causes = {item.key: item.cause for item in summary.failures()}
    assert "its slot stays taken" in causes["never ends"] and "CancelledError" in causes["cancels itself"]
    assert sorted(began) == sorted(items), "each was begun once"


# ---- how it ends


def test_the_last_event_says_how_the_launch_ended_however_it_did() -> None:
    events: list[Event] = []
    store = agentrun.MemoryStore()
    agentrun.run(picky, items=["a", "bad"], store=store, on_event=events.append)
    assert isinstance(events[-1], Ended) and events[-1].exit_code == 1 and events[-1].reason
    events.clear()
    lease = store.lock()
    with pytest.raises(agentrun.AgentrunError):
        agentrun.run(picky, items=["a", "bad"], store=store, on_event=events.append)
    lease.release()
    assert [type(one) for one in events] == [Waiting, Ended]
    assert isinstance(events[1], Ended) and events[1].exit_code == 75


def test_an_agent_that_cannot_be_loaded_leaves_nothing_of_its_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET_OF_THE_AGENT=1\n")
    (tmp_path / "bad.py").write_text("raise ValueError('no')\n")
    with pytest.raises(agentrun.AgentrunError):
        agentrun.run("bad.py:agent", items=["a"], env_file=".env")
    assert "SECRET_OF_THE_AGENT" not in os.environ


@pytest.mark.timeout(60)
def test_a_message_that_we_cannot_process_ends_the_launch_and_hangs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    async def spends(item: agentrun.Item, ctx: agentrun.Context) -> str:
        ctx.usage(cost=1)
        return item.text

    monkeypatch.setattr("agentrun.launch.channel.RunnerEnd._charge", fail)
    with pytest.raises(ZeroDivisionError):
        agentrun.run(spends, items=["a"], store=agentrun.MemoryStore())


# ---- seeing what goes on


def in_flight_now(events: list[Event]) -> dict[str, str]:
    """What each item in flight is doing."""
    progress = next(event.progress for event in events if isinstance(event, Began))
    return {work.item.key: work.doing for work in progress.oldest}


def test_a_watcher_sees_what_is_in_flight_and_its_step_or_text() -> None:
    events: list[Event] = []
    seen: dict[str, dict[str, str]] = {}

    async def agent(item: agentrun.Item, ctx: agentrun.Context) -> None:
        async def look() -> None:
            seen["in a step"] = in_flight_now(events)

        seen["at first"] = in_flight_now(events)
        await ctx.step("search", look)
        seen["after the step"] = in_flight_now(events)
        ctx.progress("page 7")
        await asyncio.sleep(0)
        seen["with a text"] = in_flight_now(events)

    agentrun.run(agent, items=["a"], name="seen", on_event=events.append).check()
    assert seen == {
        "at first": {"a": ""},
        "in a step": {"a": "search"},
        "after the step": {"a": ""},
        "with a text": {"a": "page 7"},
    }
    assert in_flight_now(events) == {}


def test_a_step_that_is_remembered_is_not_what_an_item_is_doing() -> None:
    events: list[Event] = []
    doing: list[dict[str, str]] = []

    async def agent(item: agentrun.Item, ctx: agentrun.Context) -> None:
        await ctx.step("search", lambda: 1)
        doing.append(in_flight_now(events))
        if ctx.attempt == 1:
            raise agentrun.Retry(after=0)

    agentrun.run(agent, items=["a"], name="again", on_event=events.append).check()
    assert doing == [{"a": ""}, {"a": ""}]


async def unpriced(item: agentrun.Item, ctx: agentrun.Context) -> str:
    ctx.usage(model="my-model", input_tokens=1_000_000, output_tokens=0)
    return item.text


def test_prices_and_a_budget_that_is_removed() -> None:
    given: dict[str, Any] = {"items": ["a", "b", "c"], "name": "priced"}
    stopped = agentrun.run(unpriced, budget=1.0, **given)
    assert stopped.exit_code == 4 and 'no price is known for the model "my-model"' in stopped.reason
    assert 'prices={"my-model": {"input": …, "output": …}}' in str(stopped)
    # None is not given: the budget of the launch before holds.
    again = agentrun.run(unpriced, budget=None, limit=1, **given)
    assert again.exit_code == 4 and "no price" in again.reason
    prices = {"my-model": {"input": 0.25, "output": 2.0}}
    summary = agentrun.run(unpriced, budget="none", prices=prices, **given).check()
    assert summary.details["usage"]["cost"] == pytest.approx(0.25)


def test_fresh_names_what_people_did_before_it_gives_that_up(tmp_path: Path) -> None:
    agentrun.run(shout, items=["a", "b"]).check()
    agentrun.run(shout, items=["a", "b"], fresh=True).check()
    desk.redo(open_known("shout", tmp_path), desk.Selection(items=["a"]))
    with pytest.warns(UserWarning, match="shout: fresh=True gives up 1 posted redo") as caught:
        agentrun.run(shout, items=["a", "b"], fresh=True).check()
    assert caught[0].filename == __file__


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **values: Any) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    agentrun.run(picky, items=["a", "b", "bad 1"], retries=0, fresh=True, **values)
    return stream.getvalue()


def test_a_script_shows_progress_on_a_terminal_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO()) == ""
    assert shown(monkeypatch, Tty(), progress=False) == ""
    seen = shown(monkeypatch, Tty())
    assert "─" in seen and "bad 1: Fail: will not: bad 1" in seen
    assert re.search(r"picky: 2 of 3 done, 1 failed.* in .*s\n$", seen)
    lines = shown(monkeypatch, io.StringIO(), progress=True)
    assert "failed  bad 1: Fail: will not: bad 1\n" in lines and "\x1b" not in lines


def test_without_the_command_line_there_are_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] in ("agentrun_cli", "rich", "typer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "agentrun_cli", None)
    lines = shown(monkeypatch, Tty()).splitlines()
    assert lines[0].startswith("picky: 3 items, 3 to run → ")
    assert "picky: failed: bad 1: Fail: will not: bad 1" in lines
    assert re.fullmatch(r"picky: 2 of 3 done, 1 failed, after .*s", lines[-1])


def test_a_notebook_is_known_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from agentrun.watching import is_notebook

    assert not is_notebook()
    for shell, expected in ((None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert is_notebook() is expected
    lines = shown(monkeypatch, io.StringIO())
    assert re.search(r"\rpicky: 2 of 3 done, 1 failed.*s *\n$", lines) and "\x1b" not in lines


def test_a_summary_says_where_things_are_and_what_failed(tmp_path: Path) -> None:
    summary = agentrun.run(picky, items=["a", "bad 1", "skip me", "bad 2"], retries=0)
    assert summary.output is None and summary.partial == tmp_path / "picky.results.partial.jsonl"
    (cause,) = summary.causes()
    assert cause.count == 2 and cause.example == "Fail: will not: bad 1"
    assert str(summary).splitlines() == [
        "picky: 1 of 4 done, 2 failed, 1 skipped",
        f"  so far:    {tmp_path / 'picky.results.partial.jsonl'}",
        "  failed:    2 with Fail: will not: bad 1 (bad 1, bad 2)",
        "  to resume: run it again; finished items are not run again",
    ]
    assert repr(summary) == "<Summary of picky: 1 of 4 done, 2 failed, 1 skipped, exit code 1>"
    assert "\x1b" not in str(agentrun.run(picky, items=["bad \x1b[2J"], name="hostile"))
    done = agentrun.run(shout, items=["a"])
    assert str(done) == f"shout: 1 of 1 done\n  results:   {done.output}"
    assert done.causes() == [] and done.partial is None


def test_a_summary_from_another_process_can_still_be_printed() -> None:
    import pickle

    summary = pickle.loads(pickle.dumps(agentrun.run(picky, items=["a", "bad 1"], retries=0)))
    assert str(summary).startswith("picky: 1 of 2 done, 1 failed\n")
