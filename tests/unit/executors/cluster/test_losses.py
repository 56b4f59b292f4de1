"""Hosts that die, are stopped or are cut off: an attempt is lost only when nothing of it is alive.

The evidence is a lock: each attempt takes the flock of its item's file, and so does everything that it starts. Whoever
finds it held writes that down.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentrun.agents.attempt import Outcome
from agentrun.executors.cluster.fence import facts, fence, sight, sweep
from agentrun.executors.cluster.lanes import Incoming
from agentrun.executors.cluster.lease import MARGIN_SECONDS
from agentrun.executors.cluster.link import HostLink, Welcome
from agentrun.executors.cluster.port import Broken, HostSpec
from agentrun.system.guardian import LAUNCH_VARIABLE
from cluster.evidence import is_held
from cluster.here import HereEngine, HereTube, on_lanes
from unit.executors.cluster.conftest import LEASE_SECONDS, Cluster, ClusterBench, written
from unit.executors.cluster.test_archive import archive_of

HOLDING = """
    import fcntl, os, pathlib, subprocess, time
    def agent(item):
        held = open(f"{item.key}.lock", "a")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pathlib.Path("twice").touch()
        os.set_inheritable(held.fileno(), True)
        # A child in a session of its own, which outlives its parent unless somebody looks for it.
        child = subprocess.Popen(["sleep", "600"], close_fds=False, start_new_session=True)
        with open("begun", "a") as begun:
            begun.write("x")
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        child.kill()
        child.wait()
        return "done"
    """


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/cwd").exists()


class Losing:
    """An attempt in flight on the first host."""

    def __init__(self, cluster: ClusterBench, made: Cluster) -> None:
        self.cluster, self.made = cluster, made
        self.lock = cluster.folder / "k0.lock"
        self.running: asyncio.Future[Outcome]

    async def begin(self) -> HereTube:
        attempt = self.cluster.attempt()
        self.running = asyncio.ensure_future(self.made.executor.run(attempt, self.cluster.bench.channel))
        await self.cluster.eventually(lambda: written(self.cluster.folder / "begun") == "x", "the attempt runs")
        assert is_held(self.lock)
        tube: HereTube = self.made.engine.tubes_so_far[0]
        return tube

    async def lost(self) -> str:
        """Why it was lost; at that moment nothing of it is alive."""
        outcome = await self.running
        assert not is_held(self.lock), "the attempt is lost, and something of it is alive"
        assert outcome.failure is not None and outcome.failure.code == "host_lost", outcome
        return outcome.failure.message

    async def again(self) -> None:
        """Another attempt of the item runs on another host, alone."""
        (self.cluster.folder / "go").touch()
        outcome = await self.made.executor.run(self.cluster.attempt(), self.cluster.bench.channel)
        assert outcome.kind == "done" and not (self.cluster.folder / "twice").exists()


def test_an_attempt_is_lost_with_its_host_as_soon_as_that_is_gone(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        async with cluster.cluster(HOLDING) as made:
            losing = Losing(cluster, made)
            tube = await losing.begin()
            os.kill(tube.pid, signal.SIGKILL)
            assert await losing.lost() == "lost with worker-0: its host ended"
            await losing.again()
        await cluster.eventually(lambda: not made.carriers(), "nothing carries the mark")

    cluster.run(scenario())


def test_an_attempt_on_a_host_that_is_cut_off_is_lost_only_when_its_lease_has_ended(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        async with cluster.cluster(HOLDING) as made:
            losing = Losing(cluster, made)
            tube = await losing.begin()
            tube.cut()
            assert "the cable is cut; its lease has ended" in await losing.lost()
            await losing.again()

    cluster.run(scenario())


@pytest.mark.parametrize("by", ["the runner", "another host"])
def test_a_host_that_is_cut_off_is_ended_by_whoever_sees_its_processes(cluster: ClusterBench, by: str) -> None:
    async def scenario() -> None:
        engine = HereEngine(hosts=2 if by == "another host" else 1)
        limits = {"own_sight": sight()} if by == "the runner" else {}
        async with cluster.cluster(HOLDING, engine=engine, concurrency=2, limits=limits) as made:
            await cluster.eventually(lambda: made.executor.width == (2 if by == "another host" else 1), "they are up")
            losing = Losing(cluster, made)
            await losing.begin()
            tube = next(one for one in engine.tubes_so_far if "attempt" in one.sent)
            tube.cut()
            assert (await losing.lost()).endswith("the cable is cut; its host was ended")
            assert not is_alive(tube.pid) and not Path(tube.relay._scratch).exists()
            (warning,) = made.warnings
            assert warning.endswith("the cable is cut; 1 item will be retried within 4 s")
            await losing.again()

    cluster.run(scenario())


def test_an_attempt_that_is_cancelled_on_a_host_that_is_cut_off_ends_before_the_next_one_begins(
    cluster: ClusterBench,
) -> None:
    """A stop does not wait for the lease: the place stays named. But another attempt does."""

    async def scenario() -> None:
        one, other = tubes = PlayedTube(), PlayedTube()
        async with cluster.cluster("def agent(item): pass", engine=PlayedEngine(*tubes), concurrency=2) as made:
            one.come_up("p1")
            await cluster.eventually(lambda: made.executor.width == 1, "the first host is up")
            running = asyncio.ensure_future(made.executor.run(cluster.attempt(), cluster.bench.channel))
            await cluster.eventually(lambda: "attempt" in one.sent, "the attempt is sent")
            one.said.put_nowait(Broken("the cable is cut"))
            await cluster.eventually(lambda: bool(made.warnings), "the host is given up")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert made.executor.places_left == made.use.hosts == ["p1"]
            other.come_up("p2")
            again = asyncio.ensure_future(made.executor.run(cluster.attempt(), cluster.bench.channel))
            await cluster.eventually(lambda: "attempt" in other.sent, "the next attempt is sent")
            assert made.executor.places_left == [], "another attempt began, while the first one may be alive"
            again.cancel()
            other.said.put_nowait(b"")
            await asyncio.wait({again})

    cluster.run(scenario())


def test_a_host_that_is_stopped_is_killed_when_its_lease_has_ended(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        async with cluster.cluster(HOLDING) as made:
            losing = Losing(cluster, made)
            tube = await losing.begin()
            os.kill(tube.pid, signal.SIGSTOP)
            await losing.lost()
            await losing.again()
            assert not is_alive(tube.pid)

    cluster.run(scenario())


def test_a_host_that_is_stopped_for_less_than_its_lease_goes_on(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        async with cluster.cluster(HOLDING) as made:
            losing = Losing(cluster, made)
            tube = await losing.begin()
            os.kill(tube.pid, signal.SIGSTOP)
            await asyncio.sleep(LEASE_SECONDS / 4)
            os.kill(tube.pid, signal.SIGCONT)
            (cluster.folder / "go").touch()
            assert (await losing.running).kind == "done"

    cluster.run(scenario())


def test_pongs_that_arrive_late_do_not_keep_a_host_alive(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        async with cluster.cluster(HOLDING) as made:
            losing = Losing(cluster, made)
            tube = await losing.begin()
            tube.hold()
            # They arrive just before its lease ends, and were sent when it had begun.
            await asyncio.sleep(LEASE_SECONDS * 0.7)
            tube.cut()
            tube.release()
            await losing.lost()
            await losing.again()

    cluster.run(scenario())


def test_an_agent_that_holds_up_the_loop_of_its_host_does_not_end_the_lease(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        source = f"import time\nasync def agent(item): time.sleep({2.5 * LEASE_SECONDS}); return 1"
        async with cluster.cluster(source) as made:
            assert (await made.executor.run(cluster.attempt(), cluster.bench.channel)).kind == "done"

    cluster.run(scenario())


def test_a_lease_lasts_while_a_slow_line_brings_more_than_it_can_in_that_time(cluster: ClusterBench) -> None:
    """The job's folder and the item's files on their way there, and the item's files on their way back."""
    size = 5 * 1024 * 1024 // 2
    (cluster.folder / "model.bin").write_bytes(os.urandom(size))
    source = f"""
        import os, pathlib
        def agent(item, ctx):
            (ctx.dir / "made.bin").write_bytes(os.urandom({size}))
            return pathlib.Path("model.bin").stat().st_size
        """

    async def scenario() -> None:
        engine = HereEngine(bytes_per_second=1024 * 1024)
        async with cluster.cluster(source, engine=engine, sees_folder=False) as made:
            attempt, tubes = cluster.attempt(), made.engine.tubes_so_far
            running = asyncio.ensure_future(made.executor.run(attempt, cluster.bench.channel))
            await cluster.eventually(lambda: running.done() or len(tubes) > 1, "it is done, or its host is lost")
            assert running.done(), "its host is lost"
            assert cluster.output(await running) == size
            assert (Path(attempt.work) / "dir" / "made.bin").stat().st_size == size

    cluster.run(scenario())


