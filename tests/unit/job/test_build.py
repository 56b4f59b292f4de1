from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import JobError
from agentrun.job.build import build_job
from agentrun.job.fields import Layer
from agentrun.job.job import Job
from agentrun.values.units import Allowance, Rate

BASE = Path("/base")
LEAST: dict[str, Any] = {"agent": "agent.py:triage", "items": {"files": "docs/*.txt"}}
FILE = "triage/job.toml"


def build(*layers: dict[str, Any], has_file: bool = True, name: str = "triage") -> Job:
    labels = [FILE, "command line", "third"]
    return build_job(
        [Layer(label, values) for label, values in zip(labels, layers, strict=False)],
        base=BASE,
        file=BASE / "job.toml" if has_file else None,
        default_name=name,
    )


def refusal(*layers: dict[str, Any], has_file: bool = True, name: str = "triage") -> str:
    with pytest.raises(JobError) as caught:
        build(*layers, has_file=has_file, name=name)
    return str(caught.value)


def test_what_is_not_said_has_the_documented_defaults() -> None:
    job = build(LEAST)
    assert (job.name, job.output, job.concurrency, job.retries) == ("triage", "triage.results.jsonl", 1, 3)
    assert (job.timeout_seconds, job.grace_seconds, job.stop_after_failures) == (1800, 30, 10)
    assert (job.crash_limit, job.allow_failures, job.carry, job.parse) == (3, Allowance(), False, "text")


def test_every_value_of_a_job_file_is_read() -> None:
    job = build(
        {
            "name": "t-{customer}",
            "command": ["./t.sh", "{path}"],
            "parse": "json",
            "version": "3",
            "output": "out/{customer}-{date}.jsonl",
            "env_file": ".env",
            "needs_env": ["KEY"],
            "params": {"customer": "acme"},
            "items": {"files": "inbox/{customer}/*.txt"},
            "run": {
                "concurrency": 8,
                "timeout": "2s",
                "retries": 0,
                "rate": "60/min",
                "allow_failures": "5%",
                "stop_after_failures": 0,
                "grace": 0,
                "crash_limit": 0,
                "keep_changed": True,
            },
        }
    )
    assert (job.name, job.command, job.parse, job.version) == ("t-acme", ("./t.sh", "{path}"), "json", "3")
    assert (job.env_file, job.needs_env, job.items.pattern) == (".env", ("KEY",), "inbox/acme/*.txt")
    assert (job.concurrency, job.timeout_seconds, job.retries, job.rate) == (8, 2, 0, Rate(60, 60))
    assert (job.allow_failures.of(100), job.stop_after_failures, job.grace_seconds) == (5, 0, 0)
    assert (job.crash_limit, job.keep_changed) == (0, True)
    assert job.output_path(run_id="r", date="2024-01-02") == BASE / "out/acme-2024-01-02.jsonl"
    assert job.partial_path(run_id="r", date="2024-01-02") == BASE / "out/acme-2024-01-02.partial.jsonl"


PROMPT: dict[str, Any] = {"prompt": "Sum up {text}", "model": "openai:m", "items": {"files": "docs/*.txt"}}


def test_every_value_of_a_prompt_is_read() -> None:
    job = build(
        {
            **PROMPT,
            "system": "@system.md",
            "schema": "answer.json",
            "structured": "prompt",
            "base_url": "http://localhost:11434/v1",
            "max_output_tokens": 500,
            "temperature": 0,
            "run": {"budget": 5, "token_budget": 1_000_000},
        }
    )
    assert (job.prompt, job.model, job.system, job.schema) == ("Sum up {text}", "openai:m", "@system.md", "answer.json")
    assert job.structured == "prompt"
    assert (job.base_url, job.max_output_tokens, job.temperature) == ("http://localhost:11434/v1", 500, 0.0)
    assert (job.budget, job.token_budget, job.agent, job.command) == (5.0, 1_000_000, None, None)
    least = build(PROMPT)
    assert least.structured is None
    assert (least.max_output_tokens, least.temperature, least.budget, least.token_budget) == (None, None, None, None)


