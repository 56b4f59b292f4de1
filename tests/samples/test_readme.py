"""Every command line of the README is run, and what it shows is what is printed."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.terminal import Terminal
from llm.server import serve

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()
AGENTRUN = Path(sys.executable).parent / "agentrun"
PROMPT = "[q]uit: "


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def block(language: str, words: str) -> str:
    """The one that has these words in it."""
    (found,) = (one for one in blocks(language) if words in one)
    return found


def call(command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    assert words[0] == "agentrun"
    environment = {**os.environ, "TRIAGE_SECONDS": "0", **variables}
    return subprocess.run(
        [str(AGENTRUN), *words[1:]], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def shape(text: str) -> str:
    """What is printed, without what differs from one day to the next."""
    text = re.sub(r"\b\d\d:\d\d\b", "HH:MM", text)
    text = re.sub(r"\b\d{8}T\d{6}-[0-9a-f]+", "RUN", text)
    text = re.sub(r"in [\d.]+s", "in S", text)
    text = re.sub(r"just now|\d+s ago", "AGO", text)
    text = re.sub(r" +$", "", text, flags=re.MULTILINE).strip("\n")
    return re.sub(r"\b(8\d|9\d|1\d\d)\b(?=[/,]|$)", "N", re.sub(r"to run \d+$", "to run N", text, flags=re.MULTILINE))


def copy(sample: str, folder: Path) -> Path:
    ignored = shutil.ignore_patterns(".agentrun", "*.results.*", "__pycache__", "sent")
    return shutil.copytree(REPOSITORY / "samples" / sample, folder / sample, ignore=ignored)


@pytest.fixture
def triage(tmp_path: Path) -> Path:
    return copy("triage", tmp_path)


def shown(session: str, command: str) -> str:
    """What the README shows behind a command."""
    assert f"$ {command}\n" in session
    _, _, rest = session.partition(f"$ {command}\n")
    return rest.partition("\n$ ")[0].rstrip("\n")


def check(session: str, command: str, cwd: Path, *, exit_code: int = 0, **variables: str) -> None:
    """Run a command of a session: it ends so, and prints what is shown."""
    ended = call(command, cwd, **variables)
    assert ended.returncode == exit_code, ended.stderr
    assert shape(ended.stdout + ended.stderr) == shape(shown(session, command))


def kill_when(is_time: Callable[[dict[str, Any]], bool], command: str, cwd: Path, **variables: str) -> str:
    """Start a run, and kill it when its checkpoint is so; what it printed."""
    environment = {**os.environ, **variables}
    started = subprocess.Popen(
        [str(AGENTRUN), *shlex.split(command)[1:]], cwd=cwd, env=environment, stderr=subprocess.PIPE
    )
    while not any(is_time(json.loads(path.read_bytes())) for path in cwd.glob(".agentrun/*/state.json")):
        assert started.poll() is None
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    return started.communicate()[1].decode()


def test_the_tour_is_what_happens(triage: Path) -> None:
    first, second = blocks("console")[:2]
    document = triage / "documents/0150.txt"
    whole = document.read_bytes()
    document.write_bytes(b"")
    printed = kill_when(
        lambda state: 80 <= state["last_completed"] < 100, "agentrun start job.toml", triage, TRIAGE_SECONDS="0.05"
    )
    assert printed.splitlines()[0] == shown(first, "agentrun start job.toml").splitlines()[0]

    assert (
        shape(call("agentrun status", triage).stdout.rstrip("\n")).split()
        == shape(shown(first, "agentrun status")).split()
    )
    check(first, "agentrun resume triage", triage, exit_code=1)
    document.write_bytes(whole)
    check(second, "agentrun resume triage", triage)


def test_a_job_of_ones_own_runs_as_it_is_written(tmp_path: Path) -> None:
    assert "`agentrun init mine`" in README
    assert call("agentrun init mine", tmp_path).returncode == 0
    tried = call("agentrun try mine/job.toml", tmp_path)
    assert tried.returncode == 0
    assert len(tried.stdout.splitlines()) == 3
    assert call("agentrun start mine/job.toml", tmp_path).returncode == 0


def test_jobs_without_a_file_start(tmp_path: Path) -> None:
    (tmp_path / "summarise.py").write_text("def summarise(item):\n    return item.text[:10]\n")
    (tmp_path / "summarise.md").write_text("Summarise:\n{text}\n")
    (tmp_path / "docs").mkdir()
    for name in ("docs/a.txt", "docs/a.md"):
        (tmp_path / name).write_text("a text")
    (tmp_path / "urls.txt").write_text("one\ntwo\n")
    (tmp_path / "fetch.sh").write_text('#!/bin/sh\necho "got $1"\n')
    (tmp_path / "fetch.sh").chmod(0o755)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("agentrun ")]
    assert len(commands) == 3
    with serve() as llm:
        for number, command in enumerate(commands):
            done = call(f"{command} --name={number}" if "--prompt" in command else command, tmp_path, **model(llm.url))
            assert done.returncode == 0, done.stderr
    assert [one.text for one in llm.asked] == ["Summarise:\na text\n"]


def model(url: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-none"}


def test_the_job_file_is_one(tmp_path: Path) -> None:
    text = block("toml", "needs_env")
    values = tomllib.loads(text)
    assert values["run"]["retries"] == 3
    (tmp_path / "job.toml").write_text(text)
    (tmp_path / "agent.py").write_text("def triage(item):\n    return item.text\n")
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/1.txt").write_text("one")
    (tmp_path / "out").mkdir()
    (tmp_path / ".env").write_text("OPENAI_API_KEY=canary\n")
    done = call("agentrun start job.toml", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/results.jsonl").exists()


def test_what_is_commented_out_in_the_job_files_would_do() -> None:
    """Each is a line of TOML, with a key that a job file knows."""
    from agentrun.job.fields import RUN, TOP

    commented = re.findall(r"^# (\w+) = .*$", "\n".join(blocks("toml")), re.MULTILINE)
    assert {"command", "prompt", "budget", "base_url"} <= set(commented) <= {*TOP, *RUN, "key"}


def test_steps_are_remembered_as_shown(tmp_path: Path) -> None:
    session, sample = block("console", "cd samples/steps"), copy("steps", tmp_path)

    def is_in_the_third(state: dict[str, Any]) -> bool:
        return any(one.get("name") == "count" and one["key"] == "texts/library.txt" for one in state["outputs"])

    printed = kill_when(is_in_the_third, "agentrun start job.toml", sample, STEPS_SECONDS="0.5")
    assert printed.splitlines()[0] == shown(session, "agentrun start job.toml").splitlines()[0]
    told = call("agentrun show steps texts/library.txt", sample).stdout
    assert told.rstrip("\n").endswith("\n" + shown(session, "agentrun show steps texts/library.txt | tail -3"))
    calls = next(sample.glob(".agentrun/steps/work/*/dir/calls"))
    assert calls.read_text().split() in (["tr", "wc"], ["tr", "wc", "awk"])
    check(session, "agentrun resume steps", sample, STEPS_SECONDS="0")


def test_the_steps_of_the_python_agent_are_those_of_the_sample(tmp_path: Path) -> None:
    sample = copy("steps", tmp_path)
    (sample / "short.py").write_text(f"from digest import find_longest, tidy\n{block('python', 'def digest(')}")
    command = "agentrun start short.py:digest --name digest --items texts/*.txt"
    assert call(command, sample, STEPS_SECONDS="0").returncode == 0
    assert call("agentrun start job.toml", sample, STEPS_SECONDS="0").returncode == 0
    results = [(sample / f"{name}.results.jsonl").read_text() for name in ("digest", "steps")]
    assert results[0] == results[1]


def test_the_review_is_what_a_person_sees(tmp_path: Path) -> None:
    session, sample = block("console", "cd samples/review"), copy("review", tmp_path)
    check(session, "agentrun start job.toml", sample, exit_code=3)
    (sample / "answers.csv").write_text(shown(session, "cat answers.csv") + "\n")
    check(session, "agentrun answer review --file answers.csv", sample)
    editor = tmp_path / "editor"
    editor.write_text(
        '#!/bin/sh\nsed \'s/We are looking into it/It was sent today/\' "$1" >"$1.new"\nmv "$1.new" "$1"\n'
    )
    editor.chmod(0o755)
    terminal = Terminal("review", "review", cwd=sample, EDITOR=str(editor), COLUMNS="120")
    try:
        for word in ("e", "a"):
            terminal.until(PROMPT)
            terminal.type(word)
        code, _ = terminal.end()
    finally:
        terminal.close()
    assert code == 0
    assert shape(terminal.screen.replace("\r\n", "\n")) == shape(shown(session, "agentrun review review"))
    check(session, "agentrun resume review", sample)
    assert "It was sent today" in (sample / "review.results.jsonl").read_text().splitlines()[0]


def test_an_edit_after_the_end_is_kept(triage: Path) -> None:
    session = block("console", "agentrun edit triage")
    assert call("agentrun start job.toml", triage).returncode == 0
    check(session, next(one[2:] for one in session.splitlines() if one.startswith("$ agentrun edit")), triage)
    check(session, "agentrun start triage", triage)
    assert '"output":{"category":"urgent"}' in (triage / "triage.results.jsonl").read_text().splitlines()[6]


CLIENT = """
from types import SimpleNamespace as Made

