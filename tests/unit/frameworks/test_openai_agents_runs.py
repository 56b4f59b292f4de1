"""Runs of the Agents SDK with more than one agent: handoffs, agents as tools, guardrails that run agents."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    RunConfig,
    Runner,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
)
from agents.run import AgentRunner, get_default_agent_runner

import agentrun
from agentrun.frameworks import openai_agents
from unit.frameworks.openai_bench import Bench, Script, call, killed_at_every_commit, looking, say


def circle(made: list[str], folder: Path, *, by: str = "agent") -> Bench:
    """Triage hands over to billing, which looks something up and hands back."""
    there, back = [call("transfer_to_billing", "h1")], [call("transfer_to_triage", "h2")]
    triage = Agent(name="triage", model=Script(made, there, say("done"), name="triage"))
    billing = Agent(
        name="billing",
        model=Script(made, [call("look", "c1", what="a")], back, name="billing"),
        tools=[looking(made)],
        handoffs=[triage],
    )
    enabled: list[Any] = []

    def is_enabled(context: Any, agent: Any) -> bool:
        enabled.append(agent)
        return True

    triage.handoffs = [billing if by == "agent" else handoff(billing, is_enabled=is_enabled)]
    return Bench(folder, triage)


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("by", ["agent", "handoff"])
def test_handoffs_in_a_circle_with_a_crash_at_every_commit(by: str, landed: bool, tmp_path: Path) -> None:
    again = killed_at_every_commit(lambda made: circle(made, tmp_path, by=by), landed=landed)
    assert bool(again) is not landed


def test_responses_are_named_after_the_agent_whose_turn_it_is(tmp_path: Path) -> None:
    bench = circle([], tmp_path)
    assert bench.go().exit_code == 0, bench.causes
    assert list(bench.views) == ["model triage", "model billing", "look c1", "model billing#1", "model triage#1"]


def test_a_handoff_that_is_not_enabled_is_not_offered(tmp_path: Path) -> None:
    bench = circle([], tmp_path)
    bench.agent.handoffs = [handoff(bench.agent.handoffs[0], is_enabled=lambda context, agent: False)]
    assert bench.go(retries=2).exit_code == 1
    assert "transfer_to_billing" in bench.causes[0]


def team(made: list[str], folder: Path) -> Bench:
    """The same agent as a tool, twice side by side; each of its runs has two turns and a tool call."""

    class Writer(Script):
        async def get_response(self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any) -> Any:
            about = input[0]["content"] if isinstance(input, list) else input
            # The second is quicker, but not always.
            await asyncio.sleep(0.005 if (about == "a") == (len(made) % 3 > 0) else 0)
            self.turns = ([call("look", f"of-{about}", what=about)], say(f"text on {about}"))
            self.model = f"writer on {about}"
            return await super().get_response(system_instructions, input, *args, **kwargs)

    writer = Agent(name="Writer", model=Writer(made, name="writer"), tools=[looking(made)])
    model = Script(made, [call("write", "w1", input="a"), call("write", "w2", input="b")], say("done"))
    return Bench(folder, Agent(name="Editor", model=model, tools=[writer.as_tool("write", "Write a text.")]))


@pytest.mark.parametrize("landed", [False, True])
def test_agents_as_tools_side_by_side_do_not_mix(landed: bool, tmp_path: Path) -> None:
    again = killed_at_every_commit(lambda made: team(made, tmp_path), landed=landed, beside=1)
    assert landed or again
    bench = team([], tmp_path)
    assert bench.go().exit_code == 0
    assert (bench.agent.model.told("w1"), bench.agent.model.told("w2")) == ("text on a", "text on b")
    inner = ["model Writer", "look of-{}", "model Writer#1"]
    nested = [
        f"write {call_id}/{name.format(about)}" for call_id, about in [("w1", "a"), ("w2", "b")] for name in inner
    ]
    assert sorted(bench.views) == sorted(["model Editor", *nested, "model Editor#1"])


@pytest.mark.parametrize("landed", [False, True])
def test_a_run_within_a_tool_is_not_paid_again_if_the_tool_is_killed(landed: bool, tmp_path: Path) -> None:
    def make(made: list[str]) -> Bench:
        inner = Agent(name="Inner", model=Script(made, [call("look", "i1", what="a")], say("in"), name="inner"))
        inner.tools = [looking(made)]

        @function_tool
        async def research(topic: str) -> str:
            return str((await Runner.run(inner, topic)).final_output)

        @function_tool
        def look_up(topic: str) -> str:
            try:
                return str(Runner.run_sync(other, topic).final_output)
            finally:
                asyncio.get_event_loop().close()  # the SDK leaves it open

        other = Agent(name="Other", model=Script(made, say("other"), name="other"))
        model = Script(made, [call("research", "c1", topic="x")], [call("look_up", "c2", topic="y")], say("done"))
        return Bench(tmp_path, Agent(name="Outer", model=model, tools=[research, look_up]))

    again = killed_at_every_commit(make, landed=landed)
    assert bool(again) is not landed
    bench = make([])
    assert bench.go().exit_code == 0
    assert "research c1/look i1" in bench.views
    assert "look_up c2/model Other" in bench.views


def guarded(made: list[str], folder: Path, *, trips: bool = False, after: Any = None) -> Bench:
    """Two guardrails that run the same agent beside the model, and one on the output."""
    judge = Agent(name="Judge", model=Script(made, say("fine"), name="judge"))

    @input_guardrail
    async def polite(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        said = (await Runner.run(judge, "polite?")).final_output
        if after is not None:
            await after.wait()
        return GuardrailFunctionOutput(output_info=said, tripwire_triggered=trips)

    judge_of_topic = Agent(name="Judge", model=Script(made, say("fine"), name="judge of topic"))

    @input_guardrail
    async def on_topic(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        said = (await Runner.run(judge_of_topic, "on topic?")).final_output
        return GuardrailFunctionOutput(output_info=said, tripwire_triggered=False)

    @output_guardrail
    def short(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=len(output) > 10)

    model = Script(made, [call("look", "c1", what="a")], say("done"))
    agent = Agent(name="Support", model=model, tools=[looking(made)])
    agent.input_guardrails, agent.output_guardrails = [polite, on_topic], [short]
    return Bench(folder, agent)


@pytest.mark.parametrize("landed", [False, True])
def test_guardrails_beside_the_model_lose_nothing_with_a_crash_at_every_commit(landed: bool, tmp_path: Path) -> None:
    again = killed_at_every_commit(lambda made: guarded(made, tmp_path), landed=landed, beside=2)
    assert landed or again
    bench = guarded([], tmp_path)
    assert bench.go().exit_code == 0
    assert {"guardrail polite/model Judge", "guardrail on_topic/model Judge", "model Support"} < set(bench.views)


def test_guardrails_of_one_name_do_not_mix_whichever_is_first(tmp_path: Path) -> None:
    turns = ["polite", "brief", "polite of the run", "brief", "polite of the run", "polite"]
    heard: list[tuple[str, str]] = []

    def guardrail(topic: str) -> Any:
        judge = Agent(name="Judge", model=Script([], say(topic)))

        async def check(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
            while turns[0] != topic:
                await asyncio.sleep(0)
            heard.append((topic, (await Runner.run(judge, "well?")).final_output))
            turns.pop(0)
            return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

        return InputGuardrail(check)

    async def fail_once(_: int) -> None:
        while len(turns) > (3 if agentrun.current().attempt == 1 else 0):
            await asyncio.sleep(0)
        if agentrun.current().attempt == 1:
            raise ConnectionError("no answer")

    model = Script([], say("done"))
    model.before = fail_once
    agent = Agent(name="Support", model=model, input_guardrails=[guardrail("polite"), guardrail("brief")])
    config = RunConfig(input_guardrails=[guardrail("polite of the run")])

    async def support(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        return (await openai_agents.run(agent, item.text, ctx=ctx, run_config=config)).final_output

    bench = Bench(tmp_path, support)
    assert bench.go(retries=1).exit_code == 0, bench.causes
    assert len(heard) == 6
    assert all(topic == said for topic, said in heard)


def test_a_tripwire_is_the_items_own_failure_and_a_finished_response_is_kept(tmp_path: Path) -> None:
    made: list[str] = []
    after = asyncio.Event()
    bench = guarded(made, tmp_path, trips=True, after=after)

    def before_commit(checkpoint: Any, records: Any) -> None:
        # While the response is being written, the guardrail trips and the SDK cancels the model's task.
        if any(record.name == "model Support" for record in records):
            after.set()

    bench.memory.before = before_commit
    assert bench.go(retries=3).exit_code == 1
    assert "InputGuardrailTripwireTriggered" in bench.causes[0]
    assert made.count("model support#0") == 1
    assert "model Support" in bench.views


def test_an_output_that_trips_is_the_items_own_failure(tmp_path: Path) -> None:
    made: list[str] = []
    bench = guarded(made, tmp_path)
    bench.agent.model.turns = (say("far too much to say"),)
    assert bench.go(retries=3).exit_code == 1
    assert "OutputGuardrailTripwireTriggered" in bench.causes[0]
    assert made.count("model support#0") == 1


def test_outside_an_attempt_the_sdk_runs_as_ever(tmp_path: Path) -> None:
    bench = guarded([], tmp_path)
    assert bench.go().exit_code == 0
    assert isinstance(get_default_agent_runner(), AgentRunner)
    result = asyncio.run(Runner.run(bench.agent, "hello"))
    assert result.final_output == "done"
    assert result.last_agent is bench.agent
