"""What a run costs, and the files that its items leave: in status, items, show, results and at a launch's end."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agentrun.checkpoint.summary import OpenQuestion, Summary
from agentrun.money.budget import Totals
from agentrun_cli.drawing.closing import closing_lines

Run = Callable[..., subprocess.CompletedProcess[str]]

AGENT = """\
import agentrun

def work(item, ctx):
    ctx.usage(cost=item["n"] / 100, model="m", input_tokens=1000 * item["n"], output_tokens=10)
    if item["n"] == 2:
        ctx.step("outline", lambda: "three points")
        ctx.ask("Send [bold]this[/bold]\\x1b[31m?", draft="Dear Ada,\\nhello")
    if item["n"] == 3:
        raise agentrun.Fail("three is odd")
    (ctx.out / "deep").mkdir()
    (ctx.out / "deep" / "page.html").write_text(item["id"])
    return item["n"]
"""


@pytest.fixture
def paid(tmp_path: Path) -> Path:
    """A job of four items: one is done, one asks, one fails, and a free one is done."""
    folder = tmp_path / "paid"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "job.toml").write_text('agent = "agent.py:work"\n[items]\njsonl = "items.jsonl"\nkey = "id"\n')
    rows = [{"id": "one", "n": 1}, {"id": "two/b", "n": 2}, {"id": "three", "n": 3}, {"id": "none", "n": 0}]
    (folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def start(agentrun: Run, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return agentrun("start", "job.toml", *flags, cwd=folder)


def test_a_launch_that_waits_lists_the_questions_with_the_commands_that_answer_them(agentrun: Run, paid: Path) -> None:
    ended = start(agentrun, paid, "--allow-failures", "1")
    assert ended.returncode == 3
    lines = ended.stderr.splitlines()
    asks = next(number for number, line in enumerate(lines) if "asks" in line)
    assert lines[asks].split(maxsplit=1)[1] == "two/b: Send [bold]this[/bold]?"
    assert lines[asks + 1].strip() == "agentrun answer paid two/b --yes"
    assert lines[-2:] == ["  answer with:  agentrun review paid", "  to resume:    agentrun resume paid"]
    assert "  cost:         $0.06, 6,000 tokens in, 40 out" in lines


def test_status_has_the_cost_the_tokens_and_the_budget(agentrun: Run, paid: Path) -> None:
    start(agentrun, paid, "--budget", "2.5")
    one = agentrun("status", "paid", cwd=paid).stdout
    assert "  cost        $0.06 of a budget of $2.50; 6,000 tokens in, 40 out\n" in one
    assert "  answer:     agentrun review paid\n" in one
    said = json.loads(agentrun("status", "paid", "--json", cwd=paid).stdout)
    assert (said["cost"], said["tokens"], said["budget"]) == (0.06, 6040, 2.5)
    head, row = agentrun("status", cwd=paid).stdout.splitlines()
    assert "COST" in head.split() and "$0.06" in row.split()


def test_items_can_be_sorted_by_cost(agentrun: Run, paid: Path) -> None:
    start(agentrun, paid)
    head, *lines = agentrun("items", "paid", "--sort", "cost", cwd=paid).stdout.splitlines()
    assert head.split()[5:7] == ["cost", "key"]
    assert [line.split()[5:7] for line in lines] == [
        ["$0.03", "three"],
        ["$0.02", "two/b"],
        ["$0.01", "one"],
        ["$0.00", "none"],
    ]
    assert lines[1].endswith("asks: Send [bold]this[/bold]?")
    said = [json.loads(line) for line in agentrun("items", "paid", "--json", cwd=paid).stdout.splitlines()]
    assert [row["cost"] for row in said] == [0.01, 0.02, 0.03, 0.0]


def test_without_any_cost_there_is_no_column_for_it(agentrun: Run, job: Path) -> None:
    ended = agentrun("start", "job.toml", cwd=job)
    assert "$" not in ended.stderr + agentrun("items", "work", cwd=job).stdout + agentrun("status", cwd=job).stdout
    rows = agentrun("items", "work", "--json", cwd=job).stdout.splitlines()
    assert [json.loads(row)["cost"] for row in rows] == [None] * 3


def test_show_has_the_question_its_details_the_steps_and_the_cost(agentrun: Run, paid: Path) -> None:
    start(agentrun, paid)
    ended = agentrun("show", "paid", "two/b", cwd=paid)
    assert "Send [bold]this[/bold]?" in ended.stdout and "\x1b" not in ended.stdout
    assert "Dear Ada," in ended.stdout and "step outline:" in ended.stdout and "three points" in ended.stdout
    assert "cost        $0.02, 2,000 tokens in, 10 out, 1 request\n" in ended.stdout
    assert "answer it: agentrun answer paid two/b --yes" in ended.stderr
    said = json.loads(agentrun("show", "paid", "two/b", "--json", cwd=paid).stdout)
    assert said["question"]["details"] == {"draft": "Dear Ada,\nhello"} and said["usage"]["cost"] == 0.02
    assert [(step["name"], step["output"]) for step in said["steps"]] == [("outline", "three points")]


def test_files_are_in_the_line_and_in_their_place(agentrun: Run, paid: Path) -> None:
    start(agentrun, paid)
    lines = [json.loads(line) for line in agentrun("results", "paid", cwd=paid).stdout.splitlines()]
    assert [line["key"] for line in lines] == ["one", "none"]
    for line in lines:
        assert list(line) == ["index", "key", "output", "files"]
        (file,) = line["files"]
        content = (paid / file["path"]).read_bytes()
        assert file["path"] == f"paid.results.files/{line['key']}/deep/page.html" and content == line["key"].encode()
        assert (file["size"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert (paid / "paid.results.partial.jsonl").read_text() == agentrun("results", "paid", cwd=paid).stdout
    assert "   3  paid.results.files/one/deep/page.html\n" in agentrun("show", "paid", "one", cwd=paid).stdout


REMEMBERING = """\
import os, pathlib, signal, time

