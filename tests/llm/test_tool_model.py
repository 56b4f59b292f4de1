"""The model on loopback does what the text says, in both of its APIs alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from llm.tool_model import ToolModel, serve_tools
from needs import require_module

require_module("openai", extra="llm")

from openai import BadRequestError, OpenAI  # noqa: E402

TOPIC = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
ANSWER = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}


class Agent(Protocol):
    """The smallest agent: it does what the model wants, and says so."""

    def ask(self, **more: Any) -> tuple[str, list[tuple[str, str, str]]]:
        """The text, and id, name and arguments of the calls."""

    def add(self, results: dict[str, str]) -> None: ...


class ChatAgent:
    def __init__(self, client: OpenAI, text: str, tools: dict[str, Any]) -> None:
        self._client = client
        self._messages: list[Any] = [{"role": "system", "content": "Go."}, {"role": "user", "content": text}]
        self._tools: list[Any] = [
            {"type": "function", "function": {"name": n, "parameters": p}} for n, p in tools.items()
        ]

    def ask(self, **more: Any) -> tuple[str, list[tuple[str, str, str]]]:
        if schema := more.get("schema"):
            more = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
        reply = self._client.chat.completions.create(model="m", messages=self._messages, tools=self._tools, **more)
        message = reply.choices[0].message
        self._messages.append(message.model_dump(exclude_none=True))
        calls = [(one.id, one.function.name, one.function.arguments) for one in message.tool_calls or []]
        return message.content or "", calls

    def add(self, results: dict[str, str]) -> None:
        self._messages += [{"role": "tool", "tool_call_id": one, "content": text} for one, text in results.items()]


class ResponsesAgent:
    def __init__(self, client: OpenAI, text: str, tools: dict[str, Any]) -> None:
        self._client = client
        self._input: list[Any] = [{"role": "user", "content": text}]
        self._tools: list[Any] = [{"type": "function", "name": n, "parameters": p} for n, p in tools.items()]

    def ask(self, **more: Any) -> tuple[str, list[tuple[str, str, str]]]:
        if schema := more.get("schema"):
            more = {"text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}
        reply = self._client.responses.create(model="m", input=self._input, tools=self._tools, **more)
        self._input += [one.model_dump(exclude_none=True) for one in reply.output]
        calls = [(one.call_id, one.name, one.arguments) for one in reply.output if one.type == "function_call"]
        return reply.output_text, calls

    def add(self, results: dict[str, str]) -> None:
        self._input += [{"type": "function_call_output", "call_id": c, "output": t} for c, t in results.items()]


@pytest.fixture
def model() -> Iterator[ToolModel]:
    with serve_tools() as served:
        yield served


@pytest.fixture(params=[ChatAgent, ResponsesAgent])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def make(kind: Any, model: ToolModel, text: str, **tools: Any) -> Any:
    client = OpenAI(base_url=model.url, api_key="sk-none", max_retries=0)
    return kind(client, text, tools or dict.fromkeys(("search", "weigh", "note"), TOPIC))


def test_three_tools_one_after_the_other_and_then_their_results_in_a_text(kind: Any, model: ToolModel) -> None:
    agent = make(kind, model, "What of key=07?")
    for n, name in enumerate(["search", "weigh", "note"]):
        text, ((call, used, arguments),) = agent.ask()
        assert (text, used, json.loads(arguments)) == ("", name, {"topic": f"key=07 at={n}"})
        agent.add({call: f"result {n}"})
    assert agent.ask() == ("07: result 0; result 1; result 2", [])
    assert [call.key for call in model.answered()] == ["07"] * 4
    fingerprints = [call.conversation.fingerprint for call in model.calls]
    for n, call in enumerate(model.calls):
        assert call.conversation.goes_on_from == set(fingerprints[:n])
        assert {name for name, _ in call.conversation.used} == {"search", "weigh", "note"} & set(
            ["search", "weigh", "note"][:n]
        )


def test_ids_are_others_each_time_and_the_fingerprint_is_the_same(kind: Any, model: ToolModel) -> None:
    ids = set()
    for _ in range(2):
        agent = make(kind, model, "key=1 <<tools search+search>>")
        _, calls = agent.ask()
        ids |= {one for one, _, _ in calls}
        agent.add({one: f"r{n}" for n, (one, _, _) in enumerate(calls)})
        assert agent.ask()[0] == "1: r0; r1"
    assert len(ids) == 4
    first, second, *again = [call.conversation.fingerprint for call in model.calls]
    assert [first, second] == again and first != second


def test_results_side_by_side_may_come_in_any_order(kind: Any, model: ToolModel) -> None:
    for turn in (1, -1):
        agent = make(kind, model, "key=1 <<tools search+search>>")
        _, calls = agent.ask()
        agent.add(dict([(one, f"r{n}") for n, (one, _, _) in enumerate(calls)][::turn]))
        assert agent.ask()[0] == "1: r0; r1"
    assert model.calls[1].conversation.fingerprint == model.calls[3].conversation.fingerprint


def test_an_agent_inside_gets_a_text_of_its_own(kind: Any, model: ToolModel) -> None:
    outer = make(kind, model, "key=1 <<tools expert>> <<inside search>>", expert=INPUT)
    _, ((_, _, arguments),) = outer.ask()
    inner = make(kind, model, json.loads(arguments)["input"])
    _, ((call, name, arguments),) = inner.ask()
    assert (name, json.loads(arguments)) == ("search", {"topic": "key=1 at=0.0"})
    inner.add({call: "found"})
    assert inner.ask()[0] == "1: found"


def test_a_structured_answer_is_given_where_it_is_wanted_and_is_wrong_once(kind: Any, model: ToolModel) -> None:
    agent = make(kind, model, "key=1 <<tools >> <<wrong>>")
    assert agent.ask(schema=ANSWER)[0] == '{"said": "wrong"}'
    assert agent.ask(schema=ANSWER)[0] == '{"said": "1: "}'
    by_tool = make(kind, model, "key=1 <<tools >>", final_result=ANSWER)
    _, ((_, name, arguments),) = by_tool.ask()
    assert (name, arguments) == ("final_result", '{"said": "1: "}')


@pytest.mark.parametrize(
    ("text", "said"),
    [("key=1", "No tool output found for function call"), ("key=1 <<tools sing>>", "There is no tool sing; there are")],
)
def test_what_a_real_server_refuses_is_refused(kind: Any, model: ToolModel, text: str, said: str) -> None:
    agent = make(kind, model, text)
    with pytest.raises(BadRequestError, match=said):
        for _ in range(2):
            agent.ask()


def test_usage_is_what_the_log_says(model: ToolModel) -> None:
    client = OpenAI(base_url=model.url, api_key="sk-none", max_retries=0)
    chat = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "key=1 <<tools >>"}]).usage
    other = client.responses.create(model="m", input="key=1 <<tools >>").usage
    assert chat is not None and other is not None
    used = [(call.input_tokens, call.output_tokens) for call in model.answered()]
    assert used == [(chat.prompt_tokens, chat.completion_tokens), (other.input_tokens, other.output_tokens)]
