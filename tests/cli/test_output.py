"""What is printed: plain where it must be, live on a terminal, and never what users' data would have it be."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun_cli.terminal import clean
from waiting import PATIENCE_SECONDS

Run = Callable[..., subprocess.CompletedProcess[str]]
HOSTILE = "a\x1b[31m[/x][link=evil]\x1b]0;title\x07\x9b2J\u202etxt.exe\x00\r\nnext\ud800"


def test_clean_text_is_one_line_without_controls() -> None:
    assert clean(HOSTILE) == "a[/x][link=evil]2Jtxt.exe next\\ud800"
    assert clean("\x1b") == "" and clean("x\x1b(By\x1bPq\x1b\\z") == "xyz"
    assert clean("wide 漢字 é 🙂") == "wide 漢字 é 🙂"
    assert clean("x" * 9, limit=5) == "xxxx…"


def hostile_job(folder: Path) -> None:
    (folder / "items.jsonl").write_text('{"id": "[/x]\\u001b[2Jkey\\u202e"}\n{"id": "good"}\n')
    (folder / "agent.py").write_text(
        "from agentrun import Fail\n"
        "def go(item):\n"
        "    if 'key' in item.key:\n"
        "        raise Fail('\\x1b[2J\\x1b]0;owned\\x07[bold]cause[/y] \\ud800\\u202e')\n"
        "    return 1\n"
    )


GO = ("start", "agent.py:go", "--items", "items.jsonl", "--key", "id")


@pytest.mark.parametrize("environ", [{}, {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}])
def test_keys_and_causes_are_never_control_codes(agentrun: Run, tmp_path: Path, environ: dict[str, str]) -> None:
    hostile_job(tmp_path)
    ended = agentrun(*GO, **environ)
    assert ended.returncode == 1
    assert "failed  [/x]key: Fail: [bold]cause[/y] \\ud800" in ended.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", ended.stderr)
    assert ("->" if environ else "→") in ended.stderr
    for command in (["status", "go"], ["start", "agent.py:go", "--items", "items.jsonl", "--key", "id", "--plan"]):
        shown = agentrun(*command, **environ)
        assert shown.returncode == 0, shown.stderr
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown.stdout + shown.stderr)


def on_terminal(command: str, *arguments: str, cwd: Path, **environ: str) -> tuple[int, str]:
    """Run it with a terminal as its standard error, and return its exit code and what the terminal got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [command, *arguments],
        cwd=cwd,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
    assert process.stdout is not None
    assert process.stdout.read() == b""
    process.stdout.close()
    os.close(ours)
    return process.wait(timeout=PATIENCE_SECONDS), seen.decode()


@pytest.fixture
def command(agentrun: Run) -> str:
    import sys

    return str(Path(sys.executable).parent / "agentrun")


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end(command: str, tmp_path: Path) -> None:
    hostile_job(tmp_path)
    code, seen = on_terminal(command, *GO, cwd=tmp_path)
    assert code == 1
    assert "───" in seen and "\x1b[31mfailed\x1b[0m  [/x]key: Fail: [bold]cause[/y]" in seen
    assert "\x1b]0;" not in seen and "\x1b[2J" not in seen
    assert "\x1b[?25l" not in seen, "the cursor was hidden: a killed runner could not bring it back"
    after_the_bar = seen[max(seen.rfind("━"), seen.rfind("─")) :]
    assert "\x1b[J" in after_the_bar and "to resume:    agentrun resume go" in after_the_bar


PROGRESS = {
    "a function": (
        "agent.py",
        "import time\n"
        "def go(item, ctx):\n"
        "    ctx.progress('\\x1b[2J[bold]page 7[/y]')\n"
        "    time.sleep(1)\n"
        "    return 1\n",
        ["agent.py:go"],
    ),
    "a program": (
        "serve.sh",
        "while read -r item; do\n"
        """    id=${item#*'"id":"'}; id='"id": "'${id%%'"'*}'"'\n"""
        """    echo '{"type": "progress", '$id', "text": "\\u001b[2J[bold]page 7[/y]"}'; read -r reply; sleep 1\n"""
        """    echo '{"type": "done", '$id', "output": 1}'\n"""
        "done\n",
        ["--serve", "--name", "served", "--", "sh", "serve.sh"],
    ),
}


@pytest.mark.parametrize("kind", PROGRESS)
def test_a_terminal_shows_what_items_are_doing_and_the_end_clears_it(command: str, tmp_path: Path, kind: str) -> None:
    name, source, words = PROGRESS[kind]
    (tmp_path / name).write_text(source)
    (tmp_path / "items.txt").write_text("first\n")
    code, seen = on_terminal(command, "start", "--items", "items.txt", "--as", "lines", *words, cwd=tmp_path)
    assert code == 0, seen
    assert "first  [bold]page 7[/y]" in seen and "\x1b[2J" not in seen
    assert "page 7" not in seen[seen.rindex("\x1b[J") :], "erased at the end"


def test_no_color_and_dumb_terminals_are_honoured(command: str, tmp_path: Path) -> None:
    hostile_job(tmp_path)
    _, seen = on_terminal(command, *GO, cwd=tmp_path, TERM="dumb")
    assert "\x1b" not in seen
    _, seen = on_terminal(command, *GO, "--fresh", "--yes", cwd=tmp_path, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", seen) and "failed  [/x]key" in seen


def test_help_has_the_commands_in_order_and_the_exit_codes(agentrun: Run) -> None:
    ended = agentrun("--help")
    assert ended.returncode == 0
    listed = ended.stdout.partition("Commands:")[2].partition("Exit codes")[0]
    names = re.findall(r"^  (\w+)  +\S", listed, re.MULTILINE)
    assert " ".join(names) == (
        "start resume try status stop items show log failures results report runs diff "
        "ui review answer redo edit skip notify export import rekey repair clear init mcp completion step ask usage"
    )
    for code in (0, 1, 2, 3, 4, 65, 74, 75):
        assert re.search(rf"^ +{code}  \w", ended.stdout, re.MULTILINE)
    assert agentrun("--version").stdout.startswith("agentrun 0.")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [("results", "work"), ("items", "work"), ("status", "work", "--json")])
def test_where_the_data_does_not_fit_the_exit_code_is_that_of_a_full_disk(
    command: str, job: Path, words: tuple[str, ...]
) -> None:
    subprocess.run([command, "start", "job.toml", "-q"], cwd=job, check=True)
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([command, *words], cwd=job, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.stderr == "standard output: No space left on device; nothing finished is lost\n"
    assert ended.returncode == 74


def test_data_for_a_closed_standard_output_is_dropped(command: str, job: Path) -> None:
    subprocess.run([command, "start", "job.toml", "-q"], cwd=job, check=True)
    for words in ("results work", "items work", "status work --json"):
        shell = ["bash", "-c", f"{command} {words} >&-"]
        ended = subprocess.run(shell, cwd=job, stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_reader_that_leaves_is_no_error(command: str, job: Path) -> None:
    subprocess.run([command, "start", "job.toml", "-q"], cwd=job, check=True)
    piped = subprocess.run(
        ["bash", "-c", f"{command} status --watch --json | head -1; echo ${{PIPESTATUS[0]}}"],
        cwd=job,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert piped.stdout.splitlines()[-1] == "141" and piped.stderr == ""
