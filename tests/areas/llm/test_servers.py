"""Prompts with the manners of real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrun.agents.failure import judge
from areas.llm.bench import KEY, SCHEMA, Bench, line
from cli.conftest import Run
from llm.manners import LLAMA_CPP_SERVER, LLAMA_SERVER, Manners
from llm.server import Asked, LlmServer, answer_simply, serve

FIRST = {"category": "bill", "pages": 1}
NAMELESS = Manners(schema_error=(500, "Internal Server Error"))
NAMED = Manners(schema_error=(400, "This response_format type is unavailable now"))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "answer.json").write_text(json.dumps(SCHEMA))
    return Bench(tmp_path)


def ways(llm: LlmServer) -> list[str]:
    return [asked.body.get("response_format", {}).get("type", "text") for asked in llm.asked]


def warnings(bench: Bench) -> list[str]:
    return [message["text"] for message in bench.messages if message["type"] == "warn"]


def items(count: int) -> list[Any]:
    return [line(f"text {number}", key=str(number)) for number in range(count)]


# ---- both of llama.cpp's servers


@pytest.mark.parametrize("manners", [Manners(), LLAMA_SERVER, LLAMA_CPP_SERVER])
@pytest.mark.parametrize("schema", [None, "answer.json"])
@pytest.mark.parametrize("model", ["openai:qwen3", "openai:gpt-5-mini", "openai:o3"])
def test_every_server_answers_a_prompt(bench: Bench, manners: Manners, schema: str | None, model: str) -> None:
    with serve(manners=manners) as llm:
        values: dict[str, Any] = {"system": "Be brief.", "schema": schema, "model": model, "base_url": llm.url}
        outcomes = bench.run(items(manners.loading + 3), **values)
        texts = [message["content"] for asked in llm.asked for message in asked.body["messages"]]
    loading, answered = outcomes[: manners.loading], outcomes[manners.loading :]
    assert [outcome.kind for outcome in answered] == ["done"] * 3
    assert all(outcome.failure is not None and outcome.failure.server in llm.url for outcome in loading)
    assert all(isinstance(text, str) for text in texts)
    if schema is not None:
        assert [json.loads(outcome.output) for outcome in answered] == [FIRST] * 3


@pytest.mark.parametrize(
    ("manners", "said"),
    [
        (LLAMA_SERVER, "exceeds the available context size (500 tokens), try increasing it"),
        (LLAMA_CPP_SERVER, "This model's maximum context length is 500 tokens. However, you requested "),
    ],
)
@pytest.mark.parametrize("schema", [None, "answer.json"])
def test_a_text_that_is_too_long_is_its_items_own_failure(
    bench: Bench, manners: Manners, said: str, schema: str | None
) -> None:
    with serve(manners=manners) as llm:
        outcomes = bench.run(
            [*items(manners.loading), line("long " * 1000, key="long"), *items(1)],
            model="openai:qwen3",
            schema=schema,
            base_url=llm.url,
        )
    failure = outcomes[-2].failure
    assert failure is not None and judge(failure).verdict == "item"
    assert failure.message.startswith("HTTP 400 from openai:qwen3: ") and said in failure.message
    assert outcomes[-1].kind == "done"


def test_usage_is_that_of_the_model_that_was_asked_for(bench: Bench) -> None:
    with serve(manners=Manners(model="/models/qwen3-8b-q4_k_m.gguf")) as llm:
        bench.output(line("x"), model="openai:gpt-5-mini", base_url=llm.url)
    (message,) = bench.messages
    assert (message["provider"], message["model"]) == ("openai", "gpt-5-mini")


@pytest.mark.parametrize(("mark", "kind"), [("<<exceed>>", "done"), ("<<exceed>><<length>>", "failed")])
def test_more_tokens_than_allowed_are_counted_and_only_a_part_of_an_answer_is_refused(
    bench: Bench, llm: LlmServer, mark: str, kind: str
) -> None:
    (outcome,) = bench.run([line(mark)], model="openai:qwen3", max_output_tokens=5, base_url=llm.url)
    assert outcome.kind == kind
    assert [message["output_tokens"] for message in bench.messages] == [15]


def test_attachments_fail_alone_where_only_texts_are_taken(bench: Bench) -> None:
    picture = bench.file("a.png", b"\x89PNG\r\n\x1a\n" + bytes(20))
    text = bench.file("b.txt", b"text")
    values: dict[str, Any] = {"items": {"files": "*"}, "prompt": "See {file}", "model": "openai:qwen3"}
    with serve(manners=LLAMA_CPP_SERVER) as llm:
        refused, taken = bench.run([picture, text], **values, base_url=llm.url)
    assert refused.failure is not None and "can only concatenate str" in refused.failure.message
    assert taken.kind == "done"


# ---- schemas


@pytest.mark.parametrize("manners", [NAMED, LLAMA_CPP_SERVER])
def test_a_server_that_refuses_a_schema_gets_it_in_the_prompt_from_then_on(bench: Bench, manners: Manners) -> None:
    with serve(manners=manners) as llm:
        outcomes = bench.run(items(4), schema="answer.json", system="Be brief.", base_url=llm.url)
        assert ways(llm) == ["json_schema", "json_object", "json_object", "json_object", "json_object"]
        assert [message["role"] for message in llm.asked[-1].body["messages"]] == ["system", "user"]
        assert len(llm.used) == 4
    assert [json.loads(outcome.output) for outcome in outcomes] == [FIRST] * 4
    (warning,) = warnings(bench)
    assert warning.startswith("openai:gpt-5-mini does not take a JSON Schema (HTTP ") and "response_format" in warning
    assert "; the schema is in the prompt from now on" in warning and 'structured = "prompt"' in warning


def test_a_server_that_only_says_500_is_asked_natively_three_times(bench: Bench) -> None:
    with serve(manners=NAMELESS) as llm:
        outcomes = bench.run(items(5), schema="answer.json", base_url=llm.url)
        assert ways(llm) == [*["json_schema", "json_object"] * 3, "json_object", "json_object"]
    assert [json.loads(outcome.output) for outcome in outcomes] == [FIRST] * 5
    assert len(warnings(bench)) == 1


def test_a_server_with_a_bad_moment_is_asked_natively_again(bench: Bench, llm: LlmServer) -> None:
    both = "<<500 times=1>>"  # the question in words is another text
    outcomes = bench.run(
        [line(both), *items(3), line(f"{both} later"), *items(1)], schema="answer.json", base_url=llm.url
    )
    native = ["json_schema"]
    assert [outcome.kind for outcome in outcomes] == ["failed", "done", "done", "done", "failed", "done"]
    # The first one failed both ways; the later one was not even asked in words.
    assert ways(llm) == [*native, "json_object", *native * 5]
    failure = outcomes[0].failure
    assert failure is not None and (failure.status, judge(failure).verdict) == (500, "transient")
    assert warnings(bench) == []


def test_a_bad_moment_of_a_server_that_takes_schemas_only_stays_one(bench: Bench) -> None:
    manners = Manners(object_error=(400, "'response_format.type' must be 'json_schema' or 'text'"))
    with serve(manners=manners) as llm:
        first, second = bench.run([line("<<500 times=1>>"), *items(1)], schema="answer.json", base_url=llm.url)
    assert first.failure is not None and judge(first.failure).verdict == "transient"
    assert second.kind == "done" and warnings(bench) == []


@pytest.mark.parametrize(("structured", "way"), [("native", "json_schema"), ("prompt", "json_object")])
def test_the_job_may_say_which_way_a_schema_is_given(bench: Bench, structured: str, way: str) -> None:
    with serve(manners=NAMED) as llm:
        outcomes = bench.run(items(2), schema="answer.json", structured=structured, base_url=llm.url)
        assert ways(llm) == [way] * 2
    assert [outcome.kind for outcome in outcomes] == (["failed"] if structured == "native" else ["done"]) * 2
    assert warnings(bench) == []


@pytest.mark.parametrize("manners", [NAMED, NAMELESS])
def test_an_answer_in_words_is_checked_and_sent_back_once(bench: Bench, manners: Manners) -> None:
    def answer(asked: Asked) -> str:
        return answer_simply(asked) if len(asked.body["messages"]) > 1 else '{"category": "bill", "pages": 0}'

    with serve(answer, manners=manners) as llm:
        assert bench.output(line("x"), schema="answer.json", base_url=llm.url) == FIRST
        assert ways(llm) == ["json_schema", "json_object", "json_object"]
        assert "0 is less than the minimum of 1" in llm.asked[-1].text
        assert len(llm.used) == 2


def test_an_answer_in_words_that_never_fits_is_a_failed_attempt_and_the_way_is_known(bench: Bench) -> None:
    with serve(lambda asked: "no", manners=NAMED) as llm:
        first, second = bench.run(items(2), schema="answer.json", base_url=llm.url)
        assert ways(llm) == ["json_schema", *["json_object"] * 4]
    assert first.failure is not None and second.failure is not None
    assert judge(first.failure).verdict == "transient" and "Invalid JSON" in first.failure.message


def test_a_server_that_is_away_when_asked_in_words_does_not_fail_the_item_for_good(bench: Bench) -> None:
    with serve(manners=NAMED) as llm:
        (outcome,) = bench.run([line("<<503 times=1>>")], schema="answer.json", base_url=llm.url)
    assert outcome.failure is not None and judge(outcome.failure).verdict == "transient"
    assert warnings(bench) == []


@pytest.mark.parametrize(
    ("model", "name"), [("anthropic:claude-haiku-4-5", "ANTHROPIC"), ("google:gemini-2.5-flash", "GEMINI")]
)
def test_other_providers_can_be_given_the_schema_in_words(
    bench: Bench, llm: LlmServer, monkeypatch: pytest.MonkeyPatch, model: str, name: str
) -> None:
    monkeypatch.setenv(f"{name}_API_KEY", KEY)
    for variable in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.setenv(variable, llm.url.removesuffix("/v1"))
    bench.run([line("Hello")], model=model, schema="answer.json", structured="prompt", max_output_tokens=9)
    body = llm.others[0]
    asked = body["messages"][0]["content"] if name == "ANTHROPIC" else body["contents"][0]["parts"]
    assert asked[0]["text"].startswith("Hello\n\nAnswer with a JSON object") and "tools" not in body
    assert "responseJsonSchema" not in json.dumps(body)


def test_the_change_costs_nobody_an_attempt_and_is_told_once(agentrun: Run, tmp_path: Path) -> None:
    keys = [f"{number}.md" for number in range(12)]
    for key in keys:
        (tmp_path / key).write_text("text")
    (tmp_path / "answer.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "job.toml").write_text(
        'name = "sums"\nprompt = "Sum key={key} up: {text}"\nmodel = "openai:qwen3"\nschema = "answer.json"\n'
        '[items]\nfiles = "*.md"\n[run]\nconcurrency = 4\nretries = 0\n'
    )
    with serve(manners=LLAMA_CPP_SERVER) as llm:
        ended = agentrun("start", "job.toml", "--base-url", llm.url)
        assert ended.returncode == 0, ended.stderr
        assert sorted(key for key, _, _ in llm.used) == sorted(keys)
        # Only those that were in flight before the first answer in words.
        assert 1 <= ways(llm).count("json_schema") <= 8
    assert ended.stderr.count("openai:qwen3 does not take a JSON Schema (HTTP 500: 1 validation error:") == 1
    logs = [agentrun("log", "sums", key).stdout for key in keys]
    assert sum("[agentrun] openai:qwen3 does not take a JSON Schema" in log for log in logs) == 1
    with serve(manners=LLAMA_CPP_SERVER) as llm:
        ended = agentrun("start", "job.toml", "--base-url", llm.url, "--structured", "prompt", "--fresh")
        assert ended.returncode == 0 and "JSON Schema" not in ended.stderr
        assert ways(llm) == ["json_object"] * 12
