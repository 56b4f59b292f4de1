"""The guardian: a small process per launch that outlives the runner until all its processes are gone.

It holds the lock's descriptor and the read end of a pipe whose write end only the runner has. When the pipe
ends, by a clean close or by the runner's death, it kills every process of the launch, and then exits, which
frees the lock: **while any process of a launch is alive, no other launch can start.**

A process belongs to a launch if its environment carries the launch's marker (a `setsid` grandchild whose
parent is gone has nothing else in common with us), if it is in a session that the runner reported, or if it
descends from one of these. What escapes: a process with a session of its own *and* an emptied environment,
whose parent has gone. Without /proc (macOS) there are no markers, only sessions and descendants.

A program that is just being started has no marker yet, for an instant that a busy machine makes long. So it is
waited for: while it is still a copy of the runner it holds the pipe's write end, and while it is being loaded, /proc
shows that.

On the machine of a cluster the runner's place is taken by a host, which has a lease. Its guardian knows when that ends:
a host that has not moved the deadline by then is stuck, or cut off, and is killed with everything it started.

This file is also a script, run with `-I -S` so that it starts in some 20 ms: only the standard library, and
little of it.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Mapping, MutableMapping

    Mark = tuple[str, str]

LAUNCH_VARIABLE = "AGENTRUN_LAUNCH"
ATTEMPT_VARIABLE = "AGENTRUN_ATTEMPT_ID"
CLOSE_SECONDS = 30.0

ERASE_BELOW = b"\x1b[J"
GATHER_SECONDS = 0.02
"""Reports within this time are processed together: most programs have exited by then."""

STARTING_SECONDS = 10.0
"""How long programs that are just being started are waited for: in each of the two ways, at most."""

LOOK_SECONDS = 1.0
"""How long a guardian with a deadline waits at most before it looks at the clock: a machine may have slept."""
_HAS_PROC = os.path.exists("/proc/self/environ")


def boot_clock() -> float:
    """Seconds that also count while the machine sleeps: what a deadline is measured by."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Process:
    """A live process. `born` is in kernel ticks; `environ_bytes` is None while its program is being loaded."""

    __slots__ = ("born", "environ_bytes", "group", "parent", "pid", "session")

    def __init__(
        self, pid: int, parent: int, group: int, session: int, born: int, environ_bytes: int | None = 0
    ) -> None:
        self.pid, self.parent, self.group, self.session, self.born = pid, parent, group, session, born
        self.environ_bytes = environ_bytes


def read_process(pid: int) -> Process | None:
    """A process; None if it is gone or only waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    parent, group, session, born = (int(fields[n]) for n in (1, 2, 3, 19))
    return Process(pid, parent, group, session, born, _environ_bytes(fields))


def _environ_bytes(fields: list[bytes]) -> int | None:
    """Of the fields of a process that we may look into."""
    if len(fields) < 49:
        return 0
    memory, code_end, environ_start, environ_end = (int(fields[n]) for n in (20, 24, 47, 48))
    # The kernel gives a program its memory first, then its environment, and last it notes where the code ends. Its own
    # threads have no memory.
    return environ_end - environ_start if code_end or not memory else None


def list_processes() -> dict[int, Process]:
    if not _HAS_PROC:
        return _list_with_ps()
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def _list_with_ps() -> dict[int, Process]:
    import subprocess

    text = subprocess.run(["ps", "-axo", "pid=,ppid=,pgid=,stat="], capture_output=True, check=False).stdout
    table = {}
    for line in text.splitlines():
        pid, parent, group, state = line.split(None, 3)
        if not state.startswith(b"Z"):
            # The leader of a session of ours also leads a group of the same number.
            table[int(pid)] = Process(int(pid), int(parent), int(group), int(group), 0)
    return table


def carries(pid: int, mark: Mark) -> bool | None:
    """Whether its environment has the marker; None if that is not known yet.

    Markers of nested launches are joined by `:`.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
    except OSError:
        return False
    if not environ:
        process = read_process(pid)
        return None if process is not None and process.environ_bytes != 0 else False
    name, value = (os.fsencode(part) for part in mark)
    if value not in environ:
        return False
    start = name + b"="
    return any(value in e[len(start) :].split(b":") for e in environ.split(b"\0") if e.startswith(start))


