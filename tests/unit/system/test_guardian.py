"""What is left of a launch is ended, and the lock is free only after that."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import secrets
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from agentrun.system.guardian import (
    ATTEMPT_VARIABLE,
    LAUNCH_VARIABLE,
    Guardian,
    carries,
    end_all,
    end_tree,
    read_process,
)
from waiting import PATIENCE_SECONDS, eventually

linux_only = pytest.mark.usefixtures("proc")

DAEMON = "import os, time; os.setsid(); open({path!r}, 'w').write(str(os.getpid())); time.sleep(600)"
"""Leaves its session and writes its pid."""


def is_alive(pid: int) -> bool:
    return read_process(pid) is not None


def pid_in(path: Path) -> int:
    eventually(lambda: path.exists() and path.read_text() != "", f"a pid in {path}")
    return int(path.read_text())


def is_free(lock: Path) -> bool:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def open_files(pid: int) -> set[str]:
    folder = Path(f"/proc/{pid}/fd")
    found = set()
    for fd in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(fd))
    return found


RUNNER = """
    import fcntl, os, secrets, subprocess, sys, time
    from agentrun.system.guardian import Guardian

    folder, orphan = sys.argv[1], sys.argv[2]
    lock = open(folder + "/lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    guardian = Guardian.start(lock.fileno(), secrets.token_hex(8))
    open(folder + "/guardian", "w").write(str(guardian.pid))
    if orphan == "forked":
        if os.fork() == 0:
            open(folder + "/orphan", "w").write(str(os.getpid()))
            time.sleep(600)
    else:
        # A program whose grandchild leaves the session, and whose parent then goes.
        grandchild = "import os, time; os.setsid(); open(%r, 'w').write(str(os.getpid())); time.sleep(600)"
        child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
        program = subprocess.Popen([sys.executable, "-c", child, grandchild % (folder + "/orphan")],
                                   start_new_session=True)
        guardian.began(program.pid)
        program.wait()
        guardian.ended(program.pid)
    if orphan == "closed":
        while not os.path.exists(folder + "/orphan") or not open(folder + "/orphan").read():
            time.sleep(0.01)
        guardian.close()
        open(folder + "/closed", "w").write("1")
    time.sleep(600)
"""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(orphan: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", dedent(RUNNER), str(tmp_path), orphan]
        started.append(subprocess.Popen(argv, stderr=subprocess.DEVNULL))
        return started[0]

    yield start
    for process in started:
        process.kill()
        process.wait()


@linux_only
@pytest.mark.parametrize("orphan", ["daemon", "forked"])
def test_when_the_runner_is_killed_its_orphans_die_and_only_then_the_lock_is_free(
    tmp_path: Path, runner: Callable[[str], subprocess.Popen[bytes]], orphan: str
) -> None:
    process = runner(orphan)
    orphan_pid, guardian_pid = pid_in(tmp_path / "orphan"), pid_in(tmp_path / "guardian")
    assert not is_free(tmp_path / "lock")

    os.kill(guardian_pid, signal.SIGSTOP)  # so that the moment between can be seen
    process.kill()
    process.wait()
    assert is_alive(orphan_pid) and not is_free(tmp_path / "lock")

    os.kill(guardian_pid, signal.SIGCONT)
    eventually(lambda: is_free(tmp_path / "lock"), "the lock is free")
    assert not is_alive(orphan_pid)
    eventually(lambda: not is_alive(guardian_pid), "the guardian goes")


STARTING = """
    import fcntl, os, secrets, sys
    from agentrun.system.guardian import Guardian

    folder = sys.argv[1]
    lock = open(folder + "/lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    guardian = Guardian.start(lock.fileno(), secrets.token_hex(8))
    open(folder + "/guardian", "w").write(str(guardian.pid))
    program = ["/bin/sh", "-c", f"echo $$ >{folder}/orphan; exec sleep 600"]
    # Between fork and exec the child opens a FIFO, and waits there for whoever writes to it.
    held = [(os.POSIX_SPAWN_OPEN, 0, folder + "/fifo", os.O_RDONLY, 0)]
    os.posix_spawn(program[0], program, os.environ, file_actions=held, setsid=True)
"""


@linux_only
def test_a_program_that_was_just_being_started_when_the_runner_was_killed_dies_before_the_lock_is_free(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = subprocess.Popen([sys.executable, "-c", dedent(STARTING), str(tmp_path)])

    def child() -> int | None:
        """Between fork and exec it still has the runner's words."""
        found = (int(name) for name in os.listdir("/proc") if name.isdigit())
        children = [one.pid for one in map(read_process, found) if one is not None and one.parent == process.pid]
        return next((pid for pid in children if b"posix_spawn" in Path(f"/proc/{pid}/cmdline").read_bytes()), None)

    pid = None
    try:
        guardian_pid = pid_in(tmp_path / "guardian")
        eventually(lambda: "anon_inode:[pidfd]" in open_files(guardian_pid), "the guardian watches the runner")
        eventually(child, "the child waits for the FIFO", alive=process)
        pid = child()
        assert pid is not None
        process.kill()
        process.wait()
        # A guardian that does not wait would be gone by then.
        for _ in range(50):
            assert is_alive(pid) and is_alive(guardian_pid)
            time.sleep(0.01)
        with (tmp_path / "fifo").open("w"):
            eventually(lambda: is_free(tmp_path / "lock"), "the lock is free")
        assert not is_alive(pid)
    finally:
        process.kill()
        process.wait()
        if pid is not None and is_alive(pid):
            os.kill(pid, signal.SIGKILL)


@linux_only
def test_a_program_that_is_being_loaded_is_never_taken_for_a_stranger() -> None:
    mark = (LAUNCH_VARIABLE, secrets.token_hex(8))
    # A program that loads itself again and again, under the same pid.
    again = 'exec sh -c "$0" "$0"'
    programs = [subprocess.Popen(["sh", "-c", again, again], env={**os.environ, mark[0]: mark[1]}) for _ in range(2)]
    try:
        looks = [carries(program.pid, mark) for _ in range(5000) for program in programs]
        assert [program.poll() for program in programs] == [None, None]
    finally:
        for program in programs:
            program.kill()
            program.wait()
    assert False not in looks and True in looks
    assert None in looks, "no look was at a program that is being loaded: the test shows nothing"


@linux_only
def test_a_clean_close_ends_daemons_that_were_left_behind_and_spares_the_runner(
    tmp_path: Path, runner: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    process = runner("closed")
    orphan_pid = pid_in(tmp_path / "orphan")
    eventually(lambda: (tmp_path / "closed").exists(), "the guardian is closed")
    assert not is_alive(orphan_pid)
    assert not is_alive(pid_in(tmp_path / "guardian"))
    assert process.poll() is None
    assert not is_free(tmp_path / "lock")  # the runner's own


@linux_only
def test_a_terminal_that_is_stopped_does_not_keep_it_from_ending_what_is_left(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    lock = tmp_path / "lock"
    runner = """
        import fcntl, os, secrets, subprocess, sys
        from agentrun.system.guardian import Guardian

        lock = open(sys.argv[1], "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        Guardian.start(lock.fileno(), secrets.token_hex(8), terminal=0)
        print(subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL).pid, flush=True)
        sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", dedent(runner), str(lock)], stdin=terminal, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
        termios.tcflow(terminal, termios.TCOOFF)
        process.kill()
        process.wait()
        eventually(lambda: not is_alive(orphan), "what the runner had started has ended")
        eventually(lambda: is_free(lock), "the lock is free")
    finally:
        termios.tcflow(terminal, termios.TCOON)
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(terminal)


@linux_only
def test_signals_of_the_terminal_do_not_end_it(tmp_path: Path) -> None:
    guardian = Guardian.start(None, secrets.token_hex(8))
    try:
        assert os.getsid(guardian.pid) == guardian.pid
        status = Path(f"/proc/{guardian.pid}/status")

        def ignored() -> int:
            line = next(line for line in status.read_text().splitlines() if line.startswith("SigIgn"))
            return int(line.split()[1], 16)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            eventually(lambda bit=1 << (number - 1): bool(ignored() & bit), f"{number} is ignored")  # type: ignore[misc]
        assert os.readlink(f"/proc/{guardian.pid}/cwd") == "/"
    finally:
        assert guardian.close()


@linux_only
def test_a_guardian_that_was_killed_is_replaced_and_told_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        guardian = Guardian.start(None, secrets.token_hex(8))
        # Without the marker, so that only what it was told can find it.
        plain = {name: value for name, value in os.environ.items() if name != LAUNCH_VARIABLE}
        session = subprocess.Popen(["sleep", "600"], start_new_session=True, env=plain)
        guardian.began(session.pid)
        watch = asyncio.create_task(guardian.watch())
        first = guardian.pid
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while guardian.pid == first:
                await asyncio.sleep(0.01)
        watch.cancel()
        assert guardian.close()
        assert session.wait() == -signal.SIGKILL

    asyncio.run(scenario())


@linux_only
def test_telling_a_guardian_that_has_died_starts_another() -> None:
    guardian = Guardian.start(None, secrets.token_hex(8))
    first = guardian.pid
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not is_alive(first), "it died")
    guardian.began(os.getpid() + 1_000_000_000)
    assert guardian.pid != first
    assert guardian.close()


@linux_only
def test_the_environment_is_as_before_after_a_close() -> None:
    before = os.environ.get(LAUNCH_VARIABLE)
    markers = [secrets.token_hex(8), secrets.token_hex(8)]
    guardian, inner = [Guardian.start(None, marker) for marker in markers]
    assert os.environ[LAUNCH_VARIABLE].endswith(":".join(markers))
    assert inner.close() and guardian.close()
    assert os.environ.get(LAUNCH_VARIABLE) == before


@linux_only
def test_end_tree_finds_grandchildren_that_left_the_session(tmp_path: Path) -> None:
    mark = (ATTEMPT_VARIABLE, secrets.token_hex(8))
    near, far = tmp_path / "near", tmp_path / "far"
    code = f"""
        import subprocess, sys, time
        start = lambda code: subprocess.Popen([sys.executable, "-c", code])
        start({DAEMON.format(path=str(near))!r})
        subprocess.run([sys.executable, "-c", "import subprocess, sys; subprocess.Popen([sys.executable, '-c', "
                        "sys.argv[1]])", {DAEMON.format(path=str(far))!r}])
        time.sleep(600)
    """
    root = subprocess.Popen(
        [sys.executable, "-c", dedent(code)], start_new_session=True, env={**os.environ, mark[0]: f"outer:{mark[1]}"}
    )
    pids = [root.pid, pid_in(near), pid_in(far)]
    assert all(map(is_alive, pids))
    end_tree(root.pid, mark)
    assert not any(map(is_alive, pids))
    root.wait()


@linux_only
def test_end_tree_does_not_touch_a_later_process_of_the_same_number() -> None:
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        end_tree(other.pid, born=1)
        assert is_alive(other.pid)
    finally:
        end_tree(other.pid)
        other.wait()


def test_as_a_guest_it_spares_what_the_users_process_started_itself(tmp_path: Path) -> None:
    guardian = Guardian.start(None, secrets.token_hex(8))
    own = subprocess.Popen(["sleep", "60"])
    told = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        guardian.began(told.pid)
        assert guardian.close(spare_own=True)
        assert told.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()


def test_a_pipe_that_an_agent_closed_is_neither_written_to_nor_closed_and_the_guardian_is_replaced(
    tmp_path: Path,
) -> None:
    own = tmp_path / "agents-own"
    own.write_bytes(b"the agent's own")
    before = {name for name in os.listdir("/dev/fd") if _is_pipe(name)}
    guardian = Guardian.start(None, secrets.token_hex(8))
    (name,) = {name for name in os.listdir("/dev/fd") if _is_pipe(name)} - before
    first = guardian.pid
    number, opened = int(name), os.open(own, os.O_RDWR)
    os.dup2(opened, number)
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    guardian.began(program.pid)
    assert guardian.pid != first
    # The new one knows of the program, and ends it.
    assert guardian.close(spare_own=True)
    assert program.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert own.read_bytes() == b"the agent's own" and os.path.samestat(os.fstat(number), own.stat())
    for one in (opened, number):
        os.close(one)


def _is_pipe(name: str) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(int(name)).st_mode)
    except OSError:
        return False


def test_those_being_loaded_at_the_first_look_are_waited_for_and_no_others() -> None:
    looks = iter([{1, 2}, {2, 3}, {2, 4}, {5}, {6}, {7}])
    end_all(lambda: (set(), next(looks)))
    assert list(looks) == [{7}], "two looks after the last of them is loaded"