def test_a_command_may_serve() -> None:
    assert build({**LEAST, "agent": None, "command": ["x"], "serve": True}).serve
    assert not build({**LEAST, "agent": None, "command": ["x"]}).serve


def test_a_program_that_serves_gets_its_items_as_lines_and_not_in_its_words() -> None:
    with pytest.raises(JobError, match=r"command has \{key\} in it; with serve = true, each item is a line"):
        build({**LEAST, "agent": None, "command": ["x", "{key}"], "serve": True})
    assert build({**LEAST, "agent": None, "command": ["x", "{{}}"], "serve": True}).serve


def test_a_timeout_of_zero_is_none() -> None:
    assert build({**LEAST, "run": {"timeout": 0}}).timeout_seconds is None


def test_an_absolute_output_stays_where_it_is() -> None:
    job = build({**LEAST, "output": "/else/r.jsonl"})
    assert job.output_path(run_id="r", date="d") == Path("/else/r.jsonl")


def test_a_param_that_looks_like_a_placeholder_is_not_one() -> None:
    job = build({**LEAST, "params": {"p": "{date}"}, "output": "{p}.jsonl"})
    assert job.output_path(run_id="r", date="today") == BASE / "{date}.jsonl"


def test_a_stronger_layer_wins_value_by_value() -> None:
    job = build({**LEAST, "run": {"concurrency": 2, "retries": 1}}, {"run": {"concurrency": 8, "retries": None}})
    assert (job.concurrency, job.retries) == (8, 1)


def test_a_stronger_command_replaces_an_agent_and_what_only_it_has() -> None:
    job = build({**LEAST, "isolation": "thread"}, {"command": ["./run", "{}"]})
    assert (job.agent, job.command, job.isolation) == (None, ("./run", "{}"), None)
    job = build({**LEAST, "agent": None, "command": ["x"], "parse": "json"}, {"agent": "a.py:b"})
    assert (job.agent, job.command, job.parse) == ("a.py:b", None, "text")


def test_a_stronger_prompt_replaces_a_command_and_a_stronger_model_only_the_model() -> None:
    command = {**LEAST, "agent": None, "command": ["x"], "parse": "json", "serve": True}
    job = build(command, {"prompt": "{text}", "model": "openai:m"})
    assert (job.command, job.parse, job.serve, job.prompt) == (None, "text", False, "{text}")
    job = build({**PROMPT, "temperature": 1, "schema": "a.json"}, {"model": "openai:n", "temperature": 0})
    assert (job.prompt, job.model, job.temperature, job.schema) == ("Sum up {text}", "openai:n", 0, "a.json")
    job = build({**PROMPT, "system": "s", "schema": "a.json"}, {"agent": "a.py:b"})
    assert (job.prompt, job.model, job.system, job.schema, job.agent) == (None, None, None, None, "a.py:b")


def test_stronger_items_replace_those_of_another_kind_with_their_key() -> None:
    job = build({**LEAST, "items": {"jsonl": "a.jsonl", "key": "id"}}, {"items": {"files": "*.txt"}})
    assert (job.items.kind, job.items.key) == ("files", None)
    job = build({**LEAST, "items": {"jsonl": "a.jsonl", "key": "id"}}, {"items": {"jsonl": "b.jsonl"}})
    assert (job.items.pattern, job.items.key) == ("b.jsonl", "id")


def test_a_param_given_as_text_becomes_what_the_job_file_has() -> None:
    file = {**LEAST, "params": {"n": 1, "f": 0.5, "b": False, "t": "x"}}
    job = build(file, {"params": {"n": "7", "f": "2", "b": "true", "t": "9"}})
    assert job.params == {"n": 7, "f": 2.0, "b": True, "t": "9"}
    assert refusal(file, {"params": {"n": "many"}}) == (
        'command line: params.n is "many"; triage/job.toml has 1 there; give a value of that kind'
    )


