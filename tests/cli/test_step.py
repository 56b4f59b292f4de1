"""`agentrun step`, `ask`, `usage` and `log` in programs, with the real runner behind them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import COMMAND, Run, environment
from waiting import PATIENCE_SECONDS, eventually

Begin = Callable[..., "subprocess.Popen[str]"]
PATH = f"{Path(COMMAND).parent}:{os.environ['PATH']}"

THREE_STEPS = """\
#!/bin/bash
set -e
one=$(agentrun step one -- sh -c 'echo one >>ran.log; echo 1')
two=$(agentrun step two -- sh -c 'echo two >>ran.log; echo 2')
three=$(agentrun step three -- sh -c 'echo three >>ran.log; while [ ! -e go ]; do sleep 0.01; done; echo 3')
echo "$one$two$three"
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Path]:
    """A job of one item, or of those given, whose agent is that script."""

    def write(script: str, *items: str, run: str = "", **keys: Any) -> Path:
        (tmp_path / "agent").write_text(script)
        (tmp_path / "agent").chmod(0o755)
        (tmp_path / "items.txt").write_text("".join(f"{item}\n" for item in items or ["x"]))
        job = tmp_path / "job.toml"
        told = "".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items())
        job.write_text(f'name = "j"\ncommand = ["./agent"]\n{told}[items]\nlines = "items.txt"\n[run]\n{run}')
        return tmp_path

    return write


def outputs(folder: Path) -> list[Any]:
    return [json.loads(line)["output"] for line in (folder / "j.results.jsonl").read_text().splitlines()]


def test_killed_in_the_third_of_three_steps_only_the_third_is_repeated(
    program: Callable[..., Path], agentrun: Run, begin: Begin
) -> None:
    folder = program(THREE_STEPS)
    ran = folder / "ran.log"
    runner = begin("start", "job.toml", PATH=PATH)
    eventually(lambda: ran.exists() and "three" in ran.read_text(), "the third step")
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    (folder / "go").touch()
    done = agentrun("resume", "job.toml", PATH=PATH)
    assert done.returncode == 0, done.stderr
    assert outputs(folder) == ["123"]
    assert ran.read_text().split() == ["one", "two", "three", "three"]


def test_a_retry_repeats_only_what_failed(program: Callable[..., Path], agentrun: Run) -> None:
    script = """\
#!/bin/sh
agentrun step cheap -- sh -c 'echo cheap >>ran.log; echo 1' || exit
agentrun step dear -- sh -c 'echo dear >>ran.log; [ -e again ] || { touch again; exit 75; }; echo 2'
"""
    folder = program(script)
    done = agentrun("start", "job.toml", PATH=PATH)
    assert done.returncode == 0, done.stderr
    assert outputs(folder) == ["1\n2"]
    assert (folder / "ran.log").read_text().split() == ["cheap", "dear", "dear"]


def test_items_at_the_same_time_have_steps_of_their_own(program: Callable[..., Path], agentrun: Run) -> None:
    script = """\
#!/bin/sh
read -r item
for n in 1 2 3; do agentrun step s -- printf '%s-%s ' "$AGENTRUN_ITEM_KEY" $n; done
"""
    folder = program(script, *"abcdefgh", run="concurrency = 4\n")
    done = agentrun("start", "job.toml", PATH=PATH)
    assert done.returncode == 0, done.stderr
    assert outputs(folder) == [f"{key}-1 {key}-2 {key}-3 " for key in "abcdefgh"]


def test_a_question_parks_the_item_and_its_answer_lets_it_go_on(program: Callable[..., Path], agentrun: Run) -> None:
    script = """\
#!/bin/bash
draft=$(agentrun step draft -- sh -c 'echo ran >>ran.log; echo "Dear A"')
if answer=$(agentrun ask 'Send it?' --detail draft="$draft"); then echo "yes: $answer"; else echo "code $?: $answer"; fi
"""
    folder = program(script)
    waiting = agentrun("start", "job.toml", PATH=PATH)
    assert waiting.returncode == 3, waiting.stderr
    answered = agentrun("answer", "job.toml", "x", "--yes", PATH=PATH)
    assert answered.returncode == 0, answered.stderr
    done = agentrun("resume", "job.toml", PATH=PATH)
    assert done.returncode == 0, done.stderr
    (output,) = outputs(folder)
    assert output.startswith("yes: ")
    answer = json.loads(output.removeprefix("yes: "))
    assert answer["yes"] is True and answer["details"] == {"draft": "Dear A"}
    assert (folder / "ran.log").read_text() == "ran\n"


def test_a_line_in_the_log_is_the_items(program: Callable[..., Path], agentrun: Run) -> None:
    program("#!/bin/sh\necho printed >&2\nagentrun log looking at $AGENTRUN_ITEM_KEY\nexit 65\n")
    assert agentrun("start", "job.toml", PATH=PATH).returncode == 1
    shown = agentrun("log", "job.toml", "x")
    assert shown.stdout.splitlines()[-2:] == ["printed", "looking at x"]


def test_usage_counts_for_the_item(program: Callable[..., Path], agentrun: Run) -> None:
    program("#!/bin/sh\nagentrun usage --model m --input-tokens 20 --output-tokens 5 --cost 0.25\n")
    done = agentrun("start", "job.toml", PATH=PATH)
    assert done.returncode == 0, done.stderr
    full = json.loads(agentrun("results", "job.toml", "--full").stdout)
    assert (full["usage"]["cost"], full["usage"]["input_tokens"]) == (0.25, 20)