def join_marker(environ: Mapping[str, str], mark: Mark) -> str:
    outer = environ.get(mark[0], "")
    return f"{outer}:{mark[1]}" if outer else mark[1]


def find_tree(roots: Mapping[int, int | None], mark: Mark | None, *, spare: Iterable[int]) -> tuple[set[int], set[int]]:
    """The live processes of these sessions, those that carry the mark, and all their descendants.

    `roots` are the session leaders, with their start times. The second set are those of which it is not known yet
    whether they carry the mark: their programs are just being loaded.
    """
    table, spared = list_processes(), {0, 1, *spare}
    carried = {pid: carries(pid, mark) for pid in table} if mark is not None else {}
    # A pid is not reused while a session or group has it: even if the leader is gone, it is still ours.
    ours = {pid for pid, born in roots.items() if born is None or pid not in table or table[pid].born == born}
    found = {
        process.pid
        for process in table.values()
        if process.pid in ours or process.session in ours or process.group in ours or carried.get(process.pid)
    } - spared
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    todo = list(found)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found and child not in spared:
                found.add(child)
                todo.append(child)
    return found, {pid for pid, is_ours in carried.items() if is_ours is None} - found


def birth(pid: int) -> int | None:
    """The start time of a live process, in kernel ticks: distinguishes it from a later one with the same pid."""
    if not _HAS_PROC:
        return None
    process = read_process(pid)
    return -1 if process is None else process.born


def end_tree(pid: int, mark: Mark | None = None, born: int | None = None) -> None:
    """Kill the session that `pid` leads and all its descendants; return when they are gone.

    A leader that may have been reaped needs its start time, `born`.
    """
    end_all(lambda: find_tree({pid: born}, mark, spare={os.getpid()}))


def end_launch(marker: str) -> None:
    """Kill the processes of a launch that died together with its guardian, by their marker."""
    end_all(lambda: find_tree({}, (LAUNCH_VARIABLE, marker), spare={os.getpid()}))


def end_all(find: Callable[[], tuple[set[int], set[int]]]) -> None:
    """Kill what `find_tree` finds, until it finds nothing, and knows of all that were being loaded."""
    quiet, pause, patience = 0, 0.001, STARTING_SECONDS
    unclear: set[int] | None = None
    # Collected before killing, because children of a killed parent are orphans; twice, because one may fork meanwhile.
    while quiet < 2:
        found, loading = find()
        # All are stopped first: a shell whose child is killed would run its next command.
        for pid in found:
            _stop(pid)
        killed = [_kill(pid) for pid in found]
        if any(killed):
            quiet, unclear = 0, None
        else:
            # Only those of the first look: on a busy machine others are being loaded all the time, but none of ours.
            unclear = loading if unclear is None else unclear & loading
            quiet = 0 if unclear and patience > 0 else quiet + 1
            patience -= pause
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


def _stop(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGSTOP)
    except (ProcessLookupError, PermissionError):
        pass


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:  # changed its user: we cannot kill it, and must not wait for it
        return False
    return True