def test_a_date_among_the_params_is_its_text() -> None:
    assert build({**LEAST, "params": {"since": datetime.date(2024, 1, 2)}}).params == {"since": "2024-01-02"}


def test_identity_is_items_agent_and_params() -> None:
    job = build({**LEAST, "params": {"a": 1}, "run": {"concurrency": 3}})
    assert job.identity() == {
        "items": "files:docs/*.txt",
        "key": None,
        "agent": "agent.py:triage",
        "params": {"a": 1},
    }
    assert build({**LEAST, "agent": None, "command": ["x"]}).identity()["command"] == ["x"]


def test_a_prompt_is_the_same_job_with_another_model_but_not_with_another_text() -> None:
    assert build({**PROMPT, "model": "google:n"}).identity() == build(PROMPT).identity()
    edited = build({**PROMPT, "prompt": "Shorter: {text}"}).identity()
    assert edited == {"items": "files:docs/*.txt", "key": None, "prompt": "Shorter: {text}", "params": {}}
    # The file's text is part of the fingerprint, like an agent's.
    assert build({**PROMPT, "prompt": "@shorter.md"}).identity()["prompt"] == "@shorter.md"


def test_python_items_are_for_jobs_without_a_file() -> None:
    spec = {"agent": "a.py:b", "items": {"python": True, "key": "id"}}
    job = build(spec, has_file=False)
    assert (job.items.kind, job.items.pattern, job.items.key) == ("python", "", "id")
    assert "items.python is not a known key" in refusal(spec)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"run": {"timeout": "2 parsecs"}},
            'run.timeout is "2 parsecs"; write a duration such as "90s", "2m" or "1h30m"',
        ),
        ({"run": {"timeot": 1}}, "run.timeot is not a known key; did you mean timeout?"),
        ({"comand": []}, "comand is not a known key; did you mean command?"),
        ({"concurency": 3}, "concurency is not a known key; did you mean concurrency? (under [run])"),
        ({"timeout": "2m"}, "timeout is not a known key; it belongs under [run]"),
        ({"run": {"agent": "x"}}, "run.agent is not a known key; it belongs at the top, before any [table]"),
        ({"files": "*.txt"}, "files is not a known key; it belongs under [items]"),
        ({"run": {"concurrency": 0}}, "run.concurrency is 0; write a whole number, 1 or more"),
        ({"run": {"concurrency": "8"}}, 'run.concurrency is "8"; write a whole number, 1 or more'),
        ({"run": {"concurrency": True}}, "run.concurrency is true; write a whole number, 1 or more"),
        ({"run": {"retries": -1}}, "run.retries is -1; write a whole number, 0 or more"),
        ({"run": {"allow_failures": "x"}}, 'run.allow_failures is "x"; write a number of items'),
        ({"run": {"keep_changed": 1}}, "run.keep_changed is 1; write true or false"),
        ({"run": 3}, "run is 3; write a table: [run]"),
        ({"run": {"budget": 0}}, "run.budget is 0; write US dollars, such as 5.00"),
        ({"run": {"budget": "$5"}}, 'run.budget is "$5"; write US dollars'),
        ({"run": {"budget": True}}, "run.budget is true; write US dollars"),
        ({"run": {"budget": float("inf")}}, "run.budget is Infinity; write US dollars"),
        ({"budget": 5.0}, "budget is not a known key; it belongs under [run]"),
        ({"run": {"token_budget": 0}}, "run.token_budget is 0; write a whole number, 1 or more"),
        ({"run": {"token_budget": 1.5}}, "run.token_budget is 1.5; write a whole number, 1 or more"),
        ({"run": {"model": "x"}}, "run.model is not a known key; it belongs at the top"),
        ({"prompt": "x"}, "agent and prompt are both given; give one of them"),
        ({"model": "openai:x"}, "model is for a prompt; this job has a Python agent: leave it out"),
        ({"serve": True}, "serve is for a command; this job has a Python agent: leave it out"),
        ({"command": ["x"]}, "agent and command are both given; give one of them"),
        ({"agent": None}, "none of agent, command and prompt is given"),
        ({"agent": "agent.py"}, 'agent is "agent.py"; write "file.py:function"'),
        ({"agent": 3}, 'agent is 3; write "file.py:function"'),
        ({"agent": ""}, "agent is empty"),
        (
            {"agent": None, "command": "ls {}"},
            'command is "ls {}"; write a list, such as ["./triage.sh", "{path}"]',
        ),
        ({"agent": None, "command": []}, "command is []; write the program first"),
        ({"agent": None, "command": ["a", "{"]}, "command has a single {; write {{ for a brace"),
        (
            {"agent": None, "command": ["a", "{pth}"]},
            "command has the placeholder {pth}; did you mean {path}?",
        ),
        ({"agent": None, "command": ["a"], "isolation": "thread"}, "isolation is for a Python agent"),
        ({"parse": "json"}, "parse is for a command"),
        ({"isolation": "fiber"}, 'isolation is "fiber"; write "process" or "thread"'),
        ({"version": 3}, 'version is 3; write it in quotes, such as "3"'),
        ({"items": {}}, "no items are given"),
        ({"items": {"files": "a", "lines": "b"}}, "items.files and items.lines are both given"),
        ({"items": {"files": 3}}, "items.files is 3; write a path or a pattern"),
        ({"items": {"files": "a", "key": "id"}}, 'items.key is "id"; it is for jsonl and csv'),
        ({"items": {"files": "-"}}, 'items.files is "-"; standard input is read as lines, jsonl or csv'),
        ({"items": {"files": "{date}/*"}}, "items.files has the placeholder {date}"),
        ({"items": {"jsonl": "./r.jsonl"}, "output": "r.jsonl"}, "the items are read from that file"),
        ({"carry": True, "run": {"concurrency": 2}}, "run.concurrency is 2, but carry = true needs 1"),
        ({"carry": "yes"}, 'carry is "yes"; write true or false'),
        ({"output": "out/"}, 'output is "out/"; write the path of a file'),
        ({"output": "{nope}.jsonl"}, "output has the placeholder {nope}"),
        ({"output": "a\0b"}, "output has a NUL character in it"),
        ({"needs_env": "KEY"}, 'needs_env is "KEY"; write a list'),
        ({"needs_env": ["A=B"]}, 'needs_env has "A=B", which is not the name of an environment variable'),
        ({"params": {"customer": ""}}, "params.customer is empty; give it with --set customer=…"),
        ({"params": {"x": float("nan")}}, "params.x is nan"),
        ({"params": {"a b": 1}}, "params.a b is not a name"),
        ({"name": "{nope}"}, "name has the placeholder {nope}"),
        ({"name": "{p}", "params": {"p": "a/b"}}, 'params.p is "a/b"; it is part of the job\'s name "{p}"'),
        ({"name": "{p}", "params": {"p": [1]}}, "name has the placeholder {p}"),
    ],
)
def test_a_wrong_value_is_refused_with_file_key_and_what_would_do(change: dict[str, Any], message: str) -> None:
    said = refusal({**LEAST, **change})
    assert said.startswith(f"{FILE}: ")
    assert message in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": None}, 'prompt needs a model; write model = "openai:gpt-5-mini", for example, or give --model'),
        ({"prompt": 3}, 'prompt is 3; write text, in quotes, or "@" and the path of a file'),
        ({"prompt": " "}, "prompt is empty"),
        ({"prompt": "@ "}, 'prompt is "@ "; write the path of a file after the @'),
        ({"prompt": "{txt}"}, "prompt has the placeholder {txt}; did you mean {text}?"),
        ({"prompt": "{}"}, "prompt has the placeholder {}; write {text} for the item's text"),
        ({"prompt": '{"a": 1} {text}'}, "(for braces write {{ and }})"),
        ({"prompt": "{file}", "items": {"lines": "x"}}, "prompt has the placeholder {file}; known here: {text}"),
        ({"prompt": "{text} {", "items": {"csv": "x"}}, "prompt has a single {; write {{ for a brace"),
        ({"system": "{file}"}, "system has the placeholder {file}; only the prompt can have it"),
        ({"model": "gpt-5"}, 'model is "gpt-5"; write the provider and the model: openai:…, anthropic:…, google:…'),
        ({"model": "openai:"}, 'model is "openai:"; write the provider'),
        ({"model": "cohere:c"}, 'model is "cohere:c"; write the provider'),
        ({"base_url": "localhost:1"}, 'base_url is "localhost:1"; write a URL such as'),
        ({"base_url": "http://ada:pw@x/v1"}, "base_url has a user in it; leave that out: keys come from the env"),
        ({"base_url": "http://x", "model": "google:g"}, "base_url is for servers that speak the OpenAI API"),
        ({"max_output_tokens": 0}, "max_output_tokens is 0; write a whole number, 1 or more"),
        ({"temperature": 2.5}, "temperature is 2.5; write a number from 0 to 2"),
        ({"temperature": "hot"}, 'temperature is "hot"; write a number from 0 to 2'),
        ({"schema": {"type": "object"}}, "write the path of a JSON Schema"),
        ({"schema": "a.json", "structured": "tool"}, 'structured is "tool"; write "native" or "prompt"'),
        ({"structured": "prompt"}, "structured is about a schema, and there is none; write schema = …, or leave it"),
        ({"parse": "json"}, "parse is for a command; its output is text, or with schema"),
        ({"isolation": "thread"}, "isolation is for a Python agent; a prompt runs on the event loop: leave it out"),
        ({"command": ["x"]}, "command and prompt are both given; give one of them"),
    ],
)
def test_a_wrong_value_of_a_prompt_is_refused(change: dict[str, Any], message: str) -> None:
    said = refusal({**PROMPT, **change})
    assert said.startswith(f"{FILE}: ") and message in said
    assert "pw" not in said


