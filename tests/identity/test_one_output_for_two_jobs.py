"""Two jobs with one output: never does one write over the other's results."""

from __future__ import annotations

import pytest

from identity.place import Place
from waiting import eventually

ITEMS = 3
AGENT = """\
import os, pathlib, time

def {name}(item):
    here = pathlib.Path(__file__).parent
    with open(here / "{name}.log", "a") as log:
        log.write(item.key + "\\n")
    while item.index == 1 and not (here / "let-{name}").exists():
        time.sleep(0.005)
    return "{name}: " + item.text
"""


@pytest.fixture
def jobs(place: Place) -> Place:
    """Two jobs, each of which waits at its second item until it is let on."""
    place.lines(ITEMS)
    for name in ("ada", "bea"):
        place.write(f"{name}.py", AGENT.format(name=name))
        place.job(name, agent=f"{name}.py:{name}", run="concurrency = 1")
    return place


def let(place: Place, name: str) -> None:
    (place.folder / f"let-{name}").touch()


def made_by(name: str) -> dict[str, str]:
    return {f"item {n}": f"{name}: item {n}" for n in range(ITEMS)}


def test_the_second_of_two_at_once_is_told_before_it_runs_anything(jobs: Place) -> None:
    ada = jobs.begin("start", "ada.toml", "-o", "out.jsonl")
    eventually(lambda: "item 1" in jobs.said("ada.log"), "ada is at work", alive=ada)
    let(jobs, "bea")
    ended = jobs("start", "bea.toml", "-o", "out.jsonl")
    assert ended.returncode == 2, ended.stderr
    assert "by the job ada" in ended.stderr and "-o" in ended.stderr
    assert not jobs.said("bea.log"), "something was run"
    let(jobs, "ada")
    assert ada.communicate() and ada.returncode == 0
    assert jobs.outputs("out.jsonl") == made_by("ada")
    assert not [path.name for path in jobs.folder.iterdir() if path.name.endswith(".claim")]


def test_an_unfinished_run_keeps_its_output_until_it_continues_with_another(jobs: Place) -> None:
    let(jobs, "ada")
    let(jobs, "bea")
    assert jobs("start", "ada.toml", "-o", "out.jsonl", "--limit", "1").returncode == 4
    ended = jobs("start", "bea.toml", "-o", "out.jsonl")
    assert ended.returncode == 2, ended.stderr
    assert "by the job ada" in ended.stderr and "agentrun clear ada" in ended.stderr
    assert jobs("start", "bea.toml", "-o", "out.jsonl", "--plan").stdout.count("by the job ada") == 1
    assert jobs("resume", "ada", "-o", "ada.jsonl").returncode == 0
    ended = jobs("start", "bea.toml", "-o", "out.jsonl")
    assert ended.returncode == 0, ended.stderr
    assert jobs.outputs("out.jsonl") == made_by("bea")


@pytest.mark.parametrize("second_is_done", [False, True])
def test_the_first_finds_out_before_it_replaces_anything_and_continues_elsewhere(
    jobs: Place, second_is_done: bool
) -> None:
    """The second one got there although the first was at work: its claim was removed by hand."""
    ada = jobs.begin("start", "ada.toml", "-o", "out.jsonl")
    eventually(lambda: "item 1" in jobs.said("ada.log"), "ada is at work", alive=ada)
    for path in jobs.folder.glob(".*.claim"):
        path.unlink()
    bea = jobs.begin("start", "bea.toml", "-o", "out.jsonl")
    eventually(lambda: "item 1" in jobs.said("bea.log"), "bea is at work", alive=bea)
    if second_is_done:
        let(jobs, "bea")
        assert bea.communicate() and bea.returncode == 0
    let(jobs, "ada")
    _, said = ada.communicate()
    assert ada.returncode == 4, said
    assert ("was written by another program" if second_is_done else "by the job bea") in said
    assert "agentrun resume ada" in said and "-o " in said
    if not second_is_done:
        let(jobs, "bea")
        assert bea.communicate() and bea.returncode == 0
    assert jobs.outputs("out.jsonl") == made_by("bea")

    ran = jobs.said("ada.log")
    ended = jobs("resume", "ada", "-o", "other.jsonl")
    assert ended.returncode == 0, ended.stderr
    assert jobs.outputs("other.jsonl") == made_by("ada") and jobs.said("ada.log") == ran
    assert jobs.outputs("out.jsonl") == made_by("bea")


def test_a_claim_is_never_taken_for_an_item(place: Place) -> None:
    """Not even by a pattern that asks for hidden files."""
    place.write(".one.claim", "an item of its own")
    place.write("agent.py", "def agent(item):\n    return item.path.read_text()\n")
    place.job(agent="agent.py:agent", items='files = ".*.claim"', output="out.jsonl")
    ended = place("start", "work.toml")
    assert ended.returncode == 0, ended.stderr
    assert place.outputs("out.jsonl") == {".one.claim": "an item of its own"}