class Guardian:
    """The runner's side: started once per launch, informed of each session, and restarted if it is killed."""

    def __init__(
        self,
        lock_fd: int | None,
        marker: str,
        terminal: int | None = None,
        *,
        deadline: float | None = None,
        scratch: str = "",
    ) -> None:
        import threading

        self._lock_fd = lock_fd
        self._marker = marker
        self._terminal = terminal
        self._deadline = deadline
        self._scratch = scratch
        self._lock = threading.RLock()
        self._told: set[int] = set()
        self._environ_before = os.environ.get(LAUNCH_VARIABLE)
        self._process: subprocess.Popen[bytes]
        self._pipe = -1
        self._pipe_file = (-1, -1)
        """Device and inode: an agent in this process may close a number that is not its own."""
        self._closed = False

    @classmethod
    def start(
        cls,
        lock_fd: int | None,
        marker: str,
        *,
        terminal: int | None = None,
        deadline: float | None = None,
        scratch: str = "",
    ) -> Guardian:
        """If the runner dies, what it has drawn below the cursor of `terminal`, a descriptor, is erased.

        With a `deadline` by `boot_clock`, the runner itself is killed at that time, too, unless `renew` moves it.
        `scratch` is a folder that is removed when everything has ended.
        """
        guardian = cls(lock_fd, marker, terminal, deadline=deadline, scratch=scratch)
        guardian._spawn()
        os.environ[LAUNCH_VARIABLE] = join_marker(os.environ, (LAUNCH_VARIABLE, marker))
        _remember_forks_of(guardian)
        return guardian

    @property
    def pid(self) -> int:
        return self._process.pid

    def began(self, pid: int) -> None:
        """Report a new session by its leader. Report its end with `ended`, before the leader is reaped."""
        self._told.add(pid)
        self._tell(f"+{pid}\n")

    def ended(self, pid: int) -> None:
        self._told.discard(pid)
        self._tell(f"-{pid}\n")

    def renew(self, deadline: float) -> None:
        """Move the deadline, from any thread."""
        with self._lock:
            self._deadline = deadline
            self._tell(f"*{deadline!r}\n")

    async def died(self) -> None:
        """Return when the guardian has died without being closed."""
        import asyncio

        while self._closed or self._process.poll() is None:
            await asyncio.sleep(0.25)

    async def watch(self) -> None:
        """A task for the launch's lifetime: replace a guardian that was killed."""
        while True:
            await self.died()
            with self._lock:
                if self._process.poll() is not None:
                    self._spawn()

    def close(self, *, spare_own: bool = False) -> bool:
        """Kill what is left of the launch. True if the guardian is gone, and only the runner has the lock.

        With `spare_own`, the runner's own children that were never reported are spared: in a user's script or
        notebook they may be anything.
        """
        self._tell("=\n" if spare_own else ".\n")
        self._closed = True
        _GUARDIANS.discard(self)
        _restore(os.environ, self._environ_before)
        self._close_pipe()
        return _ends_within(CLOSE_SECONDS, self._process)

    def _spawn(self) -> None:
        import subprocess

        self._close_pipe()
        read_end, self._pipe = os.pipe()
        made = os.fstat(self._pipe)
        self._pipe_file = (made.st_dev, made.st_ino)
        script = os.path.abspath(__file__)
        # Its standard streams are others.
        terminal = [os.dup(self._terminal)] if self._terminal is not None else []
        deadline = "" if self._deadline is None else repr(self._deadline)
        arguments = [str(read_end), str(os.getpid()), self._marker, deadline, self._scratch, *map(str, terminal)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", script, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[fd for fd in (self._lock_fd, read_end, *terminal) if fd is not None],
                start_new_session=True,
                cwd="/",
                # Without markers, so that no other launch's guardian kills it.
                env={k: v for k, v in os.environ.items() if k not in (LAUNCH_VARIABLE, ATTEMPT_VARIABLE)},
            )
        finally:
            for fd in (read_end, *terminal):
                os.close(fd)
        for pid in self._told:
            os.write(self._pipe, f"+{pid}\n".encode())

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                if not self._has_pipe():
                    raise BrokenPipeError
                os.write(self._pipe, line.encode())
            except BrokenPipeError:
                self._process.wait()
                self._spawn()
                if line[0] in "=.":
                    os.write(self._pipe, line.encode())

    def _has_pipe(self) -> bool:
        try:
            found = os.fstat(self._pipe)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._pipe_file

    def _close_pipe(self) -> None:
        if self._has_pipe():
            os.close(self._pipe)
        self._pipe = -1

    def _forked(self) -> None:
        """In a child that an in-process agent forked: it has no marker, and must not hold the pipe."""
        try:
            if self._has_pipe():
                os.write(self._pipe, f"+{os.getpid()}\n".encode())
        except OSError:
            pass
        self._closed = True
        self._close_pipe()


def _ends_within(seconds: float, process: subprocess.Popen[bytes]) -> bool:
    import select
    import subprocess

    try:
        ended = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        pass
    else:
        # `wait` with a limit sleeps between its looks, longer each time.
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.poll(seconds * 1000)
        seconds = 0
        os.close(ended)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


_GUARDIANS: set[Guardian] = set()
_hooked = False


def _remember_forks_of(guardian: Guardian) -> None:
    global _hooked
    _GUARDIANS.add(guardian)
    if not _hooked:
        os.register_at_fork(after_in_child=_after_fork)
        _hooked = True


def _after_fork() -> None:
    while _GUARDIANS:
        _GUARDIANS.pop()._forked()