def test_a_prompt_may_have_params_and_any_field_of_a_record() -> None:
    for prompt, more in (
        ("{text} {file} {path} {key} {index} {who}", {"params": {"who": "me"}}),
        ("{title} {whatever}", {"items": {"jsonl": "x.jsonl"}}),
        ("@{not}/a/template.md", {}),
    ):
        assert build({**PROMPT, "prompt": prompt, **more}).prompt == prompt


@pytest.mark.parametrize(
    ("name", "would_do"),
    [
        ("a/b", "a-b"),
        (".hidden", "hidden"),
        ("-x", "x"),
        ("a\nb", "a-b"),
        ("\u202eabc", "abc"),
        (" x", "x"),
        ("é" * 51, "é" * 40),
        ("..", "my-job"),
    ],
)
def test_a_name_that_cannot_be_a_folder_is_refused_with_one_that_can(name: str, would_do: str) -> None:
    assert f'use a name such as "{would_do}"' in refusal({**LEAST, "name": name})
    assert f'use a name such as "{would_do}"' in refusal(LEAST, name=name)


def test_an_error_names_the_layer_that_holds_the_value() -> None:
    assert refusal(LEAST, {"run": {"timeout": "x"}}).startswith('command line: run.timeout is "x"')


def test_a_parameter_that_the_job_file_lacks_is_refused() -> None:
    said = refusal({**LEAST, "params": {"customer": "a"}}, {"params": {"custmer": "b"}})
    assert said == "command line: params.custmer is not a parameter of the job file; did you mean customer?"
    assert build(LEAST, {"params": {"new": "b"}}, has_file=False).params == {"new": "b"}
