"""Sending notices: each by a process of its own, which is ended when its time is over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrun.errors import JobError
from agentrun.job.job import Job
from agentrun.job.notify import FROM_ENVIRONMENT, Occasion
from agentrun.notices.notice import Notice

SEND_SECONDS = 30.0
LOAD_SECONDS = 120.0
"""Only against hangs: a busy machine loads Apprise slowly, and that is not the service's fault."""
_LOOK_SECONDS = 0.05
_APPRISE = (sys.executable, "-P", "-m", "agentrun.notices.apprise_process")
_KINDS: dict[Occasion, str] = {"finished": "success", "failed": "warning", "waiting": "info", "stopped": "failure"}
INSTALL = "install it, in the checkout, with: pip install '.[notify]'"


@dataclass(frozen=True, slots=True)
class Address:
    """Where Apprise sends to."""

    number: int
    url: str = field(repr=False)
    service: str = ""
    shown: str = ""
    """Its private form, for a person who asks; not for files: some services' private form shows a topic or a path."""

    def __str__(self) -> str:
        return f"address {self.number}{f' ({self.service})' if self.service else ''}"


def find_addresses(job: Job, environ: Mapping[str, str]) -> list[Address]:
    """The addresses of the job, those in variables looked up; JobError if one is not set."""
    urls = job.notify.urls if job.notify is not None else ()
    found = []
    for number, url in enumerate(urls, 1):
        name = url.removeprefix(FROM_ENVIRONMENT)
        if name != url:
            url = environ.get(name, "").strip()
            if not url:
                where = job.env_file or "the environment"
                raise JobError(f"{job.name}: notify.urls needs {name}; set it in {where}", key="notify.urls")
        found.append(Address(number, url))
    return found


def check_addresses(job: Job, addresses: Sequence[Address]) -> list[Address]:
    """The same, each with its service; JobError if Apprise is missing, or does not understand one."""
    if not addresses:
        return []
    try:
        said = _ask_apprise("check", {"urls": [one.url for one in addresses]}, LOAD_SECONDS)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise JobError(f"{job.name}: notify.urls: Apprise cannot be run; {INSTALL}", key="notify.urls") from None
    if said.get("missing"):
        raise JobError(f"{job.name}: notify.urls needs Apprise; {INSTALL}", key="notify.urls")
    checked = []
    for one, found in zip(addresses, said["found"], strict=True):
        if found is None:
            raise JobError(
                f"{job.name}: notify.urls: Apprise does not understand address {one.number}; write one as on "
                f"https://appriseit.com/services, such as ntfy://…",
                key="notify.urls",
            )
        checked.append(Address(one.number, one.url, found["service"], found["shown"]))
    return checked


def check_program(job: Job, environ: Mapping[str, str]) -> None:
    """JobError unless the program of `notify.command` can be run."""
    if job.notify is None or job.notify.command is None:
        return
    program = job.notify.command[0]
    place = str(job.base / program) if "/" in program else program
    if shutil.which(place, path=environ.get("PATH")) is None:
        raise JobError(
            f"{job.name}: notify.command: there is no program {program} that can be run; check its name, or chmod +x",
            key="notify.command",
        )


def _ask_apprise(verb: str, asked: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    ended = _finish(_begin([*_APPRISE, verb], cwd="/", output=subprocess.PIPE), json.dumps(asked).encode(), seconds)
    answer = json.loads(ended)
    if not isinstance(answer, dict):
        raise ValueError(verb)
    return answer


def _begin(argv: Sequence[str], *, cwd: str, output: int | None) -> subprocess.Popen[bytes]:
    """With `output` None it writes where the launch writes: to standard error."""
    return subprocess.Popen(
        argv,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=output if output is not None else sys.__stderr__,
        stderr=None if output is None else subprocess.DEVNULL,
        start_new_session=True,
    )


def _finish(process: subprocess.Popen[bytes], given: bytes, seconds: float) -> bytes:
    """What it wrote; if it takes longer, TimeoutExpired, and its session is ended."""
    try:
        return process.communicate(given, timeout=seconds)[0] or b""
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ---- all of a launch's recipients at once


@dataclass(slots=True)
class Delivery:
    """One notice on its way; `problem` says what went wrong, empty if nothing did."""

    to: str
    send: Callable[[Delivery], str] = field(repr=False)
    problem: str = "not sent: interrupted"
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    is_given_up: bool = False

    def run(self) -> None:
        try:
            problem = self.send(self)
        except subprocess.TimeoutExpired:
            problem = f"not sent within {SEND_SECONDS:g}s"
        except Exception as error:
            # Whatever it is: a notice never changes how a launch ends. Its text may hold an address.
            problem = f"not sent: {type(error).__name__}"
        if not self.is_given_up:
            self.problem = problem


def deliver(
    notice: Notice, addresses: Sequence[Address], command: Sequence[str] | None, *, base: Path
) -> list[Delivery]:
    """Send a notice to everybody at once, at most 30 s each. A signal gives up on what is still on its way."""
    deliveries = [Delivery(str(one), _to_address(notice, one)) for one in addresses]
    if command is not None:
        deliveries.append(Delivery("notify.command", _to_program(notice, command, base)))
    threads = [threading.Thread(target=one.run, daemon=True) for one in deliveries]
    with _signals_caught() as caught:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and not caught:
            time.sleep(_LOOK_SECONDS)
        if caught:
            _give_up([one for one, thread in zip(deliveries, threads, strict=True) if thread.is_alive()])
    return deliveries


def _give_up(left: Sequence[Delivery]) -> None:
    for one in left:
        one.is_given_up = True
        if one.process is not None:
            _end(one.process)


def _to_address(notice: Notice, address: Address) -> Callable[[Delivery], str]:
    def send(delivery: Delivery) -> str:
        asked: dict[str, Any] = {
            "url": address.url,
            "title": notice.title,
            "text": notice.text,
            "kind": _KINDS[notice.occasion],
            "seconds": SEND_SECONDS,
        }
        delivery.process = _begin([*_APPRISE, "send"], cwd="/", output=subprocess.PIPE)
        said = json.loads(_finish(delivery.process, json.dumps(asked).encode(), LOAD_SECONDS + SEND_SECONDS))
        problem = "Apprise is missing" if said.get("missing") else str(said["problem"])
        return f"not sent: {problem}" if problem else ""

    return send


def _to_program(notice: Notice, command: Sequence[str], base: Path) -> Callable[[Delivery], str]:
    def send(delivery: Delivery) -> str:
        delivery.process = _begin(command, cwd=str(base), output=None)
        _finish(delivery.process, json.dumps(notice.details, default=str).encode() + b"\n", SEND_SECONDS)
        code = delivery.process.returncode
        return f"{command[0]} exited with {code}" if code else ""

    return send


@contextmanager
def _signals_caught() -> Iterator[list[int]]:
    """Signals end the sending, and nothing else: the launch is over, and its exit code stays what it is."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, frame: caught.append(number)) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