class client:
    class responses:
        def create(model, input):
            usage = Made(input_tokens=11_900 + 100 * int(input), output_tokens=900, input_tokens_details=None)
            return Made(object="response", model=model, usage=usage, output_text=input)
"""


def test_the_budget_holds_as_shown(tmp_path: Path) -> None:
    session, folder = block("console", "--budget 0.05"), tmp_path / "money"
    folder.mkdir()
    (folder / "agent.py").write_text(CLIENT + block("python", "ctx.usage(response)"))
    (folder / "items.txt").write_text("".join(f"{n}\n" for n in range(1, 41)))
    job = 'agent = "agent.py:draft"\n[items]\nlines = "items.txt"\n[run]\nconcurrency = 4\n'
    (folder / "job.toml").write_text(job)
    ended = call("agentrun start job.toml --budget 0.05", folder)
    # Of four at a time, any may be the dearest so far: what fits differs by an item.
    assert ended.returncode == 4
    numbers = re.compile(r"\d[\d.,]*")
    told = shown(session, "agentrun start job.toml --budget 0.05")
    assert numbers.sub("0", ended.stderr.rstrip("\n")) == numbers.sub("0", told)
    again = call("agentrun resume money --budget 1", folder)
    assert again.returncode == 0
    last = shape(shown(session, "agentrun resume money --budget 1")).splitlines()[-2:]
    assert shape(again.stderr).splitlines()[-2:] == last


def test_the_prompt_job_is_one(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(block("toml", "max_output_tokens"))
    (tmp_path / "summarise.md").write_text("Summarise {key}:\n{text}")
    (tmp_path / "answer.json").write_text('{"type": "object", "properties": {"summary": {"type": "string"}}}')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("{text} is a text")
    with serve() as llm:
        done = call("agentrun start job.toml", tmp_path, **model(llm.url))
    assert done.returncode == 0, done.stderr
    (asked,) = llm.asked
    assert asked.text == "Summarise docs/a.md:\n{text} is a text" and asked.system == "You write for people in a hurry."


def test_files_are_listed_as_shown(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(block("python", "def draw("))
    (tmp_path / "names.txt").write_text("ada\n")
    ended = call("agentrun start agent.py:draw --items names.txt --as lines -o out.jsonl", tmp_path)
    assert ended.returncode == 0, ended.stderr
    before, _, after = block("json", "picture.svg").rstrip("\n").partition("…")
    line = (tmp_path / "out.jsonl").read_text().rstrip("\n")
    assert line.startswith(before) and line.endswith(after)
    assert (tmp_path / "out.files/ada/picture.svg").read_text() == "<svg>ada</svg>"


def test_the_shell_agent_asks_and_goes_on(tmp_path: Path) -> None:
    for name, text in {
        "letter.sh": block("bash", "agentrun ask"),
        "write_draft.sh": '#!/bin/sh\necho "Dear $1"\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "names.txt").write_text("Ada\nBen\n")
    start = "agentrun start --name letters --items names.txt --as lines -- ./letter.sh {}"
    assert call(start, tmp_path).returncode == 3
    assert call("agentrun answer letters Ben --no", tmp_path).returncode == 0
    ended = call("agentrun answer letters Ada --yes --resume", tmp_path)
    assert ended.returncode == 0, ended.stderr
    (line,) = (tmp_path / "letters.results.jsonl").read_text().splitlines()
    assert json.loads(line)["output"] == "sent"
    answer = json.loads((tmp_path / "letters.results.files/Ada/answer.json").read_text())
    assert answer["yes"] is True and answer["details"] == {"draft": "Dear Ada"}


PLAYER = """
import json, sys

