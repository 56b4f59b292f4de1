"""Agents of the OpenAI Agents SDK: what is remembered of a run, what it reports and what it returns."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelProvider, ModelSettings, RunConfig, RunHooks
from agents.realtime import RealtimeAgent
from agents.retry import ModelRetrySettings, retry_policies
from agents.tracing import Span, Trace, TracingProcessor, set_trace_processors, set_tracing_disabled
from pydantic import BaseModel

import agentrun
from agentrun.frameworks import openai_agents
from unit.frameworks.openai_bench import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Bench,
    Script,
    call,
    killed_at_every_commit,
    looking,
    say,
)

CALLS = ["model support#0", "look c1", "model support#1", "look c2", "look c3", "model support#2"]


def looks(made: list[str], folder: Path, **agent: Any) -> Bench:
    """Three turns; in the second, the same tool twice side by side with the same arguments."""
    turns = [call("look", "c1", what="a")], [call("look", "c2", what="b"), call("look", "c3", what="b")], say("done")
    model = Script(made, *turns)
    return Bench(folder, Agent(name="Support", model=model, tools=[looking(made)], **agent))


# ---- what is remembered


@pytest.mark.parametrize("landed", [False, True])
def test_no_finished_call_is_made_again_wherever_the_launch_dies(landed: bool, tmp_path: Path) -> None:
    again = killed_at_every_commit(lambda made: looks(made, tmp_path), landed=landed, beside=1)
    # A call that was not on disk yet is made again: that is how we know that it died there.
    assert set(again) <= {"look c2", "look c3"} if landed else set(again) == set(CALLS)


def test_steps_are_named_by_agent_and_call_and_have_views(tmp_path: Path) -> None:
    bench = looks([], tmp_path)
    assert bench.go().exit_code == 0
    assert bench.views == {
        "model Support": 'look(what="a")',
        "look c1": "saw a",
        "model Support#1": 'look(what="b")\nlook(what="b")',
        "look c2": "saw b",
        "look c3": "saw b",
        "model Support#2": "done",
    }


def test_a_retry_makes_no_finished_call_again_and_all_usage_is_reported_once(tmp_path: Path) -> None:
    made: list[str] = []
    bench = looks(made, tmp_path)
    failed: set[int] = set()

    def fail_once(turn: int) -> None:
        if turn not in failed:
            failed.add(turn)
            raise ConnectionError("no answer")

    bench.agent.model.before = fail_once
    summary = bench.go(retries=3)
    assert summary.exit_code == 0, bench.causes
    assert Counter(made) == Counter(CALLS)
    usage = summary.details["usage"]
    assert (usage["requests"], usage["input_tokens"], usage["output_tokens"]) == (
        3,
        3 * INPUT_TOKENS,
        3 * OUTPUT_TOKENS,
    )


def test_a_response_that_the_sdk_asked_for_again_is_found_by_the_next_attempt(tmp_path: Path) -> None:
    made: list[str] = []
    retry = ModelRetrySettings(max_retries=2, policy=retry_policies.network_error(), backoff={"initial_delay": 0.0})
    bench = looks(made, tmp_path, model_settings=ModelSettings(retry=retry))
    failed: Counter[int] = Counter()

    def fail(turn: int) -> None:
        failed[turn] += 1
        if failed[turn] == 1:
            raise ConnectionError("connection error")
        if turn == 2 and failed[turn] == 2:
            raise RuntimeError("then something that is not retried here")

    bench.agent.model.before = fail
    assert bench.go(retries=1).exit_code == 0, bench.causes
    assert Counter(made) == Counter(CALLS)
    assert failed == {0: 2, 1: 2, 2: 3}


def test_the_users_objects_stay_as_they_are(tmp_path: Path) -> None:
    bench = looks([], tmp_path, input_guardrails=[], handoffs=[])
    other = Agent(name="Other", handoffs=[bench.agent])
    bench.agent.handoffs.append(other)
    before = [
        (agent, type(agent), dict(vars(agent)), list(agent.tools), list(agent.handoffs))
        for agent in (bench.agent, other)
    ]
    fields = [dict(vars(tool)) for tool in bench.agent.tools]
    assert bench.go().exit_code == 0
    for agent, cls, attributes, tools, handoffs in before:
        assert type(agent) is cls
        assert vars(agent) == attributes
        assert all(one is two for one, two in zip(agent.tools, tools, strict=True))
        assert all(one is two for one, two in zip(agent.handoffs, handoffs, strict=True))
    assert [dict(vars(tool)) for tool in bench.agent.tools] == fields


def test_nothing_is_kept_of_an_attempt_that_is_over(tmp_path: Path) -> None:
    bench = looks([], tmp_path)
    attempts: list[weakref.ref[agentrun.Context]] = []
    bench.agent.model.before = lambda _: attempts.append(weakref.ref(agentrun.current()))
    assert bench.go().exit_code == 0
    gc.collect()
    assert attempts and not any(attempt() for attempt in attempts)


def test_hooks_see_an_agent_of_the_same_class_and_name(tmp_path: Path) -> None:
    class Mine(Agent[Any]):
        pass

    seen: list[tuple[bool, str, str]] = []

    class Hooks(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            seen.append((isinstance(agent, Mine), type(agent).__name__, agent.name))

    mine = Mine(name="Support", model=Script([], say("hello")))

    async def answer(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        return (await openai_agents.run(mine, item.text, ctx=ctx, hooks=Hooks())).final_output

    bench = Bench(tmp_path, answer)
    assert bench.go().exit_code == 0, bench.causes
    assert (seen, bench.outputs) == ([(True, "Mine", "Support")], ["hello"])


# ---- models


class Provider(ModelProvider):
    def __init__(self, model: Model) -> None:
        self.model, self.asked = model, list[str | None]()

    def get_model(self, model_name: str | None) -> Model:
        self.asked.append(model_name)
        return self.model


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("by", ["provider", "name", "model"])
def test_models_of_the_run_configuration_are_remembered(by: str, landed: bool, tmp_path: Path) -> None:
    def make(made: list[str]) -> Bench:
        model = Script(made, [call("look", "c1", what="a")], say("done"))
        other = Script(made, say("of the agent itself"), name="other")
        agent = Agent(name="Support", model="gpt-x" if by == "provider" else other, tools=[looking(made)])
        provider = Provider(model)
        configs = {
            "provider": RunConfig(model_provider=provider),
            "name": RunConfig(model_provider=provider, model="gpt-y"),
            "model": RunConfig(model=model),
        }

        async def answer(item: agentrun.Item, ctx: agentrun.Context) -> Any:
            result = await openai_agents.run(agent, item.text, ctx=ctx, run_config=configs[by])
            assert configs[by].model_provider is provider or by == "model"
            assert provider.asked[:1] == {"provider": ["gpt-x"], "name": ["gpt-y"], "model": []}[by]
            return result.final_output

        return Bench(tmp_path, answer)

    again = killed_at_every_commit(make, landed=landed)
    assert bool(again) is not landed


def test_a_missing_key_stops_the_run_and_fails_no_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    bench = Bench(tmp_path, Agent(name="Support", model="gpt-x"), items=["x", "y"])
    summary = bench.go(retries=3)
    assert summary.exit_code == 4
    assert "OPENAI_API_KEY" in summary.reason
    assert summary.counts["failed"] == 0


# ---- several runs


@pytest.mark.parametrize("landed", [False, True])
def test_runs_side_by_side_in_one_attempt_do_not_mix(landed: bool, tmp_path: Path) -> None:
    def make(made: list[str]) -> Bench:
        first = Script(made, [call("look", "a1", what="a")], say("one"), name="one")
        second = Script(made, [call("look", "b1", what="b")], say("two"), name="two")

        async def answer(item: agentrun.Item, ctx: agentrun.Context) -> Any:
            agents = [Agent(name="Same", model=model, tools=[looking(made)]) for model in (first, second)]
            first.before = lambda turn: asyncio.sleep(0.01) if len(made) % 2 else asyncio.sleep(0)
            found = await asyncio.gather(*(openai_agents.run(agent, "go", ctx=ctx) for agent in agents))
            return [result.final_output for result in found]

        return Bench(tmp_path, answer)

    again = killed_at_every_commit(make, landed=landed, beside=1)
    assert landed or again
    bench = make([])
    assert bench.go().exit_code == 0
    assert bench.outputs == [["one", "two"]]
    steps = ["model Same", "look a1", "model Same#1", "2/model Same", "2/look b1", "2/model Same#1"]
    assert sorted(bench.views) == sorted(steps)


# ---- outputs


class Verdict(BaseModel):
    right: bool
    since: date


@dataclasses.dataclass
class Weight:
    grams: int
    of: list[Verdict]


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        (Verdict, '{"right": true, "since": "2026-01-02"}', {"right": True, "since": "2026-01-02"}),
        (
            Weight,
            '{"response": {"grams": 3, "of": [{"right": false, "since": "2026-01-02"}]}}',
            {"grams": 3, "of": [{"right": False, "since": "2026-01-02"}]},
        ),
        (list[int], '{"response": [1, 2]}', [1, 2]),
        (None, "plain text", "plain text"),
    ],
)
def test_the_output_is_the_final_output_as_json(kind: Any, said: str, expected: Any, tmp_path: Path) -> None:
    bench = Bench(tmp_path, Agent(name="Judge", model=Script([], say(said)), output_type=kind))
    assert bench.go().exit_code == 0, bench.causes
    assert bench.outputs == [expected]


def test_an_output_of_the_wrong_form_is_the_items_own_failure(tmp_path: Path) -> None:
    made: list[str] = []
    bench = Bench(tmp_path, Agent(name="Judge", model=Script(made, say("not JSON")), output_type=Verdict))
    assert bench.go(retries=3).exit_code == 1
    assert len(made) == 1


def test_a_function_that_makes_the_agent_is_an_agent_too(tmp_path: Path) -> None:
    def make() -> Agent[Any]:
        return Agent(name="Support", model=Script([], say("hello")))

    bench = Bench(tmp_path, make)
    assert bench.go().exit_code == 0
    assert bench.outputs == ["hello"]


def test_a_realtime_agent_is_refused_before_the_first_item(tmp_path: Path) -> None:
    with pytest.raises(agentrun.errors.AgentError, match="RealtimeAgent, which does not run to an end"):
        Bench(tmp_path, RealtimeAgent(name="Voice")).go()


# ---- traces


class Traces(TracingProcessor):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []

    def on_trace_start(self, trace: Trace) -> None:
        self.seen.append((trace.trace_id, trace.export()["group_id"]))  # type: ignore[index]

    def on_trace_end(self, trace: Trace) -> None: ...
    def on_span_start(self, span: Span[Any]) -> None: ...
    def on_span_end(self, span: Span[Any]) -> None: ...
    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


def test_trace_and_group_are_the_items_in_every_attempt(tmp_path: Path) -> None:
    traces = Traces()
    set_trace_processors([traces])
    set_tracing_disabled(False)
    try:
        bench = looks([], tmp_path)
        bench.items = ["x", "y"]
        failed: list[int] = []

        def fail_once(turn: int) -> None:
            if not failed:
                failed.append(turn)
                raise ConnectionError("no answer")

        bench.agent.model.before = fail_once
        assert bench.go(retries=1).exit_code == 0, bench.causes
        assert len(traces.seen) == 3
        assert len(set(traces.seen)) == 2
        assert all(trace.startswith("trace_") and len(trace) == 38 and group for trace, group in traces.seen)
    finally:
        set_trace_processors([])
        set_tracing_disabled(True)
