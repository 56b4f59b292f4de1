from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.checkpoint.summary import first_checkpoint
from agentrun.errors import JobError, UsageError
from agentrun.job.fields import FLAGS_LABEL, Layer
from agentrun.job.known import read_kept_job
from agentrun.job.opening import OpenJob, agent_environment
from agentrun.store.folder.catalogue import FolderCatalogue
from agentrun.views.finding import open_job, store_of

JOB = """
agent = "agent.py:triage"
[items]
files = "docs/*.txt"
[run]
concurrency = 2
"""


def opened(base: Path, ref: str | None, **flags: Any) -> OpenJob:
    return open_job(ref, flags=Layer(FLAGS_LABEL, flags), cwd=base, environ={})


def keep(found: OpenJob) -> None:
    """As a launch does."""
    store, checkpoint = store_of(found), first_checkpoint(found.job, number=1)
    checkpoint.seq, checkpoint.context.kept = 1, dict(found.kept.values)
    lease = store.lock()
    store.load()
    store.commit(checkpoint)
    store.keep("job.json", [found.job_json])
    lease.release()


def folder_of(found: OpenJob) -> Path:
    return found.root / found.job.name


def test_flags_count_over_what_was_kept_and_that_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "triage.toml").write_text(JOB)
    first = opened(tmp_path, "triage.toml", run={"concurrency": 5, "retries": 1})
    assert (first.job.name, folder_of(first)) == ("triage", tmp_path / ".agentrun" / "triage")
    keep(first)
    second = opened(tmp_path, "triage.toml", run={"retries": 7})
    assert (second.job.concurrency, second.job.retries) == (5, 7)
    assert second.kept.get("run") == {"concurrency": 5, "retries": 7}
    fresh = open_job("triage.toml", cwd=tmp_path, environ={}, fresh=True)
    assert (fresh.job.concurrency, fresh.kept.values) == (2, {})


def test_a_job_is_found_again_by_its_name_from_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "triage.toml").write_text(JOB)
    keep(opened(tmp_path, "triage.toml"))
    (tmp_path / "docs").mkdir()
    again = opened(tmp_path / "docs", "triage")
    assert again.job.base == tmp_path and again.job.file == tmp_path / "triage.toml"
    assert folder_of(again) == tmp_path / ".agentrun" / "triage"


def test_a_job_without_a_file_is_resumed_by_name_with_all_that_was_asked(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"command": ["./fetch.sh", "{}"], "items": {"lines": "urls.txt"}, "name": "fetch"}
    keep(opened(tmp_path, None, **flags, output="out.jsonl", run={"retries": 0}))
    again = opened(tmp_path, "fetch")
    assert again.job.command == ("./fetch.sh", "{}") and again.job.output == "out.jsonl" and again.job.retries == 0
    (folder_of(again) / "state.json").unlink()
    assert opened(tmp_path, "fetch", run={"concurrency": 3}).job.concurrency == 3


DOCS: dict[str, Any] = {"files": "docs/*.txt"}


def test_a_function_in_a_file_and_its_items_name_the_job(tmp_path: Path) -> None:
    found = opened(tmp_path, "summarise.py:summarise", items=DOCS)
    assert (found.job.name, found.job.agent) == ("summarise-fd05", "summarise.py:summarise")
    assert found.job.output == "summarise-fd05.results.jsonl"
    kept = read_job_json_of(found)
    assert kept["values"]["agent"] == "summarise.py:summarise" and kept["base"] == "."
    assert kept["asked"].startswith("fd05")


def test_the_same_ask_finds_its_own_job_and_another_is_another(tmp_path: Path) -> None:
    ref = "summarise.py:summarise"
    keep(opened(tmp_path, ref, items=DOCS, run={"concurrency": 4}))
    again = opened(tmp_path, f"./{ref}", items={"files": "./docs/*.txt"}, output="out.jsonl")
    assert (again.job.name, again.job.concurrency) == ("summarise-fd05", 4)
    assert opened(tmp_path, ref, items={"files": "mail/*.txt"}).job.name not in ("summarise", "summarise-fd05")
    assert opened(tmp_path, ref, items=DOCS, name="mine").job.name == "mine"
    assert opened(tmp_path, "summarise").job.name == opened(tmp_path, ref).job.name == "summarise-fd05"


