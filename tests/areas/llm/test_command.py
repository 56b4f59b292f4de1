"""`agentrun start --prompt …`, against a server on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Run
from llm.server import LlmServer

KEY = "sk-canary-0123456789"
MODEL = ("--model", "openai:gpt-5-mini")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.md").write_text(f"text {name}")
    (tmp_path / "summarise.md").write_text("Sum key={key} up: {text}")
    return folder


def results(path: Path) -> list[Any]:
    return [json.loads(line)["output"] for line in path.read_text().splitlines()]


def status(agentrun: Run, job: str = "summarise") -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(agentrun("status", job, "--json").stdout)["counts"]
    return counts


def start(agentrun: Run, llm: LlmServer, *more: str, prompt: str = "@summarise.md", **environ: str) -> Any:
    environ = {"OPENAI_API_KEY": KEY, **environ}
    given = ("--prompt", prompt, *MODEL, "--items", "docs/*.md", "--base-url", llm.url)
    return agentrun("start", *given, *more, **environ)


def test_a_prompt_and_a_model_are_a_job(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    ended = start(agentrun, llm, "--system", "Be brief.", "-o", "out.jsonl")
    assert ended.returncode == 0, ended.stderr
    assert results(docs.parent / "out.jsonl") == [f"SUM KEY=DOCS/{n}.MD UP: TEXT {n}" for n in "ABC"]
    assert [asked.system for asked in llm.asked] == ["Be brief."] * 3
    assert status(agentrun)["done"] == 3


def test_a_schema_makes_objects_also_from_a_folder_below(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    (docs.parent / "job.toml").write_text('prompt = "{file}"\nmodel = "openai:x"\n[items]\nfiles = "docs/*.md"\n')
    (docs / "answer.json").write_text(json.dumps(schema))
    (docs / "ask.txt").write_text("From {file}.")
    given = ("--prompt", "@ask.txt", "--schema", "answer.json", "--base-url", llm.url)
    ended = agentrun("start", "../job.toml", *given, cwd=docs)
    assert ended.returncode == 0, ended.stderr
    (path,) = docs.parent.glob("*.results.jsonl")
    assert results(path) == [{"n": 1}] * 3
    assert llm.asked[0].text == "From text a."


def test_a_few_items_can_be_tried(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    given = ("--prompt", "{text}", *MODEL, "--items", "docs/*.md", "--base-url", llm.url)
    ended = agentrun("try", *given, "-n", "1", "--temperature", "0")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"index": 0, "key": "docs/a.md", "output": "TEXT A"}


def test_a_retry_after_is_waited_out(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    (docs / "b.md").write_text("<<429 after=2 times=1>>")
    ended = start(agentrun, llm)
    assert ended.returncode == 0, ended.stderr
    first, second = [asked.at for asked in llm.asked if asked.key == "docs/b.md"]
    assert second - first >= 2.0
    assert llm.requests_of() == {"docs/a.md": 1, "docs/b.md": 2, "docs/c.md": 1}


@pytest.mark.parametrize("mark", ["500", "cut", "malformed"])
def test_what_passes_by_itself_is_tried_again(agentrun: Run, docs: Path, llm: LlmServer, mark: str) -> None:
    (docs / "b.md").write_text(f"<<{mark} times=1>>")
    ended = start(agentrun, llm)
    assert ended.returncode == 0, ended.stderr
    assert llm.requests_of()["docs/b.md"] == 2


def test_a_slow_answer_is_a_timeout_that_is_tried_once_more(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    (docs / "b.md").write_text("<<slow seconds=60 times=1>>")
    ended = start(agentrun, llm, "--timeout", "4s")
    assert ended.returncode == 0, ended.stderr
    assert llm.requests_of()["docs/b.md"] == 2


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ("401", "ModelAuthenticationError: HTTP 401 from openai:gpt-5-mini: Incorrect API key provided."),
        ("404", "ModelNotFoundError: HTTP 404 from openai:gpt-5-mini: The model `nope` does not exist."),
        ("quota429", "ModelQuotaExceededError: HTTP 429 from openai:gpt-5-mini: You exceeded your current quota."),
        ("quota400", "ModelRequestRejectedError: HTTP 400 from openai:gpt-5-mini: Your credit balance is too low."),
    ],
)
def test_what_would_fail_all_stops_the_run_and_marks_nothing_failed(
    agentrun: Run, docs: Path, llm: LlmServer, mark: str, reason: str
) -> None:
    (docs / "b.md").write_text(f"<<{mark} times=1>>")
    ended = start(agentrun, llm)
    assert ended.returncode == 4
    assert llm.requests_of() == {"docs/a.md": 1, "docs/b.md": 1}
    first = next(line for line in ended.stderr.splitlines() if ": 3 items, " not in line)
    assert reason in first
    assert {name: count for name, count in status(agentrun).items() if count} == {"done": 1, "pending": 2}
    again = agentrun("resume", "summarise", OPENAI_API_KEY=KEY)
    assert again.returncode == 0, again.stderr
    assert llm.requests_of() == {"docs/a.md": 1, "docs/b.md": 2, "docs/c.md": 1}


def test_an_answer_that_was_cut_off_fails_its_item_alone(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    (docs / "b.md").write_text("<<length>>")
    ended = start(agentrun, llm, "--max-output-tokens", "9")
    assert ended.returncode == 1
    assert {name: count for name, count in status(agentrun).items() if count} == {"done": 2, "failed": 1}
    failures = json.loads(agentrun("failures", "summarise", "--json").stdout.splitlines()[0])
    assert "cut off at max_output_tokens = 9" in json.dumps(failures)
    assert llm.requests_of()["docs/b.md"] == 1


def test_the_key_is_in_nothing_that_is_kept_or_shown(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    (docs / "b.md").write_text("<<echo>>")
    ended = start(agentrun, llm)
    shown = ended.stdout + ended.stderr
    for command in ("show", "log"):
        shown += agentrun(command, "summarise", "docs/b.md").stdout
    shown += agentrun("failures", "summarise", "--json").stdout
    assert "Bearer [key]" in shown and KEY not in shown
    assert llm.asked[0].authorization == f"Bearer {KEY}"
    kept = [path for path in docs.parent.rglob("*") if path.is_file()]
    assert any(path.name == "state.json" for path in kept)
    assert [path for path in kept if KEY.encode() in path.read_bytes()] == []


def test_a_missing_key_is_told_before_anything_is_begun(agentrun: Run, docs: Path) -> None:
    ended = agentrun(
        "start", "--prompt", "{text}", *MODEL, "--items", "docs/*.md", OPENAI_API_KEY="", OPENAI_BASE_URL=""
    )
    assert ended.returncode == 2
    assert "openai:gpt-5-mini needs OPENAI_API_KEY; set it in the environment, or in env_file" in ended.stderr
    assert not (docs.parent / ".agentrun").exists()


def test_a_key_may_be_in_the_env_file(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    (docs.parent / ".env").write_text(f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={llm.url}\n")
    given = ("--prompt", "{text}", *MODEL, "--items", "docs/*.md", "--env-file", ".env")
    environ = {"OPENAI_API_KEY": "unset"}
    ended = agentrun("start", *given, **environ)
    assert ended.returncode == 0, ended.stderr
    assert {asked.authorization for asked in llm.asked} == {"Bearer unset"}  # what is set outside counts


def test_a_prompt_may_be_edited_while_a_run_is_unfinished(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    assert start(agentrun, llm, "--limit", "1").returncode == 4
    (docs.parent / "summarise.md").write_text("Now key={key}: {text}")
    ended = agentrun("resume", "summarise", "--model", "openai:gpt-5", OPENAI_API_KEY=KEY)
    assert ended.returncode == 0, ended.stderr
    assert "the agent has changed" in ended.stderr
    assert [asked.text[:3] for asked in llm.asked] == ["Sum", "Now", "Now"]
    assert [asked.body["model"] for asked in llm.asked] == ["gpt-5-mini", "gpt-5", "gpt-5"]


def test_another_kind_of_agent_under_the_same_name_is_refused(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    assert start(agentrun, llm, "--limit", "1", "--name", "summarise").returncode == 4
    ended = agentrun("start", "--name", "summarise", "--items", "docs/*.md", "--", "cat", "{path}")
    assert ended.returncode == 2 and "an unfinished run of this name" in ended.stderr


def test_the_plan_asks_nothing_and_imports_nothing_heavy(agentrun: Run, docs: Path, llm: LlmServer) -> None:
    ended = start(agentrun, llm, "--plan", PYTHONPROFILEIMPORTTIME="1")
    assert ended.returncode == 0 and llm.asked == []
    assert "agentrun.agents.prompts.prompt" in ended.stderr and "pydantic_ai" not in ended.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--prompt", "{text}"], "prompt needs a model; write model ="),
        (["--prompt", "{txt}", *MODEL], "prompt has the placeholder {txt}; did you mean {text}?"),
        (["--prompt", "{text}", "--model", "gpt-5"], 'model is "gpt-5"; write the provider and the model: openai:…'),
        (["--prompt", "{text}", *MODEL, "--temperature", "3"], "temperature is 3.0; write a number from 0 to 2"),
        (["--prompt", "{text}", *MODEL, "--budget", "0"], "run.budget is 0; write US dollars, such as 5.00"),
        (["--prompt", "{text}", *MODEL, "--serve"], "serve is for a command; this job has a prompt: leave it out"),
        (["--prompt", "@none.md", *MODEL], "prompt: there is no file"),
        (["a.py:f", "--prompt", "{text}", *MODEL], "a.py:f: an agent and a --prompt are both given; give one of them"),
    ],
)
def test_a_wrong_flag_is_refused(agentrun: Run, docs: Path, given: list[str], said: str) -> None:
    ended = agentrun("start", *given, "--items", "docs/*.md", OPENAI_API_KEY=KEY)
    assert ended.returncode == 2 and said in ended.stderr