LEFT_OUT = ("id", "run_id", "idempotency_key", "dir", "out", "at")

def bare(value):
    if isinstance(value, dict):
        return {name: bare(one) for name, one in value.items() if name not in LEFT_OUT}
    return value

for line in open("talk.txt").read().splitlines():
    if line[0] == "→":
        print(json.dumps({**json.loads(line[2:]), "id": heard["id"]}), flush=True)
    elif line[0] == "←":
        heard = json.loads(sys.stdin.readline())
        if bare(heard) != bare(json.loads(line[2:])):
            sys.exit(f"heard {heard} instead of {line}")
sys.stdin.read()
"""


def test_the_conversation_of_a_program_that_serves_is_what_is_said(tmp_path: Path) -> None:
    """A program that says and expects exactly those lines is parked, answered, and done."""
    talk = block("text", '"type":"item"')
    first, gap, second = re.split(r"^(….*\n)", talk, flags=re.MULTILINE)
    assert first and gap and second
    (tmp_path / "player.py").write_text(PLAYER)
    (tmp_path / "people.jsonl").write_text('{"id": "ada", "name": "Ada"}\n')
    for number, (lines, code) in enumerate([(first, 3), (second, 0)]):
        (tmp_path / "talk.txt").write_text(lines)
        job = f'command = ["{sys.executable}", "player.py"]\nserve = true\nparams.tone = "kind"\n'
        (tmp_path / "job.toml").write_text(job + '[items]\njsonl = "people.jsonl"\nkey = "id"\n[run]\nretries = 0\n')
        ended = call("agentrun start job.toml --name talk", tmp_path)
        assert ended.returncode == code, ended.stderr
        if number == 0:
            assert call("agentrun answer talk ada --yes --by grace", tmp_path).returncode == 0


def test_the_code_shown_is_python() -> None:
    found = blocks("python")
    assert found and all(ast.parse(text).body for text in found)


def test_the_commands_and_exit_codes_are_those_of_the_help(tmp_path: Path) -> None:
    told = call("agentrun --help", tmp_path).stdout
    rows = re.findall(r"^\| (`agentrun \w+.*?) \|", README, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(?:agentrun )?(\w+)\b[^`]*`", row)}
    listed = set(re.findall(r"^  (\w+)  +\S", told.partition("Commands:")[2].partition("Exit codes")[0], re.MULTILINE))
    assert listed and named >= listed
    for name in re.findall(r"^\| `agentrun (\w+)", README, re.MULTILINE):
        assert name in listed
    for codes in re.findall(r"^\| (\d[\d, ]*) \|", README, re.MULTILINE):
        assert re.search(rf"^ +{codes} ", told, re.MULTILINE), codes
    for command, option in re.findall(r"`agentrun (\w+)[^`]*? (--[a-z-]+)", README):
        if command in listed:
            assert option in call(f"agentrun {command} --help", tmp_path).stdout, (command, option)