def test_a_command_without_items_is_the_job_that_has_it(tmp_path: Path) -> None:
    keep(opened(tmp_path, None, command=["./fetch.sh", "{}"], items={"lines": "urls.txt"}))
    assert opened(tmp_path, None, command=["./fetch.sh", "{}"]).job.items.pattern == "urls.txt"
    with pytest.raises(JobError, match="no items are given"):
        opened(tmp_path, None, command=["./fetch.sh", "-v", "{}"])
    keep(opened(tmp_path, None, command=["./fetch.sh", "{}"], items={"lines": "more.txt"}))
    with pytest.raises(UsageError, match=r"several jobs match: fetch-.*; give the full name of one, such as fetch-"):
        opened(tmp_path, None, command=["./fetch.sh", "{}"])


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_job_under_the_name_of_the_versions_before_is_found_by_the_same_command_alone(
    tmp_path: Path, is_finished: bool
) -> None:
    before = opened(tmp_path, "summarise.py:summarise", items=DOCS, name="summarise")
    keep(before)
    if is_finished:
        (folder_of(before) / "state.json").unlink()
        (folder_of(before) / "runs").mkdir()
    again = opened(tmp_path, "summarise.py:summarise", items={"files": "./docs/*.txt"}, run={"concurrency": 2})
    assert (again.job.name, again.job.output) == ("summarise", "summarise.results.jsonl")
    assert opened(tmp_path, "other.py:summarise", items=DOCS).job.name != "summarise"
    assert opened(tmp_path, "summarise.py:summarise", items={"files": "*.txt"}).job.name != "summarise"
    assert opened(tmp_path, "summarise.py:summarise", items=DOCS, params={"a": "1"}).job.name != "summarise"


def test_what_is_under_the_name_of_the_versions_before_and_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".agentrun" / "summarise").mkdir(parents=True)
    for text in ("{", '{"version": 1, "base": ".", "values": {"items": 1}}', '{"version": 1, "file": "job.toml"}'):
        (tmp_path / ".agentrun" / "summarise" / "job.json").write_text(text)
        assert opened(tmp_path, "summarise.py:summarise", items=DOCS).job.name == "summarise-fd05"


def test_two_jobs_whose_names_are_the_same_by_chance_are_told_apart(tmp_path: Path) -> None:
    first = opened(tmp_path, "summarise.py:summarise", items=DOCS)
    keep(first)
    path = folder_of(first) / "job.json"
    path.write_text(path.read_text().replace('"asked":"fd05', '"asked":"fd050'))
    with pytest.raises(UsageError, match=r"summarise-fd05: another job has this name by chance; .* --name"):
        opened(tmp_path, "summarise.py:summarise", items=DOCS)
    by_name = opened(tmp_path, "summarise-fd05", temperature=None)
    assert read_job_json_of(by_name)["asked"].startswith("fd050")


