"""Attempts on hosts: what comes back, what travels, and what is waited for."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from agentrun.agents.attempt import Attempt, Outcome
from agentrun.agents.messages import Message, Received, Reply
from agentrun.errors import AgentError, UsageError
from agentrun.executors.cluster.fence import facts
from agentrun.executors.cluster.hello import landmark, sees_folder
from agentrun.executors.port import Joined
from agentrun.item import Item
from cluster.here import HereEngine
from unit.executors.cluster.conftest import ClusterBench, written

SYNC = """
    import os
    def agent(item, ctx):
        print("working on", item.key)
        return {"n": item.data["n"], "pid": os.getpid(), "cwd": os.getcwd(), "params": dict(ctx.params)}
    """


@pytest.mark.parametrize("sees_folder", [True, False])
def test_an_attempt_runs_on_a_host_as_it_would_here(cluster: ClusterBench, sees_folder: bool) -> None:
    async def scenario() -> None:
        async with cluster.cluster(SYNC, sees_folder=sees_folder) as made:
            found = cluster.output(await made.executor.run(cluster.attempt(3), cluster.bench.channel))
            assert found["n"] == 3 and found["pid"] != os.getpid() and found["params"] == {"customer": "acme"}
            assert (found["cwd"] == str(cluster.folder)) == sees_folder
            assert (cluster.folder / "slot-3.log").read_text() == "working on k3\n"
            assert made.executor.where(3) == ""
            assert made.commits == [[facts()["place"]]]

    cluster.run(scenario())


def test_a_place_is_on_disk_before_it_gets_its_first_attempt(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        async with cluster.cluster("def agent(item): pass", concurrency=2, engine=HereEngine(slots=2)) as made:
            on_disk = asyncio.Event()

            async def commit() -> None:
                await on_disk.wait()

            made.executor.join(Joined(made.use, commit, lambda: None, made.warnings.append))
            await cluster.eventually(lambda: made.executor.width == 2, "the host is up")
            both = [
                asyncio.ensure_future(made.executor.run(cluster.attempt(n), cluster.bench.channel)) for n in range(2)
            ]
            await asyncio.sleep(0.1)
            (tube,) = made.engine.tubes_so_far
            assert made.use.hosts == [facts()["place"]] and "attempt" not in tube.sent
            on_disk.set()
            await asyncio.gather(*both)
            assert tube.sent.count("attempt") == 2

    cluster.run(scenario())


def test_an_async_agent_runs_on_the_loop_of_its_host_as_many_at_a_time_as_it_has_slots(cluster: ClusterBench) -> None:
    source = """
        import asyncio, os
        running = most = 0
        async def agent(item):
            global running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.2)
            running -= 1
            return [os.getpid(), most]
        """

    async def scenario() -> None:
        async with cluster.cluster(source, engine=HereEngine(slots=3), concurrency=4) as made:
            running = [made.executor.run(cluster.attempt(n), cluster.bench.channel) for n in range(9)]
            found = [cluster.output(one) for one in await asyncio.gather(*running)]
            assert len({pid for pid, _ in found}) == 1
            assert max(most for _, most in found) == 3

    cluster.run(scenario())


@pytest.mark.parametrize("sees_folder", [True, False])
def test_files_travel_with_the_attempt_and_come_back_with_each_step(cluster: ClusterBench, sees_folder: bool) -> None:
    source = """
        import pathlib, time
        def agent(item, ctx):
            def first():
                (ctx.dir / "scratch").write_text("of the first step")
                return 1
            ctx.step("first", first)
            (ctx.out / "made.txt").write_text(item.path.read_text().upper())
            return sorted(path.name for path in ctx.dir.iterdir())
        """
    document = cluster.folder / "docs" / "a.txt"
    document.parent.mkdir()
    document.write_text("the text")
    seen = []

    async def scenario() -> None:
        async with cluster.cluster(source, sees_folder=sees_folder) as made:
            item = type(cluster.attempt().item)(0, "docs/a.txt", None, document)
            attempt = cluster.bench.attempt(item=item)
            work = Path(attempt.work)
            (work / "dir").mkdir(parents=True)
            (work / "dir" / "before").write_text("of an earlier attempt")

            async def channel(message: Message) -> Reply:
                seen.append((message.as_json()["type"], written(work / "dir" / "scratch")))
                from agentrun.agents.messages import KnownStep

                return KnownStep(0, False, None) if message.as_json()["type"] == "step_get" else Received()

            outcome = await made.executor.run(attempt, channel)
            assert cluster.output(outcome) == ["before", "scratch"] and outcome.made_files
            assert (work / "out" / "made.txt").read_text() == "THE TEXT"
            assert (work / "dir" / "before").read_text() == "of an earlier attempt"

    cluster.run(scenario())
    assert seen == [("step_get", ""), ("step_put", "of the first step")]


def test_what_is_printed_comes_while_the_attempt_runs(cluster: ClusterBench) -> None:
    source = """
        import pathlib, time
        def agent(item):
            print("first words", flush=True)
            while not pathlib.Path(item.data["go"]).exists():
                time.sleep(0.01)
        """

    async def scenario() -> None:
        async with cluster.cluster(source, sees_folder=False) as made:
            attempt = cluster.bench.attempt({"go": str(cluster.folder / "go")})
            running = asyncio.ensure_future(made.executor.run(attempt, cluster.bench.channel))
            await cluster.eventually(lambda: "first words" in written(attempt.log_path), "the words are in the log")
            assert not running.done()
            (cluster.folder / "go").touch()
            await running

    cluster.run(scenario())


@pytest.mark.parametrize("serve", [False, True])
def test_programs_run_on_hosts(cluster: ClusterBench, serve: bool) -> None:
    once = "import json, sys; print(json.load(sys.stdin)['data']['n'] * 2)"
    served = "import json, sys\nfor line in sys.stdin:\n    said = json.loads(line)\n"
    served += "    print(json.dumps({'type': 'done', 'id': said['id'], 'output': said['data']['n'] * 2}), flush=True)\n"
    (cluster.folder / "program.py").write_text(served if serve else once)

    async def scenario() -> None:
        command = (sys.executable, "program.py")
        async with cluster.cluster(command=command, parse="json", serve=serve, sees_folder=False) as made:
            outcomes = [await made.executor.run(cluster.attempt(n), cluster.bench.channel) for n in (4, 5)]
            assert [cluster.output(one) for one in outcomes] == [8, 10]

    cluster.run(scenario())


def test_an_agent_that_asks_parks_its_item(cluster: ClusterBench) -> None:
    from agentrun.agents.messages import Park

    async def ask(message: Message) -> Reply:
        return Park()

    async def scenario() -> None:
        async with cluster.cluster("def agent(item, ctx): return ctx.ask('Send it?')") as made:
            assert (await made.executor.run(cluster.attempt(), ask)).kind == "waiting"

    cluster.run(scenario())


def test_a_carry_goes_there_and_comes_back(cluster: ClusterBench) -> None:
    source = """
        def agent(item, ctx):
            ctx.carry = {"seen": ctx.carry["seen"] + [item.key]}
        """

    async def scenario() -> None:
        async with cluster.cluster(source, carry=True) as made:
            attempt = cluster.attempt(carry={"seen": ["before"]})
            assert (await made.executor.run(attempt, cluster.bench.channel)).kind == "done"
            assert {"type": "carry", "value": {"seen": ["before", "k0"]}} in cluster.bench.messages
            assert made.executor.most == 1

    cluster.run(scenario())


def test_an_attempt_that_is_cancelled_has_ended_there(cluster: ClusterBench) -> None:
    source = (
        "import os, pathlib, time\ndef agent(item): pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"
    )

    async def scenario() -> None:
        async with cluster.cluster(source) as made:
            running = asyncio.ensure_future(made.executor.run(cluster.attempt(), cluster.bench.channel))
            await cluster.eventually(lambda: written(cluster.folder / "pid") != "", "the agent runs")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert not Path("/proc", written(cluster.folder / "pid")).exists()

    cluster.run(scenario())


def test_a_timeout_is_kept_by_the_host(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        async with cluster.cluster("import time\ndef agent(item): time.sleep(60)") as made:
            outcome = await made.executor.run(cluster.attempt(timeout_seconds=0.3), cluster.bench.channel)
            assert outcome.failure is not None and outcome.failure.origin == "timeout"

    cluster.run(scenario())


def test_a_stop_gives_back_what_has_not_begun_and_lets_the_rest_finish(cluster: ClusterBench) -> None:
    source = """
        import pathlib, time
        def agent(item):
            pathlib.Path(f"begun-{item.index}").touch()
            while not pathlib.Path("go").exists():
                time.sleep(0.01)
        """

    async def scenario() -> None:
        async with cluster.cluster(source, concurrency=2) as made:
            made.executor._seconds = 0.01  # short ones, of which one is sent ahead
            running = [
                asyncio.ensure_future(made.executor.run(cluster.attempt(n), cluster.bench.channel)) for n in range(3)
            ]
            await cluster.eventually((cluster.folder / "begun-0").exists, "the first has begun")
            made.executor.hold()
            outcomes = [await one for one in running[1:]]
            assert [one.kind for one in outcomes] == ["cancelled", "cancelled"], outcomes
            (cluster.folder / "go").touch()
            assert (await running[0]).kind == "done"
            assert (await made.executor.run(cluster.attempt(7), cluster.bench.channel)).kind == "cancelled"
            made.executor.resume()
            assert (await made.executor.run(cluster.attempt(8), cluster.bench.channel)).kind == "done"
            assert not (cluster.folder / "begun-1").exists()

    cluster.run(scenario())


def test_secrets_go_by_the_tube_alone(cluster: ClusterBench) -> None:
    source = "import os\ndef agent(item): return os.environ['TOKEN']"

    async def scenario() -> None:
        async with cluster.cluster(source, environ={"TOKEN": "s3cret"}, sees_folder=False) as made:
            assert cluster.output(await made.executor.run(cluster.attempt(), cluster.bench.channel)) == "s3cret"
            pid = made.engine.tubes_so_far[0].pid
            assert b"s3cret" not in Path(f"/proc/{pid}/environ").read_bytes()
            assert b"s3cret" not in Path(f"/proc/{pid}/cmdline").read_bytes()

    cluster.run(scenario())


def test_an_agent_that_cannot_be_loaded_there_is_told_with_the_worker_s_name(cluster: ClusterBench) -> None:
    source = """
        import pathlib
        if not pathlib.Path("state").exists():
            raise RuntimeError("not here")
        async def agent(item):
            pass
        """

    async def scenario() -> None:
        (cluster.folder / "state").mkdir()
        async with cluster.cluster(source, sees_folder=False, engine_options={"send": ("cluster_agent.py",)}) as made:
            with pytest.raises(AgentError, match=r"worker-0: .*not here"):
                await made.executor.run(cluster.attempt(), cluster.bench.channel)

    cluster.run(scenario())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"agentrun": "0.0.7"}, "worker-1: it has agentrun 0.0.7"),
        ({"python": "3.9.2"}, "worker-1: it has Python 3.9"),
        ({"frames": 99}, "worker-1: it has agentrun"),
    ],
)
def test_another_version_on_a_worker_is_told_before_the_first_item(
    cluster: ClusterBench, change: dict[str, object], words: str
) -> None:
    async def scenario() -> None:
        engine = HereEngine()
        engine.answers["worker-1"] = {**facts(), **change}
        async with cluster.cluster("def agent(item): pass", engine=engine, starts=False) as made:
            with pytest.raises(UsageError, match=words):
                await made.executor.start()

    cluster.run(scenario())


def test_a_worker_without_agentrun_is_told_before_the_first_item(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        engine = HereEngine()
        engine.answers["worker-1"] = ModuleNotFoundError("No module named 'agentrun'")
        async with cluster.cluster("def agent(item): pass", engine=engine, starts=False) as made:
            with pytest.raises(UsageError, match="worker-1: agentrun cannot be imported there"):
                await made.executor.start()

    cluster.run(scenario())


@pytest.mark.parametrize("isolation", ["thread", "lambda"])
def test_what_cannot_travel_is_refused(cluster: ClusterBench, isolation: str) -> None:
    from agentrun.agents.agent import agent_from_function
    from agentrun.executors.cluster.hello import check_can_travel
    from agentrun.job.engine import EngineSpec

    engine = EngineSpec(on="dask", kind="dask")
    job = cluster.bench.job(engine=engine, isolation="thread" if isolation == "thread" else None)
    words = "shares the memory" if isolation == "thread" else "shares the memory|cannot import a lambda"
    with pytest.raises(UsageError, match=words):
        check_can_travel(
            agent_from_function(json.dumps if isolation == "thread" else (lambda item: 1), job), engine, cluster.folder
        )


def test_what_is_to_be_sent_and_is_not_there_is_refused_before_anything_begins(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        with pytest.raises(UsageError, match=r"engine.send: there is no prompts in .*; list files and folders"):
            async with cluster.cluster("def agent(item): pass", engine_options={"send": ("prompts",)}):
                pass

    cluster.run(scenario())


def test_without_a_slot_people_are_told_and_a_lost_engine_ends_the_launch(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        engine = HereEngine()
        engine.given.clear()
        limits = {"without_slot_seconds": 0.2, "answer_seconds": 0.2}
        options = {"resources": {"gpu": 1.0}}
        async with cluster.cluster(
            "def agent(item): pass", engine=engine, limits=limits, engine_options=options
        ) as made:
            running = asyncio.ensure_future(made.executor.run(cluster.attempt(), cluster.bench.channel))
            await cluster.eventually(lambda: bool(made.warnings), "people are told")
            assert made.warnings == [
                "here has given no slot with gpu = 1 for 0.2 s (it has 0 workers); still waiting",
            ]
            assert not running.done()
            engine.is_alive = False
            outcome = await running
            assert outcome.failure is not None and outcome.failure.code == "engine_lost"
            assert len(made.warnings) == 1

    cluster.run(scenario())


def test_the_width_follows_the_slots_and_short_attempts_are_sent_ahead(cluster: ClusterBench) -> None:
    async def scenario() -> None:
        engine = HereEngine(slots=2)
        async with cluster.cluster("def agent(item): pass", engine=engine, concurrency=3) as made:
            assert made.executor.width == 1 and made.executor.most == 6
            await cluster.eventually(lambda: made.executor.width == 2, "the host is up")
            await made.executor.run(cluster.attempt(), cluster.bench.channel)
            assert made.executor.width == 4
            engine.tubes_so_far[0].slots = 9
            assert made.executor.width == 6
            made.executor._seconds = 5.0
            assert made.executor.width == 3

    cluster.run(scenario())


def test_an_item_s_file_that_is_not_in_the_job_s_folder_is_sent_to_a_host_that_sees_the_folder(
    cluster: ClusterBench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What lies there under the same path may be something else."""
    outside = tmp_path_factory.mktemp("outside") / "a.txt"
    outside.write_text("the runner's")
    (cluster.folder / "linked").symlink_to(outside.parent)
    inside = cluster.folder / "b.txt"
    inside.write_text("in the folder")

    async def scenario() -> None:
        async with cluster.cluster("def agent(item): return [str(item.path), item.path.read_text()]") as made:
            for path, is_sent in ((outside, True), (cluster.folder / "linked" / "a.txt", True), (inside, False)):
                item = Item(index=0, key=path.name, path=path)
                outcome = await made.executor.run(replace(cluster.attempt(), item=item), cluster.bench.channel)
                found, text = cluster.output(outcome)
                assert text == path.read_text() and (found != str(path)) == is_sent
                assert Path(found).exists() != is_sent, "the copy is removed"

    cluster.run(scenario())


