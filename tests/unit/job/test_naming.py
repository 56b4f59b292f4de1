"""Names made from what is asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentrun.job.build import build_job
from agentrun.job.fields import Layer
from agentrun.job.job import Job
from agentrun.job.naming import digest_ask, former_name, name_asked, same_value

BASE = Path("/jobs")
AGENT: dict[str, Any] = {"agent": "summarise.py:summarise", "items": {"files": "docs/*.txt"}}
COMMAND: dict[str, Any] = {"command": ["./ask.sh", "{}"], "items": {"jsonl": "asks.jsonl", "key": "id"}}
PROMPT: dict[str, Any] = {"prompt": "Sum up {text}", "model": "openai:m", "items": {"files": "docs/*.txt"}}


def build(values: dict[str, Any]) -> Job:
    return build_job([Layer("flags", values)], base=BASE, file=None, default_name="job")


def name_of(values: dict[str, Any], *, place: str = ".") -> str:
    job = build(values)
    return name_asked(job, digest_ask(job, place=place))


def test_a_name_is_readable_and_has_four_digits_of_the_hash() -> None:
    assert re.fullmatch(r"summarise-[0-9a-f]{4}", name_of(AGENT))


def test_names_are_the_same_in_every_version() -> None:
    """They are on disk: with another rule, people would not find their jobs again."""
    assert [name_of(one) for one in (AGENT, COMMAND, PROMPT)] == ["summarise-fd05", "ask-cb6e", "sum-up-46fd"]


@pytest.mark.parametrize(
    ("values", "stem"),
    [
        ({"agent": "lib/research.py:Research.run"}, "run"),
        ({"command": ["/usr/local/bin/fetch.sh", "{}"]}, "fetch"),
        ({"command": ["./.hidden thing.sh", "{}"]}, "hidden-thing"),
        ({"command": ["..."]}, "job"),
        ({"prompt": "@prompts/translate.md", "model": "openai:m"}, "translate"),
        ({"prompt": "Summarise:\n{text}", "model": "openai:m"}, "summarise"),
        ({"prompt": "Translate to French, as plainly as you can: {text}", "model": "openai:m"}, "translate-to-french"),
        ({"prompt": "{text}", "model": "openai:m"}, "prompt"),
        ({"prompt": "Résumé de {text}", "model": "openai:m"}, "résumé-de"),
        ({"prompt": f"{'w' * 90} {{text}}", "model": "openai:m"}, "w" * 32),
    ],
)
def test_the_stem_is_what_people_recognise_the_job_by(values: dict[str, Any], stem: str) -> None:
    job = build({**values, "items": {"files": "docs/*.txt"}})
    assert name_asked(job, "3f2a" + 60 * "0") == f"{stem}-3f2a"


@pytest.mark.parametrize(
    ("values", "written"),
    [
        (AGENT, {"items": {"files": "./docs/*.txt"}}),
        (AGENT, {"items": {"files": "docs//../docs/*.txt"}}),
        (AGENT, {"items": {"files": "/jobs/docs/*.txt"}}),
        (AGENT, {"agent": "./summarise.py:summarise"}),
        (AGENT, {"agent": "/jobs/summarise.py:summarise"}),
        (COMMAND, {"command": ["./lib/../ask.sh", "{}"]}),
        (COMMAND, {"command": ["/jobs/ask.sh", "{}"]}),
        (COMMAND, {"parse": "text", "serve": False}),
        ({**PROMPT, "prompt": "@ask.md"}, {"prompt": "@./ask.md"}),
        ({**PROMPT, "system": "@who.md"}, {"system": "@/jobs/who.md"}),
        ({**PROMPT, "schema": "a.json"}, {"schema": "./a.json"}),
        ({**PROMPT, "temperature": 1.0}, {"temperature": 1}),
        ({**PROMPT, "params": {"a": 1, "b": 2}}, {"params": {"b": 2, "a": 1}}),
    ],
)
def test_the_same_ask_has_the_same_name_however_it_is_written(values: dict[str, Any], written: dict[str, Any]) -> None:
    assert name_of({**values, **written}) == name_of(values)


def test_paths_among_the_arguments_of_a_program_may_be_written_in_several_ways() -> None:
    names = {
        name_of({**AGENT, "agent": None, "command": ["python3", one, "{}"]}) for one in ("t.py", "./t.py", "/jobs/t.py")
    }
    assert len(names) == 1


@pytest.mark.parametrize(
    ("values", "other"),
    [
        (AGENT, {"agent": "summarise.py:translate"}),
        (AGENT, {"agent": "lib/summarise.py:summarise"}),
        (AGENT, {"items": {"files": "mail/*.txt"}}),
        (AGENT, {"items": {"lines": "docs/*.txt"}}),
        (AGENT, {"params": {"customer": "acme"}}),
        (COMMAND, {"command": ["./ask.sh", "-v", "{}"]}),
        (COMMAND, {"command": ["ask.sh", "{}"]}),
        (COMMAND, {"items": {"jsonl": "asks.jsonl"}}),
        (COMMAND, {"parse": "json"}),
        ({**COMMAND, "command": ["./ask.sh"]}, {"serve": True}),
        (PROMPT, {"prompt": "Translate {text}"}),
        (PROMPT, {"prompt": "Sum up {text}."}),
        (PROMPT, {"system": "You are terse."}),
        (PROMPT, {"model": "openai:n"}),
        (PROMPT, {"base_url": "http://localhost:11434/v1"}),
        (PROMPT, {"schema": "answer.json"}),
        ({**PROMPT, "schema": "answer.json"}, {"structured": "prompt"}),
        (PROMPT, {"temperature": 0}),
        (PROMPT, {"max_output_tokens": 100}),
    ],
)
def test_everything_that_decides_an_output_changes_the_name(values: dict[str, Any], other: dict[str, Any]) -> None:
    assert name_of({**values, **other}) != name_of(values)


@pytest.mark.parametrize(
    "more",
    [
        {"output": "out.jsonl"},
        {"version": "3"},
        {"env_file": ".env", "needs_env": ["KEY"]},
        {"isolation": "thread"},
        {"run": {"concurrency": 8, "timeout": "5s", "retries": 0, "rate": "1/s", "budget": 5.0, "max_age": "1h"}},
    ],
)
def test_limits_and_the_output_do_not_change_the_name(more: dict[str, Any]) -> None:
    assert name_of({**AGENT, **more}) == name_of(AGENT)


def test_in_a_shared_state_folder_each_place_has_jobs_of_its_own() -> None:
    assert name_of(AGENT, place="/here") != name_of(AGENT, place="/there")


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (AGENT, "summarise"),
        (COMMAND, "ask"),
        (PROMPT, "prompt"),
        ({**PROMPT, "prompt": "@prompts/translate.md"}, "translate"),
    ],
)
def test_the_name_of_the_versions_before_is_known(values: dict[str, Any], name: str) -> None:
    assert former_name(build(values)) == name


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("items", "files:docs/*.txt", "files:./docs/*.txt"),
        ("items", "lines:-", "lines:-"),
        ("agent", "a.py:f", "/jobs/a.py:f"),
        ("agent", "package.module:f", "package.module:f"),
        ("command", ["./a.sh", "x"], ["././a.sh", "./x"]),
        ("prompt", "@ask.md", "@./ask.md"),
        ("prompt", None, None),
        ("params", {"a": 1}, {"a": 1}),
    ],
)
def test_a_value_of_the_identity_is_the_same_however_it_is_written(name: str, value: Any, written: Any) -> None:
    assert same_value(name, value, BASE) == same_value(name, written, BASE)