HERE = pathlib.Path(__file__).parent

def draw(out):
    with open(HERE / "drawn", "a") as log:
        log.write("once ")
    (out / "picture").write_text("picture")

def work(item, ctx):
    ctx.step("draw", draw, ctx.out)
    (ctx.dir / "scratch").write_text("")
    if not (HERE / "killed").exists():
        (HERE / "killed").touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return sorted(os.listdir(ctx.dir))
"""


def test_a_file_that_a_remembered_step_left_is_an_output_also_after_a_crash(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(REMEMBERING)
    (tmp_path / "one").write_text("")
    flags = ["--name", "draw", "--items", "one", "--isolation", "process"]
    assert agentrun("start", "agent.py:work", *flags).returncode == -9
    assert agentrun("resume", "draw").returncode == 0
    line = json.loads((tmp_path / "draw.results.jsonl").read_text())
    assert [file["path"] for file in line["files"]] == ["draw.results.files/one/picture"]
    assert line["output"] == ["scratch"] and (tmp_path / "drawn").read_text() == "once "
    assert not list((tmp_path / ".agentrun" / "draw" / "work").iterdir())


def test_full_results_have_cost_and_usage(agentrun: Run, paid: Path) -> None:
    start(agentrun, paid)
    line = json.loads(agentrun("results", "paid", "--full", cwd=paid).stdout.splitlines()[0])
    assert line["cost"] == 0.01 and line["files"]
    assert line["usage"] == {"cost": 0.01, "input_tokens": 1000, "output_tokens": 10, "requests": 1}


def test_what_people_did_is_shown_with_their_names(agentrun: Run, paid: Path) -> None:
    start(agentrun, paid)
    assert agentrun("edit", "paid", "one", "--output", '"better"', "--by", "ada", cwd=paid).returncode == 0
    assert agentrun("skip", "paid", "three", "--reason", "a duplicate", "--by", "bob", cwd=paid).returncode == 0
    assert agentrun("resume", "paid", cwd=paid).returncode == 3
    shown = agentrun("show", "paid", "one", cwd=paid).stdout
    assert "output, corrected by ada " in shown and '"better"' in shown and "$0.01" in shown and "page.html" in shown
    line = json.loads(agentrun("results", "paid", "--full", cwd=paid).stdout.splitlines()[0])
    assert (line["output"], line["edited"]["by"], line["cost"]) == ("better", "ada", 0.01) and line["files"]
    shown = agentrun("show", "paid", "three", cwd=paid).stdout
    assert "state       skipped, by bob\n" in shown and "a duplicate" in shown


def test_the_next_run_says_what_the_last_cost(agentrun: Run, paid: Path) -> None:
    start(agentrun, paid)
    ended = agentrun("skip", "paid", "two/b", "three", cwd=paid)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (0, "  cost:         $0.06, 6,000 tokens in, 40 out")
    assert "$0.06" in agentrun("resume", "paid", cwd=paid).stderr
    again = start(agentrun, paid, "--plan", "--fresh")
    assert "the last run finished" in again.stdout and "2 done, 2 skipped, $0.06" in again.stdout


def test_status_has_the_budget_of_tokens_too_and_what_is_no_longer_asked_is_gone(agentrun: Run, paid: Path) -> None:
    start(agentrun, paid, "--token-budget", "90000", "--budget", "2.5")
    said = json.loads(agentrun("status", "paid", "--json", cwd=paid).stdout)
    assert (said["budget"], said["token_budget"]) == (2.5, 90000)
    assert ", of a budget of 90,000" in agentrun("status", "paid", cwd=paid).stdout
    ended = agentrun("skip", "paid", "two/b", "three", cwd=paid)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(agentrun("status", "paid", "--json", cwd=paid).stdout)
    assert (said["status"], said["token_budget"]) == ("finished", 90000)


def test_a_plan_names_the_budget(agentrun: Run, paid: Path) -> None:
    planned = start(agentrun, paid, "--plan", "--budget", "5", "--token-budget", "90000").stdout
    assert "a budget of $5.00, a budget of 90,000 tokens" in planned


DYING = """\
import os, pathlib, signal