def _restore(environ: MutableMapping[str, str], before: str | None) -> None:
    if before is None:
        environ.pop(LAUNCH_VARIABLE, None)
    else:
        environ[LAUNCH_VARIABLE] = before


OVERDUE = b"!"


def watch_runner(pipe: int, runner: int, lease: float | None = None) -> tuple[dict[int, int | None], bytes]:
    """Wait for the end of the pipe or of the runner, or for the time by `boot_clock` at which its lease ends.

    Returns the reported sessions, as `find_tree` takes them, and the runner's last word: `=` to spare its own children,
    `.` to end them too, nothing if it died; `OVERDUE` if its lease has ended.
    """
    import select

    told: dict[int, int | None] = {}
    last_word = b""
    poll, gather = select.poll(), select.poll()
    poll.register(pipe, select.POLLIN)
    gather.register(pipe, 0)  # its end alone
    runner_fd = -1
    deadline: float | None = None
    try:
        # A forked child may hold the pipe's write end long after the runner has died.
        runner_fd = os.pidfd_open(runner)
        poll.register(runner_fd, select.POLLIN)
    except ProcessLookupError:
        deadline = time.monotonic() + STARTING_SECONDS  # it died before we were up
    except (AttributeError, OSError):
        pass
    rest = b""
    while True:
        waits = [] if deadline is None else [max(deadline - time.monotonic(), 0.0)]
        if lease is not None:
            if (left := lease - boot_clock()) <= 0:
                return told, OVERDUE
            waits.append(min(left, LOOK_SECONDS))
        ready = dict(poll.poll(min(waits) * 1000 + 1 if waits else None))
        if not ready and (deadline is None or time.monotonic() < deadline):
            continue
        if pipe in ready:
            gather.poll(GATHER_SECONDS * 1000)
            chunk = os.read(pipe, 65536)
            if not chunk:
                return told, last_word
            *lines, rest = (rest + chunk).split(b"\n")
            last_word = next((line for line in lines if line in (b"=", b".")), last_word)
            for line in lines:
                if line.startswith(b"*"):
                    lease = float(line[1:])
            _update(told, [line for line in lines if not line.startswith(b"*")])
        elif runner_fd in ready:
            # A child that was just being started holds it, too, until its program is loaded.
            poll.unregister(runner_fd)
            deadline = time.monotonic() + STARTING_SECONDS
        else:
            return told, b""


def _update(told: dict[int, int | None], lines: Iterable[bytes]) -> None:
    began: set[int] = set()
    for line in lines:
        pid = int(line[1:]) if line[:1] in (b"+", b"-") else 0
        if line.startswith(b"+"):
            began.add(pid)
        else:
            began.discard(pid)
            told.pop(pid, None)
    for pid in began:
        told[pid] = birth(pid)


def own_children(runner: int, told: Iterable[int]) -> set[int]:
    """The runner's children that were never reported, and their descendants."""
    table, told = list_processes(), set(told)
    found: set[int] = set()
    todo = [runner]
    while todo:
        parent = todo.pop()
        children = [p.pid for p in table.values() if p.parent == parent and p.pid not in told and p.pid not in found]
        found.update(children)
        todo += children
    return found


def _erase_below(terminal: int) -> None:
    """Not on a terminal that is stopped (Ctrl-S): the write would block, and with it everything that is to be ended."""
    import select

    poll = select.poll()
    poll.register(terminal, select.POLLOUT)
    try:
        if any(event & select.POLLOUT for _, event in poll.poll(0)):
            os.write(terminal, ERASE_BELOW)
    except OSError:
        pass  # the terminal is gone, too


def main(arguments: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    pipe, runner, marker, deadline, scratch = int(arguments[0]), int(arguments[1]), *arguments[2:5]
    told, last_word = watch_runner(pipe, runner, float(deadline) if deadline else None)
    if not last_word and len(arguments) > 5:
        _erase_below(int(arguments[5]))
    spared = {os.getpid(), runner} | (own_children(runner, told) if last_word == b"=" else set())
    if last_word == OVERDUE:
        spared.discard(runner)
        told[runner] = birth(runner)
    end_all(lambda: find_tree(told, (LAUNCH_VARIABLE, marker), spare=spared))
    if scratch:
        import shutil

        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