@pytest.mark.parametrize("sends", ["a name that is no name", "no archive", "no outcome"])
def test_what_a_host_sends_and_cannot_be_used_loses_the_attempt_only_when_it_has_ended(
    cluster: ClusterBench, sends: str
) -> None:
    async def scenario() -> None:
        tube, link = play([0.0])
        tube.say("up", facts={"place": "p"}, mark="m", sight="s", scratch="/")
        tube.say("ready", sees_folder=True)
        tube.say("ping", n=1)
        await cluster.eventually(lambda: link.is_usable, "the host is usable")
        attempt = cluster.attempt()
        running = asyncio.ensure_future(link.run(attempt, cluster.bench.channel))
        await cluster.eventually(lambda: "attempt" in tube.sent, "the attempt is sent")
        if sends == "no outcome":
            tube.say("outcome", id=attempt.id)
        else:
            name = "../evil" if sends == "a name that is no name" else ""
            parts = {"work": archive_of((name, "x")) if name else b"garbage"}
            tube.say("say", parts, id=attempt.id, message={"type": "log", "text": "x", "no": 1})
        await cluster.eventually(lambda: "close" in tube.sent or running.done(), "the host is to end")
        pongs = tube.sent.count("pong")
        tube.say("ping", n=2)
        await asyncio.sleep(0.1)
        assert not running.done() and not link.is_usable and tube.sent.count("pong") == pongs
        tube.said.put_nowait(b"")
        outcome = await running
        assert outcome.failure is not None and outcome.failure.code == "host_lost"
        assert "what it sent cannot be used" in outcome.failure.message

    cluster.run(scenario())


