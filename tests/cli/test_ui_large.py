"""agentrun ui: values that are too large for a page or a form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.made import Made
from cli.serving import Ui
from needs import require_module

require_module("starlette", "uvicorn", extra="ui")

MEGABYTES, PAGE_BYTES = 3 << 20, 1 << 20
LONG = "däy " * (MEGABYTES // 5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    one = Made(tmp_path_factory.mktemp("large"), [*"abcdef"])
    many = {f"field {n}": "x" * 40 for n in range(50_000)}
    one.commit(
        one.waiting("a", "Send it?", draft=LONG, copies=2),
        one.waiting("b", LONG),
        one.waiting("c", "All of them?", **{f"detail {n}": n for n in range(1200)}),
        one.entry("d", output=many),
        one.entry("e", output=LONG),
        one.failed("f", LONG),
    )
    return one


@pytest.fixture(scope="module")
def ui(made: Made) -> Iterator[Ui]:
    one = Ui(made.base)
    yield one
    one.close()


@pytest.mark.parametrize(
    "path", ["items", "results", "failures", "items/0", "items/1", "items/2", "items/3", "items/4", "items/5", "review"]
)
def test_a_page_of_large_values_is_small(ui: Ui, path: str) -> None:
    said = ui.get(f"/jobs/drafts/{path}")
    assert said.status == 200 and len(said.body) < PAGE_BYTES


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_question_with_large_details_can_be_answered(made: Made, ui: Ui, index: int) -> None:
    form = ui.form(f"/jobs/drafts/review?from={index}", "/answer")
    said = ui.press(form, yes="1", **({"d1": "3"} if index == 0 else {}))
    assert said.status == 303 and "said=yes" in said["location"], said.text
    answer = made.posted()[-1]["answer"]
    assert made.posted()[-1]["key"] == "abc"[index]
    assert answer["details"] == ({"copies": 3} if index == 0 else {}), "what is only shown stays as it is"


def test_a_download_comes_in_pieces_and_whole(tmp_path: Path) -> None:
    made = Made(tmp_path, [f"item {n}" for n in range(3000)])
    made.commit(*(made.entry(key, output="x" * 200) for key in made.keys))
    ui = Ui(made.base)
    try:
        lines = ui.get("/jobs/drafts/results.jsonl").text.splitlines()
        assert len(lines) == 3000 and lines[-1].startswith('{"index":2999,"key":"item 2999"')
        assert len(ui.get("/jobs/drafts/results.csv").text.splitlines()) == 3001
    finally:
        ui.close()