HERE = pathlib.Path(__file__).parent

async def work(item, ctx):
    if item.text == "two" and not (HERE / "killed").exists():
        (HERE / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    ctx.usage(cost=0.05)
    return item.text
"""


def test_what_a_crash_may_have_cost_is_told_without_a_budget_too(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(DYING)
    (tmp_path / "items.txt").write_text("one\ntwo\nthree\n")
    flags = ["--name", "dying", "--items", "items.txt", "--as", "lines"]
    assert agentrun("start", "agent.py:work", *flags).returncode == -9
    lost = "at least $0.05 more may be lost in crashes"
    assert f"  cost        $0.05, {lost}\n" in agentrun("status", "dying").stdout
    assert json.loads(agentrun("status", "dying", "--json").stdout)["usage"]["may_be_lost"] == 0.05
    ended = agentrun("resume", "dying", "--json")
    assert ended.returncode == 0
    assert f"  cost:         $0.15 ({lost})\n" in ended.stderr
    assert json.loads(ended.stdout)["usage"]["may_be_lost"] == 0.05
    assert f"  cost        $0.15, {lost}\n" in agentrun("status", "dying").stdout


UNPRICED = """\
def work(item, ctx):
    ctx.usage(model="my-model", input_tokens=100_000, output_tokens=1_000)
    return item.text
"""


@pytest.fixture
def unpriced(tmp_path: Path) -> Path:
    """A job with a budget, whose model nobody knows."""
    (tmp_path / "agent.py").write_text(UNPRICED)
    (tmp_path / "items.txt").write_text("one\ntwo\nthree\n")
    job = 'name = "work"\nagent = "agent.py:work"\n[items]\nlines = "items.txt"\n[run]\nbudget = 1.0\n'
    (tmp_path / "job.toml").write_text(job)
    return tmp_path


def test_a_model_without_a_price_stops_the_run_and_its_price_in_the_job_file_continues_it(
    agentrun: Run, unpriced: Path
) -> None:
    ended = agentrun("start", "job.toml")
    assert ended.returncode == 4
    assert 'a budget is set, but no price is known for the model "my-model"' in ended.stderr
    advised = re.search(r"add (\[.*\]) to (\S+), with (\w+) = … and (\w+) = …", ended.stderr)
    assert advised is not None
    with (unpriced / advised[2]).open("a") as file:
        file.write(f"{advised[1]}\n{advised[3]} = 0.25\n{advised[4]} = 2.00\n")
    ended = agentrun("resume", "work")
    assert (ended.returncode, ended.stderr.count("\n")) == (0, 4), ended.stderr
    # Of the two items that ran with a price; the first has none.
    assert "  cost:         $0.054, 300,000 tokens in, 3,000 out\n" in ended.stderr


def test_the_flags_that_limit_tokens_in_place_of_dollars_continue_it_and_are_kept(
    agentrun: Run, unpriced: Path
) -> None:
    ended = agentrun("start", "job.toml")
    advised = re.search(r"limit tokens in place of dollars: (--.*)", ended.stderr)
    assert advised is not None
    ended = agentrun("resume", "work", *advised[1].split(), "--limit", "1")
    assert ended.returncode == 4 and "--limit is reached" in ended.stderr
    said = json.loads(agentrun("status", "work", "--json").stdout)
    assert (said["budget"], said["token_budget"]) == (None, 1_000_000)
    assert agentrun("resume", "work").returncode == 0
    # After a finished run, the job file counts again.
    assert "a budget of $1.00" in agentrun("start", "job.toml", "--plan", "--fresh").stdout


def test_none_removes_the_budgets_of_the_job_file_and_of_an_earlier_launch(agentrun: Run, unpriced: Path) -> None:
    assert agentrun("start", "job.toml", "--budget", "none", "--token-budget", "101000").returncode == 4
    ended = agentrun("resume", "work", "--token-budget", "none")
    assert ended.returncode == 0, ended.stderr
    assert "budget" not in agentrun("status", "work").stdout


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--budget", "much"], 'run.budget is "much"; write US dollars, such as 5.00 ("none": no budget)'),
        (["--budget", "nan"], "run.budget is"),
        (["--token-budget", "1.5"], "run.token_budget is 1.5; write a whole number, 1 or more"),
        (["--rerun", "some"], "--rerun is 'some'; write old-agent"),
    ],
)
def test_what_is_no_budget_is_refused(agentrun: Run, unpriced: Path, flags: list[str], said: str) -> None:
    ended = agentrun("start", "job.toml", *flags)
    assert ended.returncode == 2 and said in ended.stderr


def test_only_needs_an_unfinished_run_to_resume(agentrun: Run, unpriced: Path) -> None:
    assert agentrun("start", "job.toml", "--budget", "none").returncode == 0
    ended = agentrun("resume", "work", "--only", "one")
    assert ended.returncode == 2
    assert ended.stderr == "--only needs an unfinished run, and there is none; use: agentrun start work\n"


def test_a_program_that_reports_nothing_is_told_how_and_that_works(agentrun: Run, unpriced: Path) -> None:
    (unpriced / "work.sh").write_text("echo hi\n")
    items = ["--items", "items.txt", "--as", "lines"]
    ended = agentrun("start", "--name", "sh", *items, "--budget", "1", "--", "sh", "work.sh", "{}")
    assert ended.returncode == 4
    advised = re.search(r"or (agentrun usage .*) if it is free; or remove the budget: (--.*)", ended.stderr)
    assert advised is not None
    (unpriced / "work.sh").write_text(f"{advised[1]}; echo hi\n")
    ended = agentrun("resume", "sh", "--limit", "1")
    assert ended.returncode == 4 and "--limit is reached" in ended.stderr
    (unpriced / "work.sh").write_text("echo hi\n")
    assert agentrun("resume", "sh", *advised[2].split()).returncode == 0


def closing(**changes: Any) -> list[str]:
    known = Summary(run_id="r", counts={"done": 1, "waiting": 7}, total=8, exit_code=3)
    return list(closing_lines(structs.replace(known, **changes), "job", "job.toml", 1.0))


def test_the_end_says_what_was_lost_in_crashes() -> None:
    usage = Totals(cost=0.5, lost=0.03)
    assert "  cost:         $0.50 ($0.03 of it lost in crashes)" in closing(usage=usage)
    assert not [line for line in closing() if "cost" in line]


def test_of_many_questions_a_few_are_listed() -> None:
    questions = [OpenQuestion(f"k{n}\x1b[2J", n, "Send?") for n in range(5)]
    lines = closing(questions=questions)
    assert "        and 2 more" in lines and len([line for line in lines if "Send?" in line]) == 5
    assert "        agentrun answer job.toml --index 3 --yes" in lines
    assert "\x1b" not in "".join(lines)


def test_a_launch_that_stopped_for_another_reason_says_that_some_wait() -> None:
    lines = closing(exit_code=4, reason="the budget is reached")
    assert lines[-2:] == ["  answer with:  agentrun review job.toml", "  to resume:    agentrun resume job.toml"]