def test_a_launch_ends_what_an_earlier_one_left_before_it_begins(cluster: ClusterBench) -> None:
    """The earlier runner is cut off from its host, which is alive and in the middle of an attempt."""

    async def scenario() -> None:
        async with cluster.cluster(HOLDING) as made:
            losing = Losing(cluster, made)
            tube = await losing.begin()
            tube.cut()
            async with cluster.cluster(HOLDING, mark=made.use.mark, hosts=made.use.hosts) as second:
                assert not is_held(losing.lock), "the second launch has begun, and an attempt of the first is alive"
                assert second.warnings == [] and second.executor.is_alone
                await Losing(cluster, second).again()
            await losing.lost()

    cluster.run(scenario())


@pytest.mark.parametrize("is_named", [True, False])
def test_machines_that_do_not_answer_are_waited_for_if_they_may_have_attempts(
    cluster: ClusterBench, is_named: bool
) -> None:
    async def scenario() -> None:
        engine = HereEngine()
        hosts = ["another machine", facts()["place"]] if is_named else []
        began = time.monotonic()
        async with cluster.cluster("def agent(item): pass", engine=engine, hosts=hosts) as made:
            waited = time.monotonic() - began
            assert (waited >= LEASE_SECONDS + MARGIN_SECONDS) == is_named
            words = "1 of the machines that the last launch used do not answer; waiting 4 s until nothing can be"
            assert [one.startswith(words) for one in made.warnings] == [True] * is_named
            assert made.use.hosts == []

    cluster.run(scenario())


