"""Launches that outlive their terminal: `--detach`.

The command starts itself once more, in a session of its own. That process is the launch from the first check to the
last line: it opens the job, loads the agent, takes the lock and keeps it, so the lock is never handed over. Until its
first checkpoint is on disk it has the terminal's streams, asks there and reports its errors there; the command in the
foreground only waits, and exits with its code. Then it says how to reach it, moves its streams to `launch.log`, and the
foreground exits with 0.

Not a fork: the agent is loaded by then, and may have threads, which a fork loses.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from agentrun_cli import terminal as console

LOG, LOG_BEFORE = "launch.log", "launch.log.1"
_POLL_SECONDS = 0.05

_handed_over_at: int | None = None
"""In the detached process: the pipe to the command in the foreground."""


def is_detached() -> bool:
    """Whether this process is the launch that a command in the foreground waits for."""
    return _handed_over_at is not None


# ---- in the foreground


def detach(words: Iterable[str]) -> int:
    """Start the command again in a session of its own; 0 once its first checkpoint is on disk, else its exit code."""
    caught: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: caught.append(number))
    # A terminal that closes before the launch has its own session would end it, too.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        # -P: no module in the current folder takes the place of one of ours.
        [sys.executable, "-P", "-m", "agentrun_cli.detaching", str(write_end), *words],
        pass_fds=[write_end],
        start_new_session=True,
    )
    os.close(write_end)
    return _wait(process, read_end, caught)


def _wait(process: subprocess.Popen[bytes], pipe: int, caught: list[int]) -> int:
    """Until it is handed over or has exited. Signals are the launch's, which knows how to stop."""
    is_stopping, is_open = False, True
    while process.poll() is None:
        while caught:
            is_stopping = True
            process.send_signal(caught.pop(0))
        if not is_open:
            time.sleep(_POLL_SECONDS)
        elif select.select([pipe], [], [], _POLL_SECONDS)[0]:
            is_open = bool(os.read(pipe, 1))
            if is_open and not is_stopping:
                return 0
    if not is_stopping and select.select([pipe], [], [], 0)[0] and os.read(pipe, 1):
        return 0  # handed over, and finished by now
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


# ---- in the session of its own


def hand_over(job: str, name: str, folder: Path, *, quiet: bool, as_json: bool, asks_later: bool = False) -> None:
    """Say how to reach the launch, move its streams to the log, and let the command in the foreground exit.

    `asks_later` if on a terminal it would ask after its pilot whether to run the rest: now it stops there.
    """
    global _handed_over_at
    if _handed_over_at is None:
        return
    log, pid = folder / LOG, os.getpid()
    if not quiet:
        console.say(f"{job}: detached (pid {pid}); it writes to {console.shown_path(log)}")
        console.say(f"  to watch:     agentrun status {name} --watch")
        console.say(f"  to follow:    agentrun log {name} -f")
        console.say(f"  to stop:      agentrun stop {name}")
        if asks_later:
            console.say(f"  the rest:     agentrun resume {name}, when the pilot is over (--yes runs it at once)")
    if as_json:
        # A terminal that was closed meanwhile is no reason to stop.
        with suppress(OSError, console.ReaderGone):
            console.put_json({"job": job, "pid": pid, "log": str(log)})
    _move_streams(log, job)
    with suppress(OSError):
        os.write(_handed_over_at, b".")
        os.close(_handed_over_at)
    _handed_over_at = None


def _move_streams(log: Path, job: str) -> None:
    """Standard input reads nothing from now on; the other two write to the log, which nobody else can read."""
    from agentrun.values.clock import now_text

    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        with suppress(FileNotFoundError):
            os.replace(log, log.with_name(LOG_BEFORE))
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        console.say(f"{job}: {LOG} cannot be written ({error.strerror}); what the launch prints is lost")
        written = os.dup(nothing)
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    for number, file in enumerate((nothing, written, written)):
        os.dup2(file, number)
    os.close(nothing)
    os.close(written)
    console.say(f"{now_text()} {job}: detached, pid {os.getpid()}")


def main() -> None:
    """The process in a session of its own: `pipe words…`."""
    global _handed_over_at
    _handed_over_at = int(sys.argv[1])
    os.set_inheritable(_handed_over_at, False)
    sys.argv = ["agentrun", *sys.argv[2:]]
    # What the foreground ignores is not for us: no terminal signals this session, only people do.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    console.be_plain()
    from agentrun_cli.main import main

    main()


if __name__ == "__main__":
    # As the module that everyone else imports: `__main__` would be a second copy of it.
    from agentrun_cli import detaching

    detaching.main()