def test_the_socket_left_by_a_crash_is_replaced(program: Callable[..., Path], agentrun: Run) -> None:
    folder = program("#!/bin/sh\nagentrun step a -- echo 1\n")
    state = folder / ".agentrun" / "j"
    state.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.path.relpath(state / "channel.sock"))
    done = agentrun("start", "job.toml", PATH=PATH)
    assert done.returncode == 0, done.stderr
    assert outputs(folder) == ["1"]


def test_a_folder_with_a_long_path_has_its_socket_elsewhere(program: Callable[..., Path], agentrun: Run) -> None:
    folder = program("#!/bin/sh\nagentrun step a -- echo 1\n")
    state = folder / ("x" * 120)
    done = agentrun("start", "job.toml", "--state-dir", str(state), PATH=PATH, TMPDIR=str(folder))
    assert done.returncode == 0, done.stderr
    assert outputs(folder) == ["1"]
    assert not list(folder.glob("agentrun-*"))


@pytest.mark.parametrize("words", [["step", "a", "--", "true"], ["ask", "Well?"], ["usage", "--cost", "0"]])
def test_outside_of_a_program_they_say_so(agentrun: Run, words: list[str]) -> None:
    ended = agentrun(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"agentrun {words[0]}: not inside such a program")


def test_a_runner_that_is_gone_is_told(agentrun: Run, tmp_path: Path) -> None:
    ended = agentrun("step", "a", "--", "true", AGENTRUN_CHANNEL=str(tmp_path / "gone"), AGENTRUN_ATTEMPT_ID="a")
    assert ended.returncode == 75
    assert ended.stderr == "agentrun step: the runner cannot be reached: No such file or directory\n"


def test_help_tells_of_them(agentrun: Run) -> None:
    listed = agentrun("--help").stdout
    for command in ("step", "ask", "usage"):
        assert f"\n  {command} " in listed
        assert f"Usage: agentrun {command} " in agentrun(command, "--help").stdout
    assert "writes a line" in agentrun("log", "--help", AGENTRUN_CHANNEL="set").stdout


@pytest.mark.parametrize("words", [["step", "a", "--", "true"], ["ask", "a"], ["usage", "--cost", "1"], ["log", "a"]])
def test_what_scripts_call_in_a_loop_imports_little(tmp_path: Path, words: list[str]) -> None:
    code = (
        "import sys, atexit; atexit.register(lambda: print(*sys.modules)); from agentrun_cli.entry import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        env=environment(AGENTRUN_CHANNEL=str(tmp_path / "gone")),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 75, ended.stderr
    heavy = {
        "typer",
        "click",
        "pydantic",
        "orjson",
        "asyncio",
        "subprocess",
        "rich",
        "msgspec",
        "agentrun.executors.programs.channel_socket",
    }
    assert heavy & set(ended.stdout.split()) == set()


SERVER = """\
#!/bin/bash
while IFS= read -r item; do
    [[ $item =~ '"index":'([0-9]+) ]]
    index=${BASH_REMATCH[1]}
    [[ $item =~ '"id":"'([0-9a-f]+) ]]
    id='"id":"'${BASH_REMATCH[1]}'"'
    echo '{"type":"step_get",'$id',"name":"work"}'
    read -r answer
    if [[ $answer != *'"found":true'* ]]; then
        echo "$index" >>ran.log
        echo '{"type":"step_put",'$id',"name":"work","value":{"pid":'$$'}}'
        read -r answer
    fi
    while [ $index = 2 ] && [ ! -e go ]; do sleep 0.01; touch reached; done
    echo '{"type":"done",'$id',"output":'$index'}'
done
"""


def test_a_program_that_serves_is_resumed_after_its_finished_steps(
    program: Callable[..., Path], agentrun: Run, begin: Begin
) -> None:
    assert shutil.which("bash")
    folder = program(SERVER, *"abcd", serve=True)
    runner = begin("start", "job.toml", PATH=PATH)
    eventually((folder / "reached").exists, "the program gets there")
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    (folder / "go").touch()
    done = agentrun("resume", "job.toml", PATH=PATH)
    assert done.returncode == 0, done.stderr
    assert outputs(folder) == [0, 1, 2, 3]
    assert (folder / "ran.log").read_text().split() == ["0", "1", "2", "3"]


def test_try_runs_steps_without_remembering_them(program: Callable[..., Path], agentrun: Run) -> None:
    script = "#!/bin/sh\necho at work >&2\nagentrun step a -- echo 1\nagentrun ask 'Well?'\n"
    program(script)
    for _ in range(2):
        tried = agentrun("try", "job.toml")
        assert "[step a]" in tried.stderr and "at work" in tried.stderr
        assert "would ask, and wait for the answer: Well?" in tried.stderr
    assert not (program(script) / ".agentrun").exists()


def test_try_runs_a_program_that_serves(program: Callable[..., Path], agentrun: Run) -> None:
    folder = program(SERVER, *"ab", serve=True)
    tried = agentrun("try", "job.toml", "-n", "2")
    assert tried.returncode == 0, tried.stderr
    assert (folder / "ran.log").read_text().split() == ["0", "1"]
