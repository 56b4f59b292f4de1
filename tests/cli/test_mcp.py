"""What a client of `agentrun mcp` may do. The server itself, with the SDK's client: tests/areas/mcp."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.errors import UsageError
from agentrun_cli.mcp.allowed import Target, find_target, read_allowed, read_job_files
from agentrun_cli.mcp.jobs import Jobs
from agentrun_cli.mcp.texts import Texts
from cli.conftest import Run

JOB = 'agent = "agent.py:agent"\n[items]\nlines = "names.txt"\n'
AGENT = "def agent(item, ctx):\n    ctx.usage(cost=0.01)\n    return item.text\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "names.txt").write_text("Ada\nBen\nCyd\n")
    return tmp_path


def target(here: Path, run: str = "", *, asked: str = "drafts") -> Target:
    (here / "drafts.toml").write_text(f"{JOB}[run]\n{run}\n")
    return find_target(asked, read_job_files(["drafts.toml"], here, None), Jobs(here))


def test_words_to_allow_are_repeated_or_separated_by_commas() -> None:
    assert read_allowed([]) == []
    assert read_allowed(["skip, answer", "start"]) == ["answer", "skip", "start"]
    assert read_allowed(["answer,answer"]) == ["answer"]
    for wrong in ("answers", "ANSWER", "", "answer,,redo", "resume"):
        with pytest.raises(UsageError, match="allow one or more of answer, redo, skip, start"):
            read_allowed([wrong])


@pytest.mark.parametrize("asked", ["drafts.toml", "./drafts.toml", "{here}/drafts.toml", "drafts", "link.toml"])
def test_a_job_file_is_asked_for_as_it_was_named_by_its_path_or_by_its_jobs_name(here: Path, asked: str) -> None:
    (here / "link.toml").symlink_to("drafts.toml")
    found = target(here, asked=asked.format(here=here))
    assert found.words == [str(here / "drafts.toml")]


def test_two_job_files_of_one_name_must_be_told_apart(here: Path) -> None:
    for folder in ("one", "two"):
        (here / folder).mkdir()
        (here / folder / "job.toml").write_text('name = "same"\n' + JOB)
        (here / folder / "names.txt").touch()
    files = read_job_files(["one/job.toml", "two/job.toml"], here, None)
    with pytest.raises(UsageError, match="several job files have this name; give one of same"):
        find_target("same", files, Jobs(here))
    assert find_target("two/job.toml", files, Jobs(here)).words == [str(here / "two/job.toml")]


def test_a_budget_is_never_above_the_files(here: Path) -> None:
    limited = target(here, "budget = 5")
    assert (limited.budget(None), limited.budget(2), limited.budget(5)) == (None, 2, 5)
    with pytest.raises(UsageError, match=r"a budget of \$5.01 is above the job file's, \$5; ask for less"):
        limited.budget(5.01)
    with pytest.raises(UsageError, match=r"a budget of \$5.0000001 is above the job file's, \$5;"):
        limited.budget(5.0000001)


def test_where_people_set_no_limit_any_budget_is_one(here: Path) -> None:
    free = target(here)
    assert (free.budget(None), free.budget(1000)) == (None, 1000)


def test_a_higher_budget_that_a_person_gave_the_run_is_not_for_others(here: Path, agentrun: Run) -> None:
    (here / "drafts.toml").write_text(f"{JOB}[run]\nbudget = 5\n")
    agentrun("start", "drafts.toml", "--limit", "1", "--budget", "9")
    raised = target(here, "budget = 5")
    assert raised.opened.job.budget == 9
    assert (raised.budget(None), raised.budget(4)) == (5, 4)
    with pytest.raises(UsageError, match="above the job file's"):
        raised.budget(6)


@pytest.mark.parametrize("limit", ["", "budget = 5"])
def test_a_limit_that_a_person_gave_the_run_is_not_raised(here: Path, agentrun: Run, limit: str) -> None:
    (here / "drafts.toml").write_text(f"{JOB}[run]\n{limit}\n")
    agentrun("start", "drafts.toml", "--limit", "1", "--budget", "2")
    capped = target(here, limit)
    assert (capped.budget(None), capped.budget(1)) == (None, 1)
    with pytest.raises(UsageError, match=r"above the unfinished run's, \$2"):
        capped.budget(3)


def test_a_run_with_other_params_can_be_continued_if_its_job_file_was_named(here: Path, agentrun: Run) -> None:
    text = 'name = "letters-{to}"\nagent = "agent.py:agent"\n[params]\nto = "us"\n[items]\nlines = "names.txt"\n'
    (here / "letters.toml").write_text(text)
    agentrun("start", "letters.toml", "--set", "to=them", "--limit", "1")
    agentrun("start", "agent.py:agent", "--items", "names.txt", "--as", "lines", "--name", "other", "--limit", "1")
    files, jobs = read_job_files(["letters.toml"], here, None), Jobs(here)
    found = find_target("letters-them", files, jobs)
    assert found.words == ["letters-them", "--state-dir", str(here / ".agentrun")]
    with pytest.raises(UsageError, match="not one of the jobs that this server may start"):
        find_target("other", files, jobs)


def test_a_text_is_cut_once_it_is_over_the_limit() -> None:
    texts = Texts("job", "key")
    assert texts.text("output", "x" * 4000) == "x" * 4000 and texts.notes == []
    assert texts.text("output", "x" * 4001) == "x" * 4000 and len(texts.notes) == 1
    assert texts.value("small", {"a": [1, None]}) == {"a": [1, None]}
    assert texts.value("large", ["x" * 5000])[:4] == '["xx'
    assert texts.whole["large"] == f'["{"x" * 5000}"]'
    assert texts.text("odd", "a\udcffb") == "a\\udcffb"
