"""A prompt as the agent, against a server on loopback."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrun.agents.agent import load_agent
from agentrun.agents.failure import judge
from agentrun.errors import AgentError
from agentrun.item import Item
from areas.llm.bench import KEY, SCHEMA, Bench, line
from llm.server import Asked, LlmServer, serve


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# ---- before the first item


def test_loading_a_prompt_imports_nothing_of_what_runs_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from agentrun.job.build import build_job; from agentrun.job.fields import Layer\n"
        "from agentrun.agents.agent import load_agent\n"
        "values = {'prompt': '{text}', 'model': 'openai:x', 'items': {'lines': 'x'}}\n"
        "load_agent(build_job([Layer('x', values)], base=Path('.'), file=None, default_name='x'))\n"
        "print([name for name in ('pydantic_ai', 'openai', 'httpx2', 'jsonschema') if name in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_a_missing_extra_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    assert bench.refusal() == (
        "prompt: it needs the extra llm, and there is no pydantic_ai here; "
        "install it, in the checkout, with: pip install '.[llm]'"
    )


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY"),
        ("anthropic:claude-haiku-4-5", "ANTHROPIC_API_KEY"),
        ("google:gemini-2.5-flash", "GOOGLE_API_KEY or GEMINI_API_KEY"),
    ],
)
def test_a_missing_key_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch, model: str, names: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " \n")
    assert bench.refusal(model=model) == (
        f"prompt: the model {model} needs {names}; set it in the environment, or in env_file"
    )


def test_a_key_that_cannot_be_one_is_told_without_showing_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary…")
    said = bench.refusal()
    assert said == "prompt: OPENAI_API_KEY has a character in it that no key has; set it again"


def test_a_prompt_that_is_the_same_for_every_item_is_refused(bench: Bench) -> None:
    said = bench.refusal(prompt="Summarise for {who}.", params={"who": "me"})
    assert said == "prompt: it says the same for every item; write {text} where the item belongs"
    assert "{text} or {file}" in bench.refusal(prompt="Summarise.", items={"files": "*.txt"})
    load_agent(bench.job(prompt="Go on.", system="You have {text}."))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "prompt: there is no file {path}"),
        (b" \n", "prompt: {path} is empty"),
        (b"\xff{text}", "prompt: {path} is not UTF-8; save it as UTF-8"),
        (b"Sum {txt}", "prompt: {path} has the placeholder {{txt}}; did you mean {{text}}? (for braces write {{{{"),
        (b'Answer {"a": 1} on {text}', 'prompt: {path} has the placeholder {{"a": 1}}; known here: {{file}}, {{path}}'),
        (b"a { b {text}", "prompt: {path} has a single {{; write {{{{ for a brace"),
    ],
)
def test_a_prompt_file_is_checked_as_the_text_would_be(bench: Bench, content: bytes | None, said: str) -> None:
    path = bench.folder / "ask.md"
    if content is not None:
        path.write_bytes(content)
    assert bench.refusal(prompt="@ask.md", items={"files": "*"}).startswith(said.format(path=path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no file"),
        (b"{", "is not JSON: "),
        (b"[]", "does not describe an object; write a JSON Schema such as"),
        (b'{"type": "array"}', "does not describe an object"),
        (b'{"type": "object", "properties": 3}', "is no JSON Schema: $.properties: 3 is not of type 'object'"),
    ],
)
def test_a_schema_that_is_none_is_refused(bench: Bench, content: bytes | None, said: str) -> None:
    if content is not None:
        (bench.folder / "answer.json").write_bytes(content)
    refusal = bench.refusal(schema="answer.json")
    assert refusal.startswith("schema: ") and said in refusal


def test_the_fingerprint_covers_what_is_asked_and_of_whom(bench: Bench) -> None:
    (bench.folder / "ask.md").write_text("{text}")
    (bench.folder / "answer.json").write_text('{"type": "object"}')
    values: dict[str, Any] = {"prompt": "@ask.md", "schema": "answer.json"}
    seen = [load_agent(bench.job(**values)).fingerprint]

    def differs(**changes: Any) -> None:
        seen.append(load_agent(bench.job(**{**values, **changes})).fingerprint)
        assert len(set(seen)) == len(seen)

    differs(system="Be brief.")
    differs(model="openai:gpt-5")
    differs(base_url="http://localhost:1/v1")
    differs(temperature=0.5)
    differs(max_output_tokens=9)
    differs(structured="prompt")
    differs(schema=None)
    (bench.folder / "ask.md").write_text("{text}!")
    differs()
    (bench.folder / "answer.json").write_text('{"type": "object", "title": "Answer"}')
    differs()
    assert load_agent(bench.job(**values, run={"concurrency": 8})).fingerprint == seen[-1]
    versions = [load_agent(bench.job(**values, version="3", system=text)).fingerprint for text in ("a", "b")]
    assert versions[0] == versions[1]


# ---- asking


def test_text_is_answered_with_text(bench: Bench, llm: LlmServer) -> None:
    assert bench.output(line("hello"), base_url=llm.url, items={"lines": "x"}) == "HELLO"
    (asked,) = llm.asked
    assert asked.body["model"] == "gpt-5-mini" and asked.authorization == f"Bearer {KEY}"


def test_one_text_is_sent_as_a_text_and_not_as_a_list_of_parts(bench: Bench, llm: LlmServer) -> None:
    notes = bench.file("notes.txt", b"notes")
    bench.output(notes, prompt="Read {file} now", system="Be brief.", items={"files": "*"}, base_url=llm.url)
    assert llm.asked[0].body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read notes now"},
    ]


def test_placeholders_are_filled_from_the_item_and_the_params(bench: Bench, llm: LlmServer) -> None:
    item = Item(7, "id-1", data={"title": "On {text}", "n": 3, "who": "field"})
    bench.output(
        item,
        prompt="{title} {n} {key} {index} {who} {{text}}",
        system="For {who}: {n}",
        params={"who": "param"},
        base_url=llm.url,
    )
    (asked,) = llm.asked
    assert asked.text == "On {text} 3 id-1 7 param {text}"
    assert asked.system == "For param: 3"


def test_an_item_without_the_field_fails_alone(bench: Bench, llm: LlmServer) -> None:
    (outcome,) = bench.run([Item(0, "k", data={"title": "x"})], prompt="{titel}", base_url=llm.url)
    assert outcome.failure is not None and judge(outcome.failure).verdict == "item"
    assert outcome.failure.message.startswith("the prompt has the placeholder {titel}; did you mean {title}?")
    assert llm.asked == []


def test_limits_are_passed_on(bench: Bench, llm: LlmServer) -> None:
    bench.output(line("x"), base_url=llm.url, model="openai:llama3.2:3b", max_output_tokens=50, temperature=0)
    (asked,) = llm.asked
    assert asked.body["model"] == "llama3.2:3b"
    assert asked.body["max_tokens"] == 50 and asked.body["temperature"] == 0


def test_two_ats_are_an_at(bench: Bench, llm: LlmServer) -> None:
    bench.output(line("ada"), prompt="@@{text}", base_url=llm.url, items={"lines": "x"})
    assert llm.asked[0].text == "@ada"


def test_the_environment_may_name_the_server_and_no_key_is_needed(
    bench: Bench, llm: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", llm.url)
    assert bench.output(line("hello")) == "HELLO"


def test_connections_are_kept_and_closed_at_the_end(bench: Bench, llm: LlmServer) -> None:
    outcomes = bench.run([line(str(number)) for number in range(5)], base_url=llm.url)
    assert [outcome.kind for outcome in outcomes] == ["done"] * 5
    assert len(llm.asked) == 5 and len(llm.connections) == 1


# ---- files


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def test_images_and_pdfs_are_attached_where_the_prompt_says(bench: Bench, llm: LlmServer) -> None:
    values: dict[str, Any] = {"items": {"files": "*"}, "prompt": "See {file} of {key}", "base_url": llm.url}
    bench.output(bench.file("a.png", PNG), **values)
    bench.output(bench.file("b.PDF", b"%PDF-1.7"), **values)
    image, pdf = llm.asked
    encoded = base64.b64encode(PNG).decode()
    assert image.parts("image_url")[0]["image_url"]["url"] == f"data:image/png;base64,{encoded}"
    assert [part["type"] for part in image.body["messages"][-1]["content"]] == ["text", "image_url", "text"]
    assert image.text == "See \n of a.png"
    assert pdf.parts("file")[0]["file"]["file_data"].startswith("data:application/pdf;base64,")


def test_a_text_file_is_put_in_as_text(bench: Bench, llm: LlmServer) -> None:
    item = bench.file("notes.unknown", "\ufeffé {key}".encode())
    bench.output(item, items={"files": "*"}, prompt="<{file}>", base_url=llm.url)
    assert llm.asked[0].text == "<é {key}>"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.zip", b"PK\3\4\xff", "a.zip cannot be attached: it is application/zip"),
        ("a.xyz", b"\0\1", "a.xyz cannot be attached: its kind is not known"),
        ("a.png", b"", "a.png is empty"),
    ],
)
def test_what_no_model_can_be_shown_fails_clearly(
    bench: Bench, llm: LlmServer, name: str, data: bytes, said: str
) -> None:
    (outcome,) = bench.run([bench.file(name, data)], items={"files": "*"}, prompt="{file}", base_url=llm.url)
    assert outcome.failure is not None and outcome.failure.message.startswith(said)
    assert judge(outcome.failure).verdict == "item" and llm.asked == []


# ---- structured output


def answering(*answers: Any) -> Any:
    def answer(asked: Asked) -> str:
        told = answers[min(asked.number, len(answers) - 1)]
        return told if isinstance(told, str) else json.dumps(told)

    return answer


def test_a_schema_makes_the_output_an_object(bench: Bench, llm: LlmServer) -> None:
    (bench.folder / "answer.json").write_text(json.dumps(SCHEMA))
    assert bench.output(line("x"), schema="answer.json", base_url=llm.url) == {"category": "bill", "pages": 1}
    wanted = llm.asked[0].body["response_format"]
    assert wanted["type"] == "json_schema" and wanted["json_schema"]["schema"]["required"] == ["category", "pages"]


@pytest.mark.parametrize("wrong", [{"category": "bill", "pages": 0}, {"category": "other", "pages": 1}, "no", [1]])
def test_an_answer_that_does_not_fit_is_sent_back_once(bench: Bench, wrong: Any) -> None:
    (bench.folder / "answer.json").write_text(json.dumps(SCHEMA))
    right = {"category": "spam", "pages": 2}
    with serve(answering(wrong, right)) as llm:
        assert bench.output(line("x"), schema="answer.json", base_url=llm.url) == right
        assert len(llm.asked) == 2
    assert [message["type"] for message in bench.messages] == ["usage", "usage"]


def test_an_answer_that_never_fits_is_a_failed_attempt_that_says_why(bench: Bench) -> None:
    (bench.folder / "answer.json").write_text(json.dumps(SCHEMA))
    with serve(answering({"category": "bill", "pages": 0})) as llm:
        (outcome,) = bench.run([line("x")], schema="answer.json", base_url=llm.url)
        assert len(llm.asked) == 2
    assert outcome.failure is not None and judge(outcome.failure).verdict == "transient"
    assert "$.pages: 0 is less than the minimum of 1" in outcome.failure.message


# ---- usage


def test_every_response_is_reported_with_its_numbers(bench: Bench) -> None:
    with serve(tokens=lambda asked: (400, 30)) as llm:
        bench.output(line("x"), base_url=llm.url)
    (message,) = bench.messages
    assert message == {
        "id": message["id"],
        "no": 1,
        "type": "usage",
        "model": "gpt-5-mini",
        "provider": "openai",
        "input_tokens": 400,
        "output_tokens": 30,
        "cache_read_tokens": 100,
        "cache_write_tokens": 0,
        "cache_write_1h_tokens": 0,
        "requests": 1,
        "cost": None,
        "estimated": False,
    }


@pytest.mark.parametrize("mark", ["<<length>>", "<<filter>>"])
def test_what_a_failed_attempt_used_is_reported(bench: Bench, llm: LlmServer, mark: str) -> None:
    (outcome,) = bench.run([line(mark)], base_url=llm.url)
    assert outcome.kind == "failed" and [message["type"] for message in bench.messages] == ["usage"]


def test_a_server_that_counts_nothing_is_reported_as_nothing(bench: Bench, llm: LlmServer) -> None:
    assert bench.output(line("<<nousage>>"), base_url=llm.url) == "<<NOUSAGE>>"
    assert bench.messages == []


# ---- failures


@pytest.mark.parametrize(
    ("mark", "verdict", "cause"),
    [
        ("429 after=2", "transient", "ModelRateLimitError: HTTP 429 from openai:gpt-5-mini: Rate limit reached."),
        ("500", "transient", "ModelServerError: HTTP 500 from openai:gpt-5-mini: The server had an error."),
        ("cut", "transient", "ModelConnectionError: openai:gpt-5-mini: Connection error: "),
        ("malformed", "transient", "ModelAPIError: openai:gpt-5-mini: Failed to decode response as JSON: "),
        ("401", "everyone", "ModelAuthenticationError: HTTP 401 from openai:gpt-5-mini: Incorrect API key provided."),
        ("403", "everyone", "ModelAuthenticationError: HTTP 403 from openai:gpt-5-mini: You may not use this."),
        ("404", "everyone", "ModelNotFoundError: HTTP 404 from openai:gpt-5-mini: The model `nope` does not exist."),
        ("quota429", "everyone", "ModelQuotaExceededError: HTTP 429 from openai:gpt-5-mini: You exceeded"),
        ("quota400", "everyone", "ModelRequestRejectedError: HTTP 400 from openai:gpt-5-mini: Your credit balance"),
        ("length", "item", "Fail: the answer was cut off at the model's own limit; set max_output_tokens, or ask"),
        ("filter", "item", "Fail: the provider's content filter stopped the answer"),
        ("refusal", "item", "Fail: the provider's content filter stopped the answer: I will not."),
    ],
)
def test_a_failure_says_what_it_is_and_is_asked_once(
    bench: Bench, llm: LlmServer, mark: str, verdict: str, cause: str
) -> None:
    (outcome,) = bench.run([line(f"<<{mark}>>")], base_url=llm.url)
    failure = outcome.failure
    assert failure is not None and (judge(failure).verdict, failure.cause[: len(cause)]) == (verdict, cause)
    assert failure.retry_after_seconds == (2.0 if "after" in mark else None)
    assert len(llm.asked) == 1
    assert "pydantic_ai" not in failure.traceback.replace("pydantic_ai.exceptions.", ""), failure.traceback


def test_an_answer_cut_off_by_the_jobs_own_limit_names_it(bench: Bench, llm: LlmServer) -> None:
    (outcome,) = bench.run([line("<<length>>")], base_url=llm.url, max_output_tokens=5)
    assert outcome.failure is not None
    assert outcome.failure.message == "the answer was cut off at max_output_tokens = 5; raise it, or ask for less"


def test_a_key_that_the_server_sends_back_is_in_no_failure(bench: Bench, llm: LlmServer) -> None:
    (outcome,) = bench.run([line("<<echo>>")], base_url=llm.url)
    assert outcome.failure is not None and "Bearer [key]" in outcome.failure.message
    assert KEY not in json.dumps(outcome.failure.as_json())
    assert llm.asked[0].authorization == f"Bearer {KEY}"


@pytest.mark.parametrize("schema", [None, "answer.json"])
@pytest.mark.parametrize(
    ("model", "name"),
    [("anthropic:claude-haiku-4-5", "ANTHROPIC"), ("google:gemini-2.5-flash", "GEMINI")],
)
def test_models_of_other_providers_are_asked_just_what_is_written(
    bench: Bench, llm: LlmServer, monkeypatch: pytest.MonkeyPatch, model: str, name: str, schema: str | None
) -> None:
    (bench.folder / "answer.json").write_text(json.dumps(SCHEMA))
    monkeypatch.setenv(f"{name}_API_KEY", KEY)
    for variable in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.setenv(variable, llm.url.removesuffix("/v1"))
    asked: dict[str, Any] = {"model": model, "system": "Be brief.", "schema": schema, "max_output_tokens": 99}
    output = bench.output(line("<system>Hello</system>"), **asked)
    assert output == ({"category": "bill", "pages": 1} if schema else "HELLO")
    (body,) = llm.others
    if name == "ANTHROPIC":
        assert [part["text"] for part in body["system"]] == ["Be brief."]
        assert body["messages"][0]["content"][0]["text"] == "<system>Hello</system>"
        assert [tool["name"] for tool in body.get("tools", [])] == (["answer"] if schema else [])
    else:
        assert body["systemInstruction"]["parts"] == [{"text": "Be brief."}]
        assert body["contents"][0]["parts"] == [{"text": "<system>Hello</system>"}]
    (message,) = bench.messages
    used = (message["provider"], message["input_tokens"], message["output_tokens"], message["cache_read_tokens"])
    assert used == (model.partition(":")[0], 8, 2, 3)


def test_a_schema_that_refers_to_itself_is_told_before_the_first_item(bench: Bench, llm: LlmServer) -> None:
    tree = {"type": "object", "properties": {"inner": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"$ref": "#/$defs/t"}}}
    (bench.folder / "answer.json").write_text(json.dumps(tree))
    with pytest.raises(AgentError, match=r"recursive"):
        bench.run([line("x")], schema="answer.json", base_url=llm.url)


def test_a_schema_is_never_fetched(bench: Bench) -> None:
    referring = {"type": "object", "properties": {"n": {"$ref": "http://127.0.0.1:9/x.json"}}}
    (bench.folder / "answer.json").write_text(json.dumps(referring))
    with serve(answering({"n": 1})) as llm:
        (outcome,) = bench.run([line("x")], schema="answer.json", base_url=llm.url)
    assert outcome.failure is not None and "a reference that leads nowhere" in outcome.failure.message
