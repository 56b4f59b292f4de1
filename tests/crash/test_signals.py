"""SIGINT, SIGTERM and SIGHUP at random moments, with agents that ignore them."""

from __future__ import annotations

import random
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from crash.command_line import Place, exit_of, place
from crash.harness import Long, again_and_again, seeded
from waiting import happens_before_exit

SIGNALS = {"async": 24, "process": 24, "thread": 26, "command": 26}
GRACE_SECONDS = 0.3
SLACK_SECONDS = 5.0
"""For an agent that swallows its cancellation, and for a machine that is busy."""
AT_ONCE_SECONDS = 3.0
TOTAL = 40

# Every fifth item ignores everything, until there is a file that says so.
AGENT = """
import asyncio, os, signal, sys, time

def begin(item):
    fd = os.open(os.environ["CRASH_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{os.environ['CRASH_LAUNCH']} {item.text}\\n".encode())
    os.close(fd)

def is_stubborn(item):
    return int(item.text) % 5 == 4 and not os.path.exists("calm")

def output_of(item):
    return {"square": int(item.text) ** 2, "text": "\\u00e9" * (int(item.text) % 50)}

def sync_agent(item):
    begin(item)
    if is_stubborn(item):
        if "agentrun.launch" not in sys.modules:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        while True:
            try:
                time.sleep(0.01)
            except BaseException:
                pass
    time.sleep(0.005)
    return output_of(item)

async def async_agent(item):
    begin(item)
    while is_stubborn(item):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            pass
    await asyncio.sleep(0.005)
    return output_of(item)
"""
SCRIPT = """#!/bin/sh
echo "$CRASH_LAUNCH $1" >> "$CRASH_CALLS"
if [ $(($1 % 5)) = 4 ]; then
    trap '' INT TERM HUP
    while [ ! -e calm ]; do sleep 0.02; done
fi
echo "{\\"square\\": $(($1 * $1))}"
"""
# Python prints an interrupt that comes while it starts up, and may forget it: people press Ctrl-C again.
FORGOTTEN = re.compile("^(?:Failed checking if argv|Exception ignored in)", re.MULTILINE)


def stop_once(job: Place, rng: random.Random) -> bool:
    """One launch, and one signal or two. False if it was complete before."""
    said_before, begun_before = len(job.said) if job.launches else 0, job.begun()
    process = job.start()
    if rng.random() < 0.3:
        time.sleep(rng.uniform(0, 0.6))
    else:
        happens_before_exit(process, lambda: job.begun() > begun_before, "an attempt")
        time.sleep(rng.uniform(0, 0.1))
    number = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    has_begun = job.begun() > begun_before
    if process.poll() is not None:
        assert process.returncode == 0, job.said[said_before:]
        return False
    process.send_signal(number)
    sent = time.monotonic()
    allowed = GRACE_SECONDS + SLACK_SECONDS
    if has_begun and rng.random() < 0.4:
        happens_before_exit(process, lambda: "stopped by" in job.said[said_before:], "it stops")
        process.send_signal(number)
        sent, allowed = time.monotonic(), AT_ONCE_SECONDS
    again = 0

    def is_forgotten() -> bool:
        return len(FORGOTTEN.findall(job.said[said_before:])) > again

    while happens_before_exit(process, is_forgotten, "it exits"):
        process.send_signal(number)
        again, sent = again + 1, time.monotonic()
    code = exit_of(process)
    seconds = time.monotonic() - sent
    told = f"{number.name} after {job.launches} launches: exit {code} after {seconds:.2f} s\n{job.said[said_before:]}"
    assert seconds < allowed + 1, told
    if code == 0:
        assert job.is_finished, told
        return False
    if "init_import_site" in told:  # Ctrl-C before Python itself was up
        return True
    assert code == 128 + number, told
    if has_begun:
        assert process.returncode == 128 + number, f"it died of the signal: {told}"
        assert "stopped by" in job.said[said_before:] and "agentrun resume" in job.said[said_before:], told
        assert job.state()["running"] == [], f"not a clean stop: {told}"
    return True


def stop_a_job(rng: random.Random, *, kind: str, most: int) -> int:
    """Stop one job again and again, then let it go to its end."""
    concurrency, stops = rng.choice([1, 4]), 0
    with place(kind=kind, total=TOTAL, concurrency=concurrency, run={"grace": f"{GRACE_SECONDS}s"}) as job:
        (job.base / "agent.py").write_text(AGENT)
        (job.base / "agent.sh").write_text(SCRIPT)
        finished: set[int] = set()
        while stops < most and stop_once(job, rng):
            stops += 1
            again = finished & set(job.calls()[job.launches])
            assert not again, f"finished and run again: {sorted(again)}"
            assert finished <= job.done(), "finished items were lost"
            finished = job.done()
        (job.base / "calm").touch()
        if not job.is_finished:
            assert job.finish() == 0, job.said[-2000:]
        assert not finished & set(job.calls()[job.launches])
        job.check_results()
    return max(stops, 1)


@pytest.mark.parametrize("kind", SIGNALS)
def test_a_signal_stops_it_within_the_grace_period_and_it_can_go_on(kind: str) -> None:
    lanes = 4

    def go(lane: int) -> None:
        wanted, number = SIGNALS[kind] // lanes + (lane < SIGNALS[kind] % lanes), 0
        while wanted > 0:
            with seeded(f"signals {kind} {lane} {number}") as rng:
                wanted -= stop_a_job(rng, kind=kind, most=wanted)
            number += 1

    # Most of the time they wait for the end of a grace period.
    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(go, range(lanes)))


def _one(rng: random.Random) -> int:
    return stop_a_job(rng, kind=rng.choice(list(SIGNALS)), most=6)


LONG: dict[str, Long] = {"signals": again_and_again(_one)}