def test_a_stop_while_machines_are_waited_for_leaves_them_named(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        async with cluster.cluster("def agent(item): pass", hosts=["another machine"], starts=False) as made:
            starting = asyncio.ensure_future(made.executor.start())
            await cluster.eventually(lambda: bool(made.warnings), "it waits")
            made.executor.hold()
            await starting
            assert made.use.hosts == ["another machine"] and not made.executor.is_alone
            assert (await made.executor.run(cluster.attempt(), cluster.bench.channel)).kind == "cancelled"

    cluster.run(scenario())


def test_what_a_host_starts_carries_the_marks_of_the_launches_around_it(
    cluster: ClusterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the launch started the cluster, too, its guardian kills the guardian of a host, as a descendant of what
    carries its mark. A program that an agent begins at that moment is then found by nobody, unless it carries that mark
    itself."""
    monkeypatch.setenv(LAUNCH_VARIABLE, "outermost:launch")

    async def scenario() -> None:
        async with cluster.cluster("import os\ndef agent(item): return os.environ['AGENTRUN_LAUNCH']") as made:
            outcome = await made.executor.run(cluster.attempt(), cluster.bench.channel)
            marks = cluster.output(outcome).split(":")
            assert marks[:3] == ["outermost", "launch", made.use.mark]

    cluster.run(scenario())


def test_of_what_a_host_says_only_its_own_folder_is_removed(tmp_path: Path) -> None:
    mark = "f" * 16
    own, other, link = (tmp_path / name for name in (f"agentrun-{mark}-a", "precious", f"agentrun-{mark}-b"))
    own.mkdir()
    other.mkdir()
    link.symlink_to(other)
    (other / "file").touch()
    for folder in (own, other, link, tmp_path):
        sweep(mark, str(folder))
    assert not own.exists() and (other / "file").exists() and link.is_symlink()


def test_a_fence_leaves_everybody_else_alone(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        async with cluster.cluster(HOLDING) as made:
            losing = Losing(cluster, made)
            await losing.begin()
            await asyncio.to_thread(fence, "f" * 16)
            assert is_held(losing.lock)
            (cluster.folder / "go").touch()
            assert (await losing.running).kind == "done"

    cluster.run(scenario())


def test_nothing_is_left_behind(cluster: ClusterBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    async def scenario() -> None:
        async with cluster.cluster("def agent(item): pass", sees_folder=False) as made:
            await made.executor.run(cluster.attempt(), cluster.bench.channel)
            assert list(scratch.iterdir())
            os.kill(made.engine.tubes_so_far[0].pid, signal.SIGKILL)
            await cluster.eventually(lambda: len(made.engine.tubes_so_far) == 2, "another host is started")
        await cluster.eventually(lambda: not list(scratch.iterdir()), "the scratch is removed")
        assert not made.carriers()
        assert not (cluster.folder / "state" / "seen-by").exists()

    cluster.run(scenario())


# ---- the runner's end alone, with a host that the test plays


class PlayedTube:
    where = "played"
    slots = 1

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.said: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self._incoming = Incoming()

    def come_up(self, place: str) -> None:
        self.say("up", facts={**facts(), "place": place}, mark=place, sight=place, scratch="/")
        self.say("ready", sees_folder=True)
        self.say("ping", n=1)

    def say(self, kind: str, parts: dict[str, bytes] | None = None, /, **fields: Any) -> None:
        self.said.put_nowait(on_lanes(kind, parts, **fields))

    async def send(self, data: bytes) -> None:
        self.sent += [frame.type for frame in self._incoming.feed(data)]

    async def receive(self) -> bytes:
        found = await self.said.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None:
        pass


class PlayedEngine:
    """Gives these tubes, and nothing else."""

    name = "played"

    def __init__(self, *tubes: PlayedTube) -> None:
        self._tubes = tubes

    async def connect(self) -> None:
        pass

    def caution(self, *, has_secrets: bool) -> str:
        return ""

    async def everywhere(self, function: Callable[..., Any], *args: Any) -> Mapping[str, Any]:
        return {}

    async def tubes(self, wanted: int, spec: HostSpec, changed: Callable[[], None]) -> AsyncIterator[PlayedTube]:
        for tube in self._tubes:
            yield tube

    async def describe(self) -> str:
        return "it has 2 hosts"

    async def close(self) -> None:
        pass


def play(clock: list[float]) -> tuple[PlayedTube, HostLink]:
    async def folder() -> bytes:
        return b""

    welcome = Welcome(
        hello={},
        base=Path("/"),
        folder=folder,
        check=lambda facts: "",
        ready=lambda link: None,
        refuse=lambda link, why, traceback: None,
        took=lambda seconds: None,
        broke=lambda link, why: None,
        failed=lambda link, why: None,
    )
    tube = PlayedTube()
    return tube, HostLink(tube, welcome, lease_seconds=LEASE_SECONDS, clock=lambda: clock[0])


def test_no_attempt_is_sent_before_the_first_pong(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        tube, link = play([0.0])
        tube.say("up", facts={"place": "p"}, mark="m", sight="s", scratch="/")
        tube.say("ready", sees_folder=True)
        await cluster.eventually(lambda: link.place == "p" and link.sees_folder, "the host is up")
        assert not link.is_usable
        tube.say("ping", n=1)
        await cluster.eventually(lambda: "pong" in tube.sent, "the pong is sent")
        assert link.is_usable
        tube.said.put_nowait(b"")
        await link.gone

    cluster.run(scenario())


def test_after_a_break_the_lease_is_waited_for_on_the_runner_s_clock(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        clock = [100.0]
        tube, link = play(clock)
        tube.say("ready", sees_folder=True)
        tube.say("ping", n=1)
        await cluster.eventually(lambda: link.is_usable, "the host is usable")
        running = asyncio.ensure_future(link.run(cluster.attempt(), cluster.bench.channel))
        await cluster.eventually(lambda: "attempt" in tube.sent, "the attempt is sent")
        tube.said.put_nowait(Broken("the cable is cut"))
        await asyncio.sleep(0.2)
        assert not link.is_usable and not running.done()
        clock[0] += LEASE_SECONDS + MARGIN_SECONDS - 0.05
        await asyncio.sleep(0.02)
        assert not running.done()
        clock[0] += 10.0
        outcome = await running
        assert outcome.failure is not None and outcome.failure.code == "host_lost"

    cluster.run(scenario())
