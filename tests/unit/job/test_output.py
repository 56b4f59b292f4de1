from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import JobError
from agentrun.job.build import build_job
from agentrun.job.fields import Layer
from agentrun.job.output import OutputForm, OutputTemplate

BASE = Path("/jobs/triage")
WHEN = {"run_id": "r1", "date": "2026-05-04"}


def build(output: str, files: str = "docs/*.txt", **more: Any) -> OutputTemplate:
    values = {"agent": "a.py:f", "items": {"files": files}, "output": output, **more}
    return build_job([Layer("job.toml", values)], base=BASE, file=None, default_name="j").output_template


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("out/r.jsonl", "jsonl"),
        ("r.txt", "jsonl"),
        ("out/r.csv", "csv"),
        ("R.CSV", "csv"),
        ("out/{key}.md", "folder"),
        ("out/{index}.csv", "folder"),
        ("out/{{key}}.md", "jsonl"),
    ],
)
def test_the_template_decides_the_form(text: str, form: OutputForm) -> None:
    assert build(text).form == form


def test_a_folder_has_a_path_and_a_template_for_its_files() -> None:
    template = build("out/{date}/{run_id}-{key}.md")
    assert template.path(BASE, **WHEN) == BASE / "out/2026-05-04"
    assert template.names(**WHEN) == "r1-{key}.md"
    assert build("r.csv").names(**WHEN) == ""


def test_a_param_called_key_is_a_param() -> None:
    template = build("out/{key}.jsonl", params={"key": "acme"})
    assert (template.form, template.path(BASE, **WHEN)) == ("jsonl", BASE / "out/acme.jsonl")


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        ("{key}.md", "write a folder of its own"),
        ("./{key}.md", "write a folder of its own"),
        ("../{key}.md", "write a folder of its own"),
        ("/{key}.md", "write a folder of its own"),
        ("out/{key}/a.md", "in the last part only"),
        ("out/" + "x" * 101 + "{key}", "shorten it"),
        ("out/" + "x" * 201 + ".csv", "at most 200 bytes; shorten it"),
        ("x" * 201 + "/a.jsonl", "at most 200 bytes; shorten it"),
        ("out/\udcff.csv", "write it in UTF-8"),
        ("out/\udcff{key}", "write it in UTF-8"),
        ("out/", "write the path of a file"),
        ("docs/{key}.txt", "results would become items"),
        ("docs/{key}", "results would become items"),
    ],
)
def test_what_cannot_be_an_output_is_refused_with_what_to_write(output: str, remedy: str) -> None:
    with pytest.raises(JobError, match=remedy):
        build(output)


@pytest.mark.parametrize(
    ("output", "files"),
    [("docs/{key}.md", "docs/*.txt"), ("docs/out/{key}.txt", "docs/*.txt"), ("out/{key}.txt", "**/*.txt")],
)
def test_files_may_lie_beside_the_items_where_they_are_never_taken_for_some(output: str, files: str) -> None:
    assert build(output, files).form == "folder"
