"""start, resume and stop: what they do, what they say, how they exit."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from waiting import PATIENCE_SECONDS, eventually

from .conftest import environment

Run = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]


def ran(job: Path) -> list[str]:
    return (job / "ran.log").read_text().split() if (job / "ran.log").exists() else []


def outputs(results: Path) -> list[object]:
    return [json.loads(line)["output"] for line in results.read_text().splitlines()]


def hint(stderr: str, command: str) -> list[str]:
    """The command that was printed, as one would paste it."""
    found = re.search(rf"agentrun ({command} .*)$", stderr, re.MULTILINE)
    assert found, stderr
    return shlex.split(found[1])


def test_a_run_says_what_it_does_and_where_the_results_are(agentrun: Run, job: Path) -> None:
    ended = agentrun("start", "work/job.toml", "-j", "2")
    assert ended.returncode == 0 and ended.stdout == ""
    first, last = ended.stderr.splitlines()
    assert first == "work: 3 items, agent agent.py:upper, 2 at a time → work/work.results.jsonl"
    assert re.fullmatch(r"done: 3 of 3 in [\d.]+s → work/work.results.jsonl", last)
    assert outputs(job / "work.results.jsonl") == ["TEXT A", "TEXT B", "TEXT C"]
    again = agentrun("start", "work/job.toml", "-q")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_a_failure_is_told_with_hints_that_work_where_they_are_printed(agentrun: Run, job: Path) -> None:
    (job / "items" / "b.txt").write_text("bad")
    ended = agentrun("start", "work/job.toml")
    assert ended.returncode == 1
    assert "failed  items/b.txt: Fail: it is bad: bad" in ended.stderr
    assert "2 of 3 done, 1 failed" in ended.stderr and "work/work.results.partial.jsonl" in ended.stderr
    reasons = agentrun(*hint(ended.stderr, "failures"))
    assert reasons.returncode == 0 and "it is bad" in reasons.stdout
    (job / "mended").touch()
    resumed = agentrun(*hint(ended.stderr, "resume"))
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming the run of" in resumed.stderr and "(launch 2)" in resumed.stderr
    assert "failed before, retried last: 1 (items/b.txt)" in resumed.stderr
    assert ran(job) == ["items/a.txt", "items/b.txt", "items/c.txt", "items/b.txt"]


def test_a_hint_names_the_state_folder_where_that_was_given(agentrun: Run, job: Path) -> None:
    ended = agentrun("start", "work/job.toml", "--state-dir", "my state", "--limit", "1")
    assert ended.returncode == 4
    words = hint(ended.stderr, "resume")
    assert words == ["resume", "work", "--state-dir", "my state"]
    assert agentrun(*words).returncode == 0


def test_a_hint_names_the_folder_that_was_given_as_the_job(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "work").returncode == 0
    words = hint(agentrun("redo", "work", "items/a.txt", "--yes").stderr, "start")
    assert words == ["start", "work"]
    assert "redo 1" in agentrun(*words).stderr


def test_a_flag_of_0_is_a_value(agentrun: Run, job: Path) -> None:
    flags = ["--retries", "0", "--stop-after-failures", "0", "--grace", "0", "--allow-failures", "0"]
    limits = json.loads(agentrun("start", "work", "--plan", "--json", *flags).stdout)["limits"]
    assert (limits["retries"], limits["stop_after_failures"], limits["grace_seconds"]) == (0, 0, 0)


def test_where_plain_resume_would_leave_all_that_failed_the_hint_asks_for_them(agentrun: Run, job: Path) -> None:
    (job / "items" / "b.txt").write_text("bad")
    hints = [hint(agentrun(verb, "work/job.toml").stderr, "resume") for verb in ("start", "resume", "resume")]
    assert hints == [["resume", "work/job.toml"], ["resume", "work/job.toml"], ["resume", "work/job.toml", "--failed"]]
    left = agentrun("resume", "work/job.toml")
    assert hint(left.stderr, "resume") == hints[-1] and ran(job).count("items/b.txt") == 3
    (job / "mended").touch()
    assert agentrun(*hints[-1]).returncode == 0


def test_of_an_agent_in_a_script_the_hints_name_the_script(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import agentrun\n\ndef pick(item):\n    raise agentrun.Fail('no')\n\n"
        "agentrun.run(pick, items=['a'], name='pick')\n"
    )
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment(), timeout=PATIENCE_SECONDS, check=True)
    assert "to resume:  run the script or notebook that started it again" in agentrun("status", "pick").stdout
    assert "retry:        run the script or notebook that started it again" in agentrun("failures", "pick").stderr
    resumed = agentrun("resume", "pick")
    assert resumed.returncode == 2 and "in the script or notebook that started it; run that to resume" in resumed.stderr


def test_a_job_of_flags_alone_is_resumed_by_its_name(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text("one\ntwo\nthree\n")
    given = ("start", "--name", "fetch", "--items", "urls.txt", "--as", "lines")
    ended = agentrun(*given, "--limit", "2", "--", "echo", "got", "{}")
    assert ended.returncode == 4, ended.stderr
    assert "fetch: 3 items, command echo got '{}' → fetch.results.jsonl" in ended.stderr
    assert agentrun(*hint(ended.stderr, "resume")).returncode == 0
    assert outputs(tmp_path / "fetch.results.jsonl") == ["got one", "got two", "got three"]


def test_paths_on_the_command_line_are_seen_from_where_the_user_stands(agentrun: Run, job: Path) -> None:
    stand = job / "in {here}"
    stand.mkdir()
    (stand / "x.txt").write_text("bad luck")
    (stand / ".env").write_text("UNTIL=\n")
    ended = agentrun(
        "start", "../job.toml", "--items", "*.txt", "-o", "out-{date}.jsonl", "--env-file", ".env", "--json", cwd=stand
    )
    summary = json.loads(ended.stdout)
    assert ended.returncode == 4 or summary["counts"]["failed"] == 1
    (job / "mended").touch()
    assert agentrun("resume", "../job.toml", cwd=stand).returncode == 0
    (output,) = stand.glob("out-2*.jsonl")
    assert json.loads(output.read_text())["key"] == "in {here}/x.txt"


def test_json_gives_one_object_and_nothing_else_on_standard_output(agentrun: Run, job: Path) -> None:
    ended = agentrun("start", "work", "--json", "--quiet")
    assert ended.stderr == ""
    summary = json.loads(ended.stdout)
    assert summary["status"] == "finished" and summary["counts"]["done"] == 3 and summary["exit_code"] == 0


def test_quiet_still_gives_the_reason_on_other_exits(agentrun: Run, job: Path) -> None:
    (job / "items" / "b.txt").write_text("bad")
    ended = agentrun("start", "work", "-q")
    assert ended.returncode == 1
    assert "1 failed" in ended.stderr and "3 items" not in ended.stderr


def test_resume_with_nothing_unfinished_says_when_the_last_run_was(agentrun: Run, job: Path) -> None:
    unknown = agentrun("resume", "work/job.toml")
    assert unknown.returncode == 2 and "no run to resume" in unknown.stderr
    assert agentrun(*hint(unknown.stderr, "start")).returncode == 0
    again = agentrun("resume", "work", cwd=job)
    assert again.returncode == 0 and "the last run finished" in again.stderr and "3 done" in again.stderr
    assert len(ran(job)) == 3
    nobody = agentrun("resume", "nobody")
    assert nobody.returncode == 2 and nobody.stderr.startswith("nobody: no job of that name")


def test_a_pattern_means_files_whatever_their_suffix(agentrun: Run, job: Path) -> None:
    (job / "items" / "rows.jsonl").write_text("{}\n{}\n")
    planned = [agentrun("start", "work", "--plan", "--json", "--items", f"work/items/{name}.jsonl") for name in "*r"]
    assert json.loads(planned[0].stdout)["first_keys"] == ["items/rows.jsonl"]
    assert planned[1].returncode == 2 and "there is no such file" in planned[1].stderr


def test_items_come_from_standard_input(agentrun: Run, tmp_path: Path) -> None:
    ended = agentrun("start", "--name", "n", "--items", "-", "--", "echo", "{}", stdin="1\n2\n3\n")
    assert ended.returncode == 0, ended.stderr
    assert len((tmp_path / "n.results.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "work", "--items", "a.txt", "b.txt", "c.txt"], "quote it, such as --items '*.txt'"),
        (["start", "--items", "d/a.txt", "d/b.txt", "--", "cat"], "quote it, such as --items 'd/*.txt'"),
        (["start", "work", "other"], "one job at a time"),
        (["start"], "which job?"),
        (["start", "work", "--as", "lines"], "add --items"),
        (["start", "work", "--state-dir", "no such/place"], "there is no such folder; make it with: mkdir -p '"),
        (["start", "work", "--set", "nothing"], "such as --set customer=acme"),
        (["start", "work", "--timeout", "2 parsecs"], 'command line: run.timeout is "2 parsecs"; write a duration'),
        (
            ["start", "work", "-j", "many"],
            "invalid value for '-j' / '--concurrency': it is \"many\" but ",
        ),
        (["start", "work", "--limit", "0"], 'it is "0" but should be greater than or equal to 1'),
        (["start", "work", "-j", "0"], "command line: run.concurrency is 0; write a whole number, 1 or more"),
        (["start", "work/agent.py:upper", "--items", "*.txt", "--", "cat"], "an agent and a command after -- are both"),
        (["start", "work", "--nope"], "no such option: --nope"),
        (["strat"], "did you mean 'start'"),
        (["start", "nothere.toml"], "nothere.toml: there is no such job file; check its name, or make one"),
        (["start", "work", "--items", "*.pdf"], "no file matches "),
    ],
)
def test_what_is_wrong_on_the_command_line_is_one_line_and_exit_2(
    agentrun: Run, job: Path, arguments: list[str], said: str
) -> None:
    ended = agentrun(*arguments)
    assert ended.returncode == 2 and ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1 and said in ended.stderr


def test_an_agent_that_cannot_be_loaded_shows_the_users_traceback_and_none_of_ours(agentrun: Run, job: Path) -> None:
    (job / "agent.py").write_text("print('loading')\nimport no_such_package\n")
    ended = agentrun("start", "work", "--json")
    assert ended.returncode == 2 and ended.stdout == ""
    assert 'has no package "no_such_package"' in ended.stderr
    assert "agent.py" in ended.stderr and "agentrun_cli" not in ended.stderr and "runner/agentrun" not in ended.stderr
    assert ran(job) == []


def test_a_second_runner_is_told_who_has_the_job_and_stop_ends_it(agentrun: Run, begin: Begin, job: Path) -> None:
    first = begin("start", "work/job.toml", UNTIL="go")
    eventually(lambda: ran(job), "the first item begins")
    free = agentrun("start", "work/job.toml", "--if-free")
    assert (free.returncode, free.stderr) == (0, "")
    busy = agentrun("start", "work/job.toml")
    assert busy.returncode == 75 and f"pid {first.pid} on" in busy.stderr
    status = agentrun("status", "work", "--json", cwd=job)
    assert json.loads(status.stdout)["status"] == "running"
    plan = agentrun("start", "work/job.toml", "--plan")
    assert plan.returncode == 0 and "would resume the run" in plan.stdout
    assert agentrun("clear", "work", "--yes", cwd=job).returncode == 75
    stopped = agentrun(*hint(busy.stderr, "stop"), "--now")
    assert stopped.returncode == 0 and "work: stopped" in stopped.stderr
    _, said = first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == 143 and "stopped by SIGTERM" in said
    assert agentrun("stop", "work", cwd=job).stderr == "work: no runner is working on it\n"
    assert agentrun(*hint(stopped.stderr, "resume")).returncode == 0


def test_ctrl_c_finishes_what_is_in_flight_and_says_how_to_go_on(agentrun: Run, begin: Begin, job: Path) -> None:
    process = begin("start", "work/job.toml", UNTIL="go")
    eventually(lambda: ran(job), "the first item begins")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    seen = ""
    while "in flight" not in seen:
        seen = process.stderr.readline()
        assert seen
    (job / "go").touch()
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "stopped by Ctrl-C" in said and "1 of 3 done" in said
    assert agentrun(*hint(said, "resume")).returncode == 0
    assert ran(job) == ["items/a.txt", "items/b.txt", "items/c.txt"]


def test_a_runner_whose_reader_is_gone_goes_on(begin: Begin, job: Path) -> None:
    (job / "items" / "b.txt").write_text("bad")
    process = begin("start", "work/job.toml", "--json", UNTIL="go")
    eventually(lambda: ran(job), "the first item begins")
    assert process.stderr is not None and process.stdout is not None
    process.stderr.close()
    process.stdout.close()
    (job / "go").touch()
    assert process.wait(timeout=PATIENCE_SECONDS) == 1
    assert len(ran(job)) == 3
    process.stderr = process.stdout = None


def test_clear_says_what_it_removes_and_needs_a_word(agentrun: Run, job: Path) -> None:
    agentrun("start", "work", "--limit", "1")
    asked = agentrun("clear", "work", cwd=job)
    assert asked.returncode == 2 and "an unfinished run with 1 result" in asked.stderr and "--yes" in asked.stderr
    assert (job / ".agentrun" / "work" / "state.json").exists()
    assert agentrun("clear", "work", "--yes", cwd=job).returncode == 0
    assert "no jobs are known here" in agentrun("status", cwd=job).stderr