def test_in_a_shared_state_folder_the_same_ask_in_another_folder_is_another_job(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    flags = Layer(FLAGS_LABEL, {"command": ["wc"], "items": DOCS})
    names = {
        open_job(None, flags=flags, cwd=tmp_path / name, state_dir=str(tmp_path / "state"), environ={}).job.name
        for name in ("here", "there")
    }
    assert len(names) == 2


def read_job_json_of(found: OpenJob) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(found.job_json)
    return value


def test_params_choose_the_folder(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('name = "triage-{customer}"\n' + JOB + '[params]\ncustomer = ""\n')
    acme = opened(tmp_path, "job.toml", params={"customer": "acme"})
    assert folder_of(acme).name == "triage-acme"
    keep(acme)
    assert opened(tmp_path, "triage-acme").job.params == {"customer": "acme"}
    with pytest.raises(JobError, match="customer"):
        opened(tmp_path, "job.toml")


def test_a_state_dir_places_it_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "triage.toml").write_text(JOB)
    by_flag = open_job("triage.toml", cwd=tmp_path, state_dir=str(tmp_path / "x"), environ={})
    by_variable = open_job("triage.toml", cwd=tmp_path, environ={"AGENTRUN_STATE_DIR": str(tmp_path / "y")})
    assert (folder_of(by_flag), folder_of(by_variable)) == (tmp_path / "x" / "triage", tmp_path / "y" / "triage")


def test_what_was_kept_and_cannot_be_read_is_for_the_launch_to_report(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for text in (b"", b"[]", b"{}", b'{"context": 1}', b'{"context": {"kept": []}}', b"\xff"):
        (folder / "state.json").write_bytes(text)
        assert FolderCatalogue(tmp_path).kept_flags("job") is None


def test_what_was_kept_counts_in_a_state_that_was_edited_by_hand_too(tmp_path: Path) -> None:
    """Or a launch that accepts the edit would forget the budget, and keep it so."""
    (tmp_path / "triage.toml").write_text(JOB)
    keep(opened(tmp_path, "triage.toml", run={"budget": 5.0}))
    path = tmp_path / ".agentrun" / "triage" / "state.json"
    path.write_bytes(path.read_bytes().replace(b'"total": 0', b'"total": 3'))
    again = opened(tmp_path, "triage.toml")
    assert again.job.budget == 5.0 and again.kept.values == {"run": {"budget": 5.0}}


def test_a_job_whose_job_json_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / ".agentrun" / "fetch" / "runs").mkdir(parents=True)
    root = tmp_path / ".agentrun"
    assert read_kept_job(FolderCatalogue(root), "fetch", root) is None
    with pytest.raises(UsageError, match=r"job\.json is gone"):
        opened(tmp_path, "fetch")


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    return dict(Layer("below", below).merge(Layer("above", above)).values)


def test_another_kind_of_items_or_agent_replaces_the_one_below() -> None:
    below = {"agent": "a.py:f", "items": {"jsonl": "a", "key": "id"}, "run": {"retries": 1, "rate": "1/s"}, "name": "n"}
    above = {"command": ["x"], "items": {"files": "*"}, "run": {"retries": 2, "rate": None}, "name": None}
    assert merged(below, above) == {
        "command": ["x"],
        "items": {"files": "*"},
        "run": {"retries": 2, "rate": "1/s"},
        "name": "n",
    }


def test_what_goes_with_a_kind_of_agent_goes_where_that_is_replaced() -> None:
    below = {"command": ["x"], "parse": "json", "serve": True, "name": "n"}
    assert merged(below, {"prompt": "{text}", "model": "openai:m"}) == {
        "prompt": "{text}",
        "model": "openai:m",
        "name": "n",
    }
    assert merged({"prompt": "a", "model": "b", "system": "c"}, {"prompt": "d"}) == {
        "prompt": "d",
        "model": "b",
        "system": "c",
    }
    assert merged({"agent": "a.py:f"}, {"prompt": None}) == {"agent": "a.py:f"}


def test_a_prompt_without_a_file_is_resumed_by_name_with_all_that_was_asked(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"prompt": "@in/ask.md", "model": "openai:m", "items": {"lines": "x.txt"}}
    first = opened(tmp_path, None, **flags, temperature=0.0, run={"budget": 5.0})
    assert first.job.name.startswith("ask-")
    keep(first)
    again = opened(tmp_path, "ask", model="openai:n")
    assert (again.job.prompt, again.job.model, again.job.temperature) == ("@in/ask.md", "openai:n", 0.0)
    assert again.job.budget == 5.0
    assert opened(tmp_path, None, **{**flags, "prompt": "Sum up {text}"}).job.name.startswith("sum-up-")


def test_the_environment_counts_over_the_env_file_and_what_is_missing_is_told(tmp_path: Path) -> None:
    (tmp_path / "triage.toml").write_text('env_file = ".env"\nneeds_env = ["KEY", "OTHER"]\n' + JOB)
    (tmp_path / ".env").write_text("KEY=from the file\nOTHER=too\n")
    job = opened(tmp_path, "triage.toml").job
    assert agent_environment(job, {}) == {"KEY": "from the file", "OTHER": "too"}
    assert agent_environment(job, {"KEY": "mine"}) == {"OTHER": "too"}
    (tmp_path / ".env").write_text("KEY=\n")
    with pytest.raises(JobError, match=r"needs KEY, OTHER; set it in \.env"):
        agent_environment(job, {})


def test_a_secret_of_the_env_file_is_in_nothing_that_is_kept(tmp_path: Path) -> None:
    (tmp_path / "triage.toml").write_text('env_file = ".env"\n' + JOB)
    (tmp_path / ".env").write_text("KEY=sk-canary\n")
    found = opened(tmp_path, "triage.toml")
    assert b"canary" not in found.job_json + orjson.dumps(found.kept.values)


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_known_name_means_its_job_though_the_file_has_another_one(tmp_path: Path, is_noted: bool) -> None:
    """What versions before this one wrote does not note the name."""
    (tmp_path / "triage.toml").write_text('name = "triage"' + JOB)
    third = opened(tmp_path, "triage.toml", name="third {{}}", run={"retries": 7})
    assert read_job_json_of(third)["name"] == "third {{}}"
    keep(third)
    (folder_of(third) / "state.json").unlink()
    (folder_of(third) / "runs").mkdir()
    if not is_noted:
        path = folder_of(third) / "job.json"
        path.write_bytes(orjson.dumps({"version": 1, "file": "triage.toml", "params": {}}))
    again = opened(tmp_path, "third {}")
    assert (again.job.name, again.job.retries) == ("third {}", 3)
    assert folder_of(again) == folder_of(third)
    assert read_job_json_of(again)["name"] == again.kept.get("name") == "third {{}}"
    assert opened(tmp_path, "third {}", name="fourth").job.name == "fourth"
    assert opened(tmp_path, "triage.toml").job.name == "triage"
    assert "name" not in read_job_json_of(opened(tmp_path, "triage.toml"))


def test_a_param_that_is_new_in_the_file_can_be_given_with_the_name(tmp_path: Path) -> None:
    text = 'name = "triage-{customer}"\n' + JOB + '[params]\ncustomer = ""\n'
    (tmp_path / "job.toml").write_text(text)
    keep(opened(tmp_path, "job.toml", params={"customer": "acme"}))
    (tmp_path / "job.toml").write_text(text + 'region = ""\n')
    again = opened(tmp_path, "triage-acme", params={"region": "eu"})
    assert (again.job.name, again.job.params) == ("triage-acme", {"customer": "acme", "region": "eu"})
    assert read_job_json_of(again)["params"] == {"customer": "acme", "region": "eu"}
