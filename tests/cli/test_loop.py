"""The event loop of a launch."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from crash.command_line import COMMAND
from waiting import PATIENCE_SECONDS

INTERRUPTED = """
import asyncio, os, signal
from agentrun_cli import loop

class Loop(asyncio.SelectorEventLoop):
    def __init__(self):
        os.kill(os.getpid(), signal.SIGINT)
        super().__init__()

class Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self):
        return Loop()

async def main():
    print("ran")

signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.set_event_loop_policy(Policy())
loop.exit_on_interrupt()
loop.run(main)
"""
# Python prints an exception that is raised in a destructor, or in a callback of an import, and forgets it.
GONE = """
import os, signal

class Gone:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
"""
WHILE_PARSED = f"""
import sys
sys.argv[:] = ["agentrun", "start", "job.toml"]
from agentrun_cli import entry, main
{GONE}
def build_app(arguments):
    Gone()
    return lambda *words, **settings: 0

main.build_app = build_app
entry.main()
"""
AGENT = f"""
{GONE}
Gone()

def agent(item):
    return item.text
"""


def test_an_interrupt_while_the_loop_is_made_leaves_nothing_half_made() -> None:
    command = [sys.executable, "-W", "always", "-c", INTERRUPTED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_no_interrupt_while_the_command_line_is_parsed_is_forgotten() -> None:
    command = [sys.executable, "-c", WHILE_PARSED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_no_interrupt_before_the_first_item_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "items.txt").write_text("one\n")
    (tmp_path / "job.toml").write_text('agent = "agent.py:agent"\n[items]\nlines = "items.txt"\n')
    ended = subprocess.run(
        [COMMAND, "start", "job.toml"], cwd=tmp_path, capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")
    assert not (tmp_path / ".agentrun").exists()