def test_another_copy_of_the_job_s_folder_is_not_taken_for_it(tmp_path: Path) -> None:
    base, copy = tmp_path / "a", tmp_path / "b"
    base.mkdir()
    (base / "agent.py").write_text("1")
    shutil.copytree(base, copy)
    nonce = tmp_path / "state" / "seen-by"
    nonce.parent.mkdir()
    nonce.write_text("word")
    hello = {"nonce_path": str(nonce), "nonce": "word", "base": str(base), "landmark": landmark(base)}
    assert sees_folder(hello)
    assert not sees_folder({**hello, "base": str(copy)})
    assert not sees_folder({**hello, "nonce": "another word"})
    assert not sees_folder({**hello, "base": str(tmp_path / "nowhere")})


def test_a_machine_that_ends_every_attempt_at_once_does_not_attract_the_others(cluster: ClusterBench) -> None:
    def attempt_with_file(n: int) -> Attempt:
        return replace(cluster.attempt(n), item=Item(index=n, key=f"k{n}", path=Path(__file__)))

    async def scenario() -> None:
        engine = HereEngine(hosts=2)
        source = "def agent(item): return 1"
        async with cluster.cluster(source, engine=engine, concurrency=2, sees_folder=False) as made:
            await cluster.eventually(lambda: made.executor.width == 2, "both hosts are up")
            full = engine.tubes_so_far[0]
            # In the place of a folder, as if its disk were full.
            Path(full.relay._scratch, "items").write_text("")
            ended: list[Outcome] = []
            while not made.warnings:
                ended.append(await made.executor.run(attempt_with_file(len(ended)), cluster.bench.channel))
            assert ended[-1].failure is not None and ended[-1].failure.code == "host_lost"
            assert "cannot be put in place" in ended[-1].failure.message
            assert (
                made.warnings[0].startswith(f"{full.where}: ") and "nothing more is started there" in made.warnings[0]
            )
            for n in range(5):
                outcome = await made.executor.run(attempt_with_file(10 + n), cluster.bench.channel)
                assert outcome.kind == "done"

    cluster.run(scenario())
